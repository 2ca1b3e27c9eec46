"""The guide of every sampler that has one: when it is shown, and what its coupling refuses."""

import pytest
import torch
from torch import nn

from battery import CASES, GUIDES
from entropy_mcmc import EntropyMCMC
from entropy_mcmc.errors import ConfigError, StateError
from small_training import network, train, weights

guided = pytest.mark.parametrize("case", GUIDES, ids=lambda c: c.name)


@guided
def test_guide_starts_as_theta_at_the_first_step(case):
    net = network()
    sampler = case.make(net.parameters(), seed=1, lr=0.0)
    with torch.no_grad():
        net[0].weight.add_(1.0)  # changed after construction, before the first step
    train(net, sampler, 1)
    guide = sampler.state[net[0].weight]["guide"]
    if case.name == "emcmc-gibbs":
        assert (guide - net[0].weight).std() < 2 * (0.2 * 0.7) ** 0.5
    else:
        torch.testing.assert_close(guide, net[0].weight.detach())


@guided
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_guide_swaps_in_place_and_back(case, dtype, device):
    net = network(device, dtype)
    sampler = case.make(net.parameters(), seed=1)
    train(net, sampler, 3)
    theta = [p.detach().clone() for p in net.parameters()]
    guide = [sampler.state[p]["guide"].clone() for p in net.parameters()]
    pointers = [p.data_ptr() for p in net.parameters()]
    with sampler.guide():
        assert [p.data_ptr() for p in net.parameters()] == pointers
        for p, g in zip(net.parameters(), guide, strict=True):
            assert torch.equal(p.detach(), g.to(dtype))
    for p, t, g in zip(net.parameters(), theta, guide, strict=True):
        assert torch.equal(p.detach(), t)
        assert torch.equal(sampler.state[p]["guide"], g)


@guided
def test_guide_restores_after_an_exception(case):
    net = network()
    sampler = case.make(net.parameters(), seed=1)
    train(net, sampler, 3)
    before = weights(net)
    with pytest.raises(KeyError), sampler.guide():
        raise KeyError
    assert torch.equal(weights(net), before)
    train(net, sampler, 1, start=3)


@guided
def test_inside_the_guide_the_chain_is_closed(case):
    net = network()
    sampler = case.make(net.parameters(), seed=1)
    train(net, sampler, 1)
    before = weights(net)
    state = sampler.state_dict()
    with sampler.guide():
        for call in (
            lambda: train(net, sampler, 1),
            sampler.state_dict,
            lambda: sampler.load_state_dict(state),
            lambda: sampler.guide().__enter__(),
        ):
            with pytest.raises(StateError, match="leave the block"):
                call()
    assert torch.equal(weights(net), before)


@guided
def test_guide_before_the_first_step_is_theta(case):
    net = network()
    sampler = case.make(net.parameters(), seed=1)
    before = weights(net)
    with sampler.guide():
        assert torch.equal(weights(net), before)


# The refusals of the coupling.


def one(**options):
    return EntropyMCMC([nn.Parameter(torch.zeros(2))], **options)


@pytest.mark.parametrize(("momentum", "remedy"), [(0.0, "exact"), (0.5, "collapsed")])
def test_coupling_limit_at_construction(momentum, remedy):
    limit = 0.5 / ((1 + momentum) * 100)
    with pytest.raises(ConfigError, match=f'larger eta, a smaller lr, or guide_update="{remedy}"'):
        one(lr=0.5, num_data=100, eta=limit, momentum=momentum)
    with pytest.warns(UserWarning, match="oscillate"):
        one(lr=0.5, num_data=100, eta=limit * 1.001, momentum=momentum)


def test_coupling_warns_above_one_half_only():
    with pytest.warns(UserWarning, match=r"above 0.5"):
        one(lr=0.51, num_data=100, eta=0.01)
    one(lr=0.5, num_data=100, eta=0.01)


def test_coupling_limit_when_lr_changes():
    net = network()
    sampler = EntropyMCMC(net.parameters(), lr=0.1, num_data=100, eta=0.01)
    train(net, sampler, 1)
    sampler.param_groups[0]["lr"] = 1.0
    with pytest.raises(ConfigError, match="eta must be greater than"):
        train(net, sampler, 1)


@pytest.mark.parametrize("update", ["exact", "gibbs"])
def test_other_rules_have_no_coupling_limit_and_no_momentum(update):
    one(lr=0.5, num_data=1, eta=1e-4, guide_update=update)
    for name in ("momentum", "guide_weight_decay"):
        with pytest.raises(ConfigError, match=f"{name} must be 0 with guide_update='{update}'"):
            one(lr=0.5, num_data=1, eta=1e-4, guide_update=update, **{name: 0.5})


def test_unknown_names_are_refused():
    with pytest.raises(ConfigError, match="'euler', 'exact', 'gibbs'"):
        one(lr=0.1, num_data=10, eta=1.0, guide_update="Exact")
    with pytest.raises(ConfigError, match="fused"):
        one(lr=0.1, num_data=10, eta=1.0, fused="always")


def test_memory_beside_the_model_is_the_guide_and_one_velocity_per_variable():
    param = nn.Parameter(torch.zeros(1000))
    for options, tensors in [({}, 1), ({"momentum": 0.9}, 3)]:
        sampler = EntropyMCMC([param], lr=0.1, num_data=10, eta=1.0, **options)
        param.grad = torch.zeros(1000)
        sampler.step()
        assert sum(v.numel() for v in sampler.state[param].values()) == 1000 * tensors


def test_bsam_draws_from_its_gaussian():
    """z-scores over 200,000 elements; |z| < 4.5 has a false-alarm rate of 7e-6 each."""
    case = next(c for c in CASES if c.name == "bsam")
    param = nn.Parameter(torch.zeros(200_000))
    sampler = case.make([param], seed=1)

    def closure():
        param.grad = torch.zeros_like(param)
        return param.detach().sum()

    sampler.step(closure)
    mean, scale = param.detach().clone(), sampler.state[param]["scale"].clone()
    with sampler.sampled(draw=3):
        z = (param.detach() - mean) * (scale * 10 / 0.7).sqrt()
    assert torch.equal(param.detach(), mean)
    assert abs(z.mean().item()) < 4.5 / 200_000**0.5
    assert abs(z.var().item() - 1) < 4.5 * (2 / 200_000) ** 0.5
