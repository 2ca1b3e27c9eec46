"""θ and θ_a coupled only while the noise is on: SGD first, then Entropy-MCMC from where it is."""

import pytest
import torch

from entropy_mcmc import SGHMC, SGLD, EntropyMCMC, schedules
from entropy_mcmc.errors import ConfigError

SETTINGS = {"num_data": 50, "temperature": 0.3, "weight_decay": 0.01, "seed": 4, "fused": False}
STEPS, BURN_IN = 12, 0.5


def grad(theta: torch.Tensor) -> torch.Tensor:
    return theta**3 - theta


def start() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.linspace(-1.5, 1.5, 7, dtype=torch.float64))


def advance(sampler, param, cycle=None, steps=1):
    for _ in range(steps):
        param.grad = grad(param.detach())
        sampler.step()
        if cycle is not None:
            cycle.step()


def guide_of(sampler, param):
    with sampler.guide():
        return param.detach().clone()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_burn_in_is_sgd_and_the_rest_is_entropy_mcmc_from_there(momentum):
    param = start()
    sampler = EntropyMCMC([param], 0.1, eta=0.05, momentum=momentum, **SETTINGS)
    cycle = schedules.Cyclical(sampler, STEPS, 1, BURN_IN, 1, coupled="noisy")
    alone = start()
    if momentum:
        plain = SGHMC([alone], 0.1, momentum=momentum, **SETTINGS)
    else:
        plain = SGLD([alone], 0.1, **SETTINGS)
    reference = schedules.Cyclical(plain, STEPS, 1, BURN_IN, 1)
    advance(sampler, param, cycle, 6)
    advance(plain, alone, reference, 6)
    assert torch.equal(param, alone)
    assert torch.equal(guide_of(sampler, param), param)

    # From the equation: both from the old values, θ_a and its velocity new, v carried over.
    theta, guide = param.detach().clone(), param.detach().clone()
    v = sampler.state[param]["velocity"].clone() if momentum else torch.zeros_like(theta)
    u = torch.zeros_like(theta)
    group = sampler.param_groups[0]
    group["noise"] = False
    lr, last = group["lr"], group["last_lr"]
    advance(sampler, param)
    pull = lr / (0.05 * 50) * (theta - guide)
    carried = momentum * (lr / last) ** 0.5
    v = carried * v - lr * (grad(theta) + 0.01 * theta) - pull
    u = carried * u + pull
    torch.testing.assert_close(param.detach(), theta + v, rtol=1e-12, atol=0)
    torch.testing.assert_close(guide_of(sampler, param), guide + u, rtol=1e-12, atol=0)


def test_a_new_cycle_starts_without_a_guide():
    param = start()
    sampler = EntropyMCMC([param], 0.1, eta=0.05, momentum=0.9, **SETTINGS)
    cycle = schedules.Cyclical(sampler, 8, 2, 0.5, 1, coupled="noisy")
    with_guide = []
    for _ in range(8):
        advance(sampler, param, cycle)
        with_guide.append("guide" in sampler.state[param])
    assert with_guide == [False, False, True, True] * 2


@pytest.mark.parametrize("at", [2, 5, 6, 9])
def test_resumed_anywhere_it_is_the_same_chain(at):
    def made():
        param = start()
        sampler = EntropyMCMC([param], 0.1, eta=0.05, momentum=0.9, **SETTINGS)
        return param, sampler, schedules.Cyclical(sampler, STEPS, 1, BURN_IN, 1, coupled="noisy")

    param, sampler, cycle = made()
    advance(sampler, param, cycle, STEPS)
    first, broken, broken_cycle = made()
    advance(broken, first, broken_cycle, at)
    other, resumed, resumed_cycle = made()
    with torch.no_grad():
        other.copy_(first)
    resumed.load_state_dict(broken.state_dict())
    resumed_cycle.load_state_dict(broken_cycle.state_dict())
    advance(resumed, other, resumed_cycle, STEPS - at)
    assert torch.equal(other, param)
    assert torch.equal(guide_of(resumed, other), guide_of(sampler, param))


def test_states_saved_before_the_option_existed_are_coupled_always():
    param = start()
    sampler = EntropyMCMC([param], 0.1, eta=0.05, **SETTINGS)
    cycle = schedules.Cyclical(sampler, STEPS, 1, BURN_IN, 1)
    old = {name: value for name, value in cycle.state_dict().items() if name != "coupled"}
    cycle.load_state_dict(old)
    assert cycle.coupled == "always"
    saved = sampler.state_dict()
    del saved["param_groups"][0]["coupled"]
    sampler.load_state_dict(saved)
    assert sampler.param_groups[0]["coupled"] is True


def test_another_word_is_refused():
    sampler = EntropyMCMC([start()], 0.1, eta=0.05, **SETTINGS)
    with pytest.raises(ConfigError, match="'always', 'noisy'"):
        schedules.Cyclical(sampler, STEPS, 1, BURN_IN, 1, coupled="late")
