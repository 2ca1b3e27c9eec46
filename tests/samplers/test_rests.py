"""Parameters without a gradient in some steps, under rules that average noise.

A z-score over the bound of 4.5 has a false-alarm rate of 7e-6; seeds are fixed.
"""

import copy
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from entropy_mcmc import SGLD, EntropyMCMC, noise, theory
from entropy_mcmc.chains.stacked_optimizer import stacked_optimizer
from entropy_mcmc.samplers.kernel import compiled
from scenarios import covariance_z

BOUND = 4.5
SEED = 11
COMMON = {"lr": 0.3, "num_data": 10, "temperature": 0.7, "weight_decay": 0.05, "seed": SEED}
CASES = {
    "sgld": (SGLD, {"integrator": "lm"}),
    "emcmc": (EntropyMCMC, {"integrator": "lm", "eta": 0.2}),
    "collapsed": (EntropyMCMC, {"integrator": "lm", "eta": 0.2, "guide_update": "collapsed"}),
}
every_case = pytest.mark.parametrize("case", CASES)
# Whether parameter i has no gradient in a step: the first never, the second in every other step,
# the third for longer, also at the start.
RESTS = (lambda step: False, lambda step: step % 2 == 1, lambda step: step % 7 < 4)


def parameters(size=20, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(size, generator=generator, dtype=dtype)) for _ in RESTS]


def walk(sampler, params, steps, start=0, rests=RESTS, drift=torch.sin):
    for step in range(start, start + steps):
        for p, rest in zip(params, rests, strict=True):
            p.grad = None if rest(step) else drift(p.detach())
        sampler.step()


def normals(step, parameter, size):
    counters = noise.counters(parameter, 0, size, torch.device("cpu"))
    pair = noise.normal_pair(noise.step_schedule(SEED, step), *counters)
    return [one.double().numpy() for one in pair]


def naive_chain(theta, parameter, steps, eta=None):
    """The `lm` rule of θ, and of θ_a where there is η, which moves where there is a gradient.

    Each move gives half of the number that the last one began, and begins another.
    """
    c, left = COMMON, 0
    tie = 0.0 if eta is None else c["lr"] / (eta * c["num_data"])
    scale = math.sqrt(2 * c["lr"] * c["temperature"] / c["num_data"])
    guide = theta
    for step in [step for step in range(steps) if not RESTS[parameter](step)]:
        shared = [normals(number, parameter, theta.size) for number in (left, step + 1)]
        eps, left = np.mean(shared, axis=0), step + 1
        pull = tie * (theta - guide)
        slope = c["lr"] * (np.sin(theta) + c["weight_decay"] * theta)
        theta, guide = theta - slope - pull + scale * eps[0], guide + pull + scale * eps[1]
    return theta, guide


@every_case
def test_equals_the_equations(case):
    """An old number is given to the end: that of a parameter's own last move."""
    kind, options = CASES[case]
    params = parameters()
    starts = [p.detach().numpy().copy() for p in params]
    sampler = kind(params, **COMMON, **options)
    walk(sampler, params, 15)
    eta = options["eta"] if case == "emcmc" else None
    for i, (p, start) in enumerate(zip(params, starts, strict=True)):
        theta, guide = naive_chain(start, i, 15, eta)
        np.testing.assert_allclose(p.detach(), theta, rtol=1e-9, atol=1e-11)
        if eta is not None:
            np.testing.assert_allclose(sampler.state[p]["guide"], guide, rtol=1e-9, atol=1e-11)


@every_case
@pytest.mark.parametrize("groups", [1, 3])
def test_distribution_of_parameters_that_rest(case, groups):
    """Second moments of 20,000 coordinates each, T/h and T·A⁻¹ at every lr; at most three a test.

    Each parameter is in a group of its own, or all are in one. 240 steps are at least 102 moves,
    of which the slowest variance keeps e^{−2·102·0.11} = 1e-10 of the start.
    """
    kind, options = CASES[case]
    n, h, T, eta, lr, size = 10, 10.0, 0.4, 0.2, 0.4, 20_000
    sigma = np.array([[T / h]])
    if kind is EntropyMCMC:
        sigma = T * np.array([[1 / h, 1 / h], [1 / h, 1 / h + eta]])
        moments = theory.averaged_covariance(lr / n, h, eta, T)
        np.testing.assert_allclose(moments[:2], sigma[0])
    params = [nn.Parameter(torch.zeros(size)) for _ in RESTS]
    own = [params] if groups == 1 else [[p] for p in params]
    settings = {"lr": lr, "num_data": n, "temperature": T, "seed": 3, **options}
    sampler = kind([{"params": group} for group in own], **settings)
    walk(sampler, params, 240, drift=lambda theta: h / n * theta)
    theta = [p.detach().double().numpy().copy() for p in params]
    rows = [[one] for one in theta]
    if kind is EntropyMCMC:
        with sampler.guide():
            rows = [
                [*row, p.detach().double().numpy().copy()]
                for row, p in zip(rows, params, strict=True)
            ]
    for row in rows:
        assert np.abs(covariance_z(np.stack(row), sigma)).max() < BOUND


