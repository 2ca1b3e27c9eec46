"""Step by step, every sampler equals its equations: with noise, with groups, and at T = 0."""

import numpy as np
import pytest
import torch

from battery import CASES, NOISY
from entropy_mcmc import SGHMC, EntropyMCMC, noise

SHAPES = [(3, 4), (5,), (), (40_000,)]
CURVATURES = [1.0, 0.5, 2.0, 0.8]
SEED = 11


def parameters(device, dtype=torch.float64):
    g = torch.Generator().manual_seed(1)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=g, dtype=dtype).to(device))
        for shape in SHAPES
    ]


def loss_of(params):
    """Σ ½a·p² + 0.1·cos p: no rule of a linear sampler could hide in it."""
    return sum(
        (0.5 * a * p.square() + 0.1 * p.cos()).sum()
        for a, p in zip(CURVATURES, params, strict=True)
    )


def flat(tensors):
    return np.concatenate([t.detach().double().cpu().numpy().ravel() for t in tensors])


def flat_gradient(theta):
    sizes = [int(np.prod(shape)) for shape in SHAPES]
    a = np.repeat(CURVATURES, sizes)
    return a * theta - 0.1 * np.sin(theta)


def flat_noise(step, stream, inner, half, ahead=0):
    schedule = noise.step_schedule(SEED, step + ahead, stream, inner)
    parts = [
        noise.normal_pair(schedule, *noise.counters(i, 0, int(np.prod(s)), torch.device("cpu")))
        for i, s in enumerate(SHAPES)
    ]
    return flat([pair[half] for pair in parts])


def flat_options(case, groups):
    """Hyper-parameters as one number per element, so that groups may differ."""
    sizes = [int(np.prod(shape)) for shape in SHAPES]
    per_parameter = [group for group in groups for _ in group["params"]]
    return {name: np.repeat([g[name] for g in per_parameter], sizes) for name in case.options}


def run_both(case, device, steps, **overrides):
    params = parameters(device)
    second = {"lr": case.options["lr"] * 0.5, "weight_decay": 0.2}
    groups = [{"params": params[:2]}, {"params": params[2:], **second}]
    sampler = case.make(groups, **({} if case.name[:3] == "sam" else {"seed": SEED}), **overrides)
    h = flat_options(case, sampler.param_groups)
    state = {
        name: np.zeros(flat(params).size) + case.start.get(name, 0.0) for name in case.variables
    }
    state |= {name: flat_noise(0, *address) for name, address in case.remembered.items()}
    state["theta"] = flat(params)
    if "guide" in state:
        state["guide"] = flat(params)

    def closure():
        sampler.zero_grad()
        loss = loss_of(params)
        loss.backward()
        return loss

    for step in range(steps):
        sampler.step(closure)
        state = case.naive(
            h, state, flat_gradient, lambda i, step=step: flat_noise(step, *case.noises[i])
        )
    actual = {"theta": flat(params)}
    for name in case.variables[1:]:
        actual[name] = flat([sampler.state[p][name] for p in params])
    return actual, state


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_equals_the_equations(case, device):
    actual, expected = run_both(case, device, steps=6)
    for name in case.variables:
        np.testing.assert_allclose(
            actual[name], expected[name], rtol=1e-9, atol=1e-11, err_msg=name
        )


@pytest.mark.parametrize("case", NOISY, ids=lambda c: c.name)
def test_equals_the_equations_at_temperature_zero(case, device):
    actual, expected = run_both(case, device, steps=6, temperature=0.0)
    for name in case.variables:
        np.testing.assert_allclose(
            actual[name], expected[name], rtol=1e-11, atol=1e-13, err_msg=name
        )


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sghmc_without_noise_is_torch_sgd(device, momentum):
    ours, theirs = parameters(device), parameters(device)
    a = SGHMC(ours, lr=0.1, num_data=10, momentum=momentum, temperature=0.0, weight_decay=0.01)
    b = torch.optim.SGD(theirs, lr=0.1, momentum=momentum, weight_decay=0.01)
    for _ in range(20):
        for params, optimizer in ((ours, a), (theirs, b)):
            optimizer.zero_grad()
            loss_of(params).backward()
            optimizer.step()
    np.testing.assert_allclose(flat(ours), flat(theirs), rtol=1e-12)


def test_emcmc_with_momentum_and_no_coupling_is_torch_sgd(device):
    ours, theirs = parameters(device), parameters(device)
    a = EntropyMCMC(ours, lr=0.1, num_data=10, eta=1e12, momentum=0.9, temperature=0.0)
    b = torch.optim.SGD(theirs, lr=0.1, momentum=0.9)
    for _ in range(20):
        for params, optimizer in ((ours, a), (theirs, b)):
            optimizer.zero_grad()
            loss_of(params).backward()
            optimizer.step()
    np.testing.assert_allclose(flat(ours), flat(theirs), rtol=1e-9)


def test_strong_coupling_halves_the_speed():
    """At η → its limit the pair moves like one particle of twice the mass."""
    p = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
    sampler = EntropyMCMC([p], lr=1e-4, num_data=1, eta=4e-4, temperature=0.0)
    for _ in range(20_000):
        p.grad = p.detach().clone()
        sampler.step()
    assert p.item() == pytest.approx(np.exp(-0.5 * 2.0), rel=1e-3)  # SGD would be at exp(−2)
