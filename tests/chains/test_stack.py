"""Stacks of chains: every sampler, its variables and its coefficients by name."""

import pytest
import torch
import torch.nn.functional as F

from entropy_mcmc import chains
from entropy_mcmc.chains.stack import Method, Stack, samplers
from entropy_mcmc.samplers.hyper_parameters import hyper_parameters

COMMON = {"lr": 0.3, "num_data": 40, "temperature": 0.5, "seed": 8}


OWN = {"eta": 0.5, "freeze_after": 6}


def settings(kind):
    """Settings that every sampler takes, η where it needs one, and an early end of adaptation."""
    return COMMON | {name: v for name, v in OWN.items() if name in hyper_parameters(kind)}


def problem():
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(40, 3, generator=generator)
    return torch.randn(3, 2, generator=generator), x, (x.sum(1) > 0).long()


@pytest.mark.parametrize("name", samplers())
def test_every_sampler_of_one_gradient_runs_in_chains(name):
    """Chain 0 is the chain of the optimizer, through the step at which a method settles."""
    kind = samplers()[name]
    start, x, y = problem()
    given = settings(kind)
    steps = Method.of(kind, given).settles + 15
    draws = chains.run(
        lambda t, x, y: F.cross_entropy(x @ t, y),
        start,
        sampler=name,
        data=(x, y),
        chains=2,
        steps=steps,
        **given,
    )
    theta = torch.nn.Parameter(start.clone())
    sampler = kind([theta], **given)
    for step in range(steps):
        sampler.zero_grad()
        F.cross_entropy(x @ theta, y).backward()
        sampler.step()
        torch.testing.assert_close(draws.theta[0, step], theta.detach(), rtol=1e-4, atol=1e-5)
    assert (draws.guide is None) == ("guide" not in sampler.state[theta])


@pytest.mark.parametrize("name", samplers())
def test_a_stack_moves_each_network_like_the_optimizer(name):
    """The layers of three networks at a learning rate that falls, without noise."""
    kind = samplers()[name]
    _, x, y = problem()
    generator = torch.Generator().manual_seed(1)
    start = [torch.randn(3, 3, 4, generator=generator), torch.randn(3, 4, 2, generator=generator)]
    stack = Stack(start, kind, **settings(kind))
    params = [torch.nn.Parameter(layer.clone()) for layer in start]
    sampler = kind(params, **settings(kind) | {"temperature": 0.0})
    for step in range(6):
        lr = 0.3 / (1 + step)
        for layers in (stack.layers, params):
            for layer in layers:
                layer.grad.zero_() if layer.grad is not None else None
            out = (x @ layers[0]).tanh() @ layers[1]
            sum(F.cross_entropy(each, y) for each in out).backward()
        stack.step(stack.update(lr), None)
        sampler.param_groups[0]["lr"] = lr
        sampler.step()
        for layer, param in zip(stack.layers, params, strict=True):
            torch.testing.assert_close(layer.detach(), param.detach())
    for layer, copied in zip(stack.layers, stack.copy("theta"), strict=True):
        assert torch.equal(layer, copied)
        assert layer.data_ptr() != copied.data_ptr()


def test_each_chain_may_have_its_own_coefficients():
    """Decay and noise of chain c are those of a stack whose chains all have them."""
    start = [torch.ones(2, 3, 1), torch.ones(2, 1, 1)]
    eps = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    decays, noises = torch.tensor([0.1, 0.5]), torch.tensor([0.0, 2.0])

    def moved(decay, noise):
        stack = Stack(start, samplers()["emcmc"], **COMMON, eta=0.5)
        stack.step(stack.update(0.3), tuple(eps), decay=decay, noise=noise)
        return stack.copy("theta") + stack.copy("guide")

    mixed = moved(decays, noises)
    for chain in range(2):
        alone = moved(decays[chain], noises[chain])
        for layer, own in zip(mixed, alone, strict=True):
            assert torch.equal(layer[chain], own[chain])
    assert not torch.equal(mixed[0][0], mixed[0][1])