# What is kept.


def test_nothing_is_kept_while_all_move():
    for kind, options in CASES.values():
        params = parameters()
        sampler = kind(params, **COMMON, **options)
        entries = set(sampler.param_groups[0])
        walk(sampler, params, 3, rests=[RESTS[0]] * 3)
        assert set(sampler.param_groups[0]) == entries
        assert not any("rests" in state for state in sampler.state.values())


@pytest.mark.parametrize("integrator", ["euler", "baoab"])
def test_other_integrators_keep_nothing(integrator):
    params = parameters()
    sampler = EntropyMCMC(params, **COMMON, eta=0.2, integrator=integrator)
    walk(sampler, params, 5)
    assert "rests" not in sampler.param_groups[0]


def test_a_parameter_that_never_moves_leaves_the_others_as_they_are():
    chains = []
    for idle in (True, False):
        params = parameters()[:2]
        sampler = SGLD(params, **COMMON, integrator="lm")
        walk(sampler, params, 6, rests=[RESTS[0], lambda step, idle=idle: idle])
        chains.append(params[0].detach().clone())
    assert torch.equal(*chains)


def through_json(state):
    """As checkpoints of runs keep it: tensors, and JSON for the groups."""
    return {**state, "param_groups": json.loads(json.dumps(state["param_groups"]))}


@every_case
@pytest.mark.parametrize("saved_after", [3, 4, 5])
def test_resumes_bit_for_bit_in_a_rest(case, saved_after, tmp_path):
    kind, options = CASES[case]
    whole = parameters()
    reference = kind(whole, **COMMON, **options)
    walk(reference, whole, 12)
    params = parameters()
    first = kind(params, **COMMON, **options)
    walk(first, params, saved_after)
    assert "rests" in first.param_groups[0]
    state = first.state_dict()
    kept = copy.deepcopy(state)
    torch.save(state, tmp_path / "a.pt")
    loaded = torch.load(tmp_path / "a.pt", weights_only=True)
    others = []
    for saved in (loaded, through_json(kept)):
        fresh = [nn.Parameter(p.detach().clone()) for p in params]
        second = kind(fresh, **COMMON, **options)
        second.load_state_dict(saved)
        others.append((second, fresh))
    twin = copy.deepcopy((first, params))
    for sampler, own in (*others, (first, params), twin):
        walk(sampler, own, 12 - saved_after, start=saved_after)
        for p, q in zip(own, whole, strict=True):
            assert torch.equal(p, q)
    assert state["param_groups"] == kept["param_groups"]  # later steps left it alone


def test_a_state_of_an_earlier_version_is_loaded():
    params = parameters()
    sampler = SGLD(params, **COMMON, integrator="lm")
    walk(sampler, params, 4)
    state = sampler.state_dict()
    del state["param_groups"][0]["rests"]
    walk(sampler, params, 1, start=4)
    sampler.load_state_dict(state)
    assert not sampler.param_groups[0]["rests"]
    walk(sampler, params, 4, start=4)


def test_stacked_chains_rest_alike():
    """Chain k of a stack is the chain of an optimizer with its seed."""
    seeds, start = (SEED, 5), parameters()
    options = {**COMMON, "integrator": "lm", "eta": 0.2}
    rows = [nn.Parameter(torch.stack([p.detach()] * 2)) for p in start]
    stacked = stacked_optimizer(EntropyMCMC, seeds, lambda kind: kind(rows, **options))
    walk(stacked, rows, 9)
    for k, seed in enumerate(seeds):
        params = parameters()
        walk(EntropyMCMC(params, **{**options, "seed": seed}), params, 9)
        for p, row in zip(params, rows, strict=True):
            torch.testing.assert_close(row[k], p, rtol=1e-12, atol=1e-12)


@pytest.mark.soak
@pytest.mark.skipif(not compiled.available("cpu"), reason="no compiler on this machine")
@pytest.mark.parametrize("case", ["sgld", "emcmc"])
def test_compiled_steps_after_rests_equal_eager_ones(case):
    kind, options = CASES[case]
    chains = []
    for fused in (False, True):
        params = parameters(300, torch.float32)
        walk(kind(params, **COMMON, **options, fused=fused), params, 9)
        chains.append(params)
    for eager, fast in zip(*chains, strict=True):
        torch.testing.assert_close(fast, eager, rtol=1e-5, atol=1e-5)
