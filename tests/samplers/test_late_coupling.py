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


# Replicas: one network in burn-in, from which all replicas and the guide start.


def replicated(y=3, momentum=0.9, **options):
    param = start()
    sampler = EntropyMCMC(
        [param], 0.1, eta=0.05, momentum=momentum, replicas=y, **{**SETTINGS, **options}
    )
    return param, sampler


def variables(sampler, param):
    """Replicas and the guide, as rows."""
    rows = []
    for number in range(sampler.num_replicas):
        with sampler.replica(number):
            rows.append(param.detach().clone())
    return torch.stack([*rows, guide_of(sampler, param)])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_burn_in_of_replicas_is_sgd_of_one_network(momentum):
    """Two rounds of three calls are six steps of SGD, whose lr changes from round to round."""
    param, sampler = replicated(momentum=momentum)
    alone = start()
    velocity = torch.zeros_like(alone)
    last = 0.1
    for lr in (0.1, 0.07):
        sampler.param_groups[0].update(lr=lr, noise=False, coupled=False)
        for call in range(3):
            carried = momentum * ((lr / last) ** 0.5 if call == 0 else 1.0)
            slope = grad(alone.detach()) + 0.01 * alone.detach()
            velocity = carried * velocity - lr * slope
            with torch.no_grad():
                alone += velocity
            advance(sampler, param)
        last = lr
    torch.testing.assert_close(param, alone, rtol=1e-12, atol=0)
    assert sampler.param_groups[0]["step"] == 2
    assert torch.equal(variables(sampler, param), param.detach().expand(4, -1))
    assert torch.equal(sampler.replica_mean(param), param.detach())


def test_replicas_start_as_the_network_of_burn_in_with_its_velocity():
    """From the equation: each replica with the carried velocity, the guide at rest."""
    param, sampler = replicated()
    group = sampler.param_groups[0]
    group.update(noise=False, coupled=False)
    advance(sampler, param, steps=3)
    theta, v = param.detach().clone(), sampler.state[param]["velocity"].clone()
    group["coupled"] = True
    advance(sampler, param, steps=3)
    # No pull yet; all three gradients are those of the same θ.
    moved = theta + 0.9 * v - 0.1 * (grad(theta) + 0.01 * theta)
    expected = torch.stack([moved, moved, moved, theta])
    torch.testing.assert_close(variables(sampler, param), expected, rtol=1e-12, atol=0)
    assert not torch.equal(moved, theta)


def test_a_new_cycle_of_replicas_goes_on_with_the_first():
    param, sampler = replicated()
    cycle = schedules.Cyclical(sampler, 24, 2, 0.5, 1, coupled="noisy")
    advance(sampler, param, cycle, 12)
    first, v = variables(sampler, param)[0], sampler.state[param]["velocity_0"].clone()
    assert len({tuple(row) for row in variables(sampler, param).tolist()}) == 4
    group = sampler.param_groups[0]
    carried = 0.9 * (group["lr"] / group["last_lr"]) ** 0.5
    expected = first + carried * v - group["lr"] * (grad(first) + 0.01 * first)
    advance(sampler, param, cycle)
    torch.testing.assert_close(param.detach(), expected, rtol=1e-12, atol=0)
    assert set(sampler.state[param]) == {"velocity"}
    advance(sampler, param, cycle, 11)
    assert len({tuple(row) for row in variables(sampler, param).tolist()}) == 4


class WithinRounds:
    """A schedule of one's own: cycles of 12 calls, coupled and noisy from the seventh on."""

    def __init__(self, sampler):
        self.sampler = sampler
        self.load_state_dict({"call": 0})

    def step(self):
        self.load_state_dict({"call": self.call + 1})

    def state_dict(self):
        return {"call": self.call}

    def load_state_dict(self, state):
        self.call = state["call"]
        noisy = self.call % 12 >= 6
        self.sampler.param_groups[0].update(noise=noisy, coupled=noisy)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("at", [2, 6, 7, 13, 17])
def test_replicas_resumed_anywhere_are_the_same_chain(at, own):
    """Also where a phase ends within a round of 4, in a schedule of one's own."""

    def made():
        param, sampler = replicated(y=4)
        if own:
            return param, sampler, WithinRounds(sampler)
        return param, sampler, schedules.Cyclical(sampler, 24, 2, 0.5, 1, coupled="noisy")

    param, sampler, cycle = made()
    advance(sampler, param, cycle, 24)
    first, broken, broken_cycle = made()
    advance(broken, first, broken_cycle, at)
    other, resumed, resumed_cycle = made()
    with torch.no_grad():
        other.copy_(first)
    resumed.load_state_dict(broken.state_dict())
    resumed_cycle.load_state_dict(broken_cycle.state_dict())
    advance(resumed, other, resumed_cycle, 24 - at)
    assert torch.equal(variables(resumed, other), variables(sampler, param))


def test_noise_without_coupling_is_refused_for_replicas():
    param, sampler = replicated()
    sampler.param_groups[0]["coupled"] = False
    with pytest.raises(ConfigError, match=r"noise must be off in a phase without coupling with re"):
        advance(sampler, param)


def test_auto_eta_of_replicas_counts_rounds():
    """The same horizon, as a part of a cycle: η is that of one network but for whole rounds."""
    etas = []
    for y in (1, 4):
        param = start()
        options = {**SETTINGS, "momentum": 0.9}
        sampler = EntropyMCMC([param], 0.1, eta="auto", replicas=y, **options)
        schedules.Cyclical(sampler, 4000, 1, 0.5, 1)
        etas.append(sampler.param_groups[0]["eta"])
    assert etas[1] == pytest.approx(etas[0])
