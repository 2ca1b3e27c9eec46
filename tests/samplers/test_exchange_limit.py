"""η at which replicas diverge from a guide that moves in every k-th round."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from entropy_mcmc import EntropyMCMC, schedules
from entropy_mcmc.diagnostics import Thermometer
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.exchange_limit import critical_coupling, growth, safe_coupling
from entropy_mcmc.units import least_eta, safe_eta, wide_enough

CASES = [(2, 2, 0.9), (2, 5, 0.9), (4, 5, 0.9), (4, 10, 0.9), (2, 10, 0.99), (8, 3, 0.5), (2, 4, 0)]


CURVED = [(2, 2, 0.9), (2, 10, 0.9), (4, 20, 0.9), (2, 50, 0.5), (2, 50, 0.99), (4, 5, 0.0)]


def largest_eigenvalue(c, y, k, mu, integrator, curvature=0.0):
    """Of y replicas, each on its own, and their guide, on an energy of curvature N/lr times this.


    Rows are the variables θ_1 … θ_y, θ_a, their velocities; columns what they were before.
    """
    z, v = np.eye(2 * (y + 1)).reshape(2, y + 1, -1).copy()
    waiting = np.zeros(2 * (y + 1))

    def move(i, slope):
        if integrator == "baoab":
            kicked = v[i] - 2 / (1 + mu) * slope
            v[i] = mu * kicked
            z[i] += (kicked + v[i]) / 2
        else:
            v[i] = mu * v[i] - slope
            z[i] += v[i]

    for _ in range(k):
        gaps = z[:y] - z[y]
        waiting += gaps.sum(0)
        for i, gap in enumerate(gaps):
            move(i, c * gap + curvature * z[i])
    move(y, -c * waiting)  # k times the lr, the mean pull of a round
    sizes = np.sort(np.abs(np.linalg.eigvals(np.concatenate([z, v]))))
    assert curvature or sizes[-1] >= 1 - 1e-9  # all shifted alike: nothing pulls them back
    return max(sizes[-1], 1.0)


@pytest.mark.parametrize("integrator", ["euler", "baoab"])
@pytest.mark.parametrize(("y", "k", "mu"), CASES)
def test_the_limit_is_where_an_eigenvalue_leaves_the_unit_circle(y, k, mu, integrator):
    c = critical_coupling(y, k, mu)
    assert largest_eigenvalue(0.999 * c, y, k, mu, integrator) < 1 + 1e-6
    assert largest_eigenvalue(1.001 * c, y, k, mu, integrator) > 1 + 1e-5


@pytest.mark.parametrize(("y", "mu"), itertools.product([1, 2, 4, 8], [0.0, 0.5, 0.99]))
def test_at_k_1_it_is_the_closed_form(y, mu):
    assert critical_coupling(y, 1, mu) == pytest.approx(2 * (1 + mu) / (y + 1), rel=1e-6)


@pytest.mark.parametrize(("y", "k"), itertools.product([2, 4, 8], [2, 5, 20, 1000]))
def test_without_momentum_it_is_the_closed_form(y, k):
    """θ_i−θ_a shrinks by (1−c)^k, then the guide takes y times what is gone."""
    expected = 1 - ((y - 1) / (y + 1)) ** (1 / k)
    assert critical_coupling(y, k, 0.0) == pytest.approx(expected, rel=1e-6)


def test_all_smaller_couplings_are_stable():
    for y, k, mu in CASES:
        c = critical_coupling(y, k, mu) * np.linspace(0.001, 0.999, 997)
        assert growth(c, y, k, mu).max() <= 1 + 1e-9


@pytest.mark.parametrize("integrator", ["euler", "baoab"])
@pytest.mark.parametrize(("y", "k", "mu"), CURVED)
def test_the_safe_coupling_is_where_the_first_curvature_diverges(y, k, mu, integrator):
    """To 10 %, of curvatures from 0.001 to 1 in units of N/lr, four times as many as it has."""
    c = safe_coupling(y, k, mu)
    assert c < critical_coupling(y, k, mu)

    def worst(coupling):
        curvatures = np.geomspace(1e-3, 1, 49)
        return max(largest_eigenvalue(coupling, y, k, mu, integrator, h) for h in curvatures)

    assert worst(0.9 * c) < 1 + 1e-6
    flat = largest_eigenvalue(1.1 * c, y, k, mu, integrator)
    assert max(worst(1.1 * c), flat) > 1 + 1e-5


def sampler_at(eta, y, k, mu, **options):
    param = nn.Parameter(torch.zeros(50, dtype=torch.float64))
    made = EntropyMCMC(
        [param], lr=0.1, num_data=100, eta=eta, momentum=mu, integrator="baoab",
        replicas=y, exchange_every=k, seed=1, **options,
    )  # fmt: skip
    return param, made


@pytest.mark.parametrize(("y", "k", "mu"), [(4, 5, 0.9), (2, 10, 0.99)])
def test_the_sampler_refuses_just_what_diverges(y, k, mu):
    """Beyond the limit the gap grows without bound; a little above it, it stays (T = 1)."""
    group = {"lr": 0.1, "num_data": 100, "momentum": mu, "replicas": y, "exchange_every": k}
    least = least_eta(group)
    with pytest.warns(UserWarning, match="on some curvatures of the energy"):  # this one is flat
        param, sampler = sampler_at(0.999 * least * 1.1, y, k, mu)
    for _ in range(1000 * k * y):
        param.grad = torch.zeros_like(param)
        sampler.step()
    gap = (sampler.state[param]["guide"] - sampler.replica_mean(param)).std()
    assert float(gap) < 10 * (least / y) ** 0.5
    with pytest.raises(ConfigError, match="a smaller exchange_every or fewer replicas"):
        sampler_at(0.999 * least, y, k, mu)


@pytest.mark.parametrize(("part", "diverges"), [(1.2, False), (0.25, True)])
def test_an_eta_that_diverges_where_the_energy_curves_is_warned_of(part, diverges):
    """The flat energy would allow an η a seventh of the safe one; here h = N/lr = 1000, T = 1."""
    group = {"lr": 0.1, "num_data": 100, "momentum": 0.9, "replicas": 2, "exchange_every": 10}
    eta = part * safe_eta(group)
    assert eta > 1.5 * least_eta(group)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        param, sampler = sampler_at(eta, 2, 10, 0.9)
    assert len(told) == diverges
    assert all(f"eta is not above {safe_eta(group):.4g}" in str(w.message) for w in told)
    for _ in range(30 * 10 * 2):  # 30 moves of the guide
        param.grad = 10 * param.detach()  # of the mean loss: h/N
        sampler.step()
    spread = float(param.detach().std())
    assert spread > 1e6 if diverges else spread < 10 * 1000**-0.5


def test_one_replica_has_no_exchange():
    """As documented: without effect, also on the limit, the message and the thermometer."""
    param = nn.Parameter(torch.zeros(3))
    plain = {"lr": 0.1, "num_data": 64, "eta": 0.1}
    sampler = EntropyMCMC([param], **plain, exchange_every=100)
    assert least_eta(sampler.param_groups[0]) == pytest.approx(0.1 / 64)
    Thermometer(sampler)
    with pytest.raises(ConfigError, match=r"lr/\(\(1\+momentum\)·num_data\) = 0.001563 for"):
        EntropyMCMC([param], **{**plain, "eta": 1e-3}, exchange_every=100)


@pytest.mark.parametrize("k", [1, 5, 10, 50, 100])
@pytest.mark.parametrize("mu", [0.0, 0.9, 0.99])
def test_an_automatic_eta_is_one_that_is_taken(k, mu):
    param = nn.Parameter(torch.zeros(3))
    options = {"lr": 0.1, "num_data": 64, "momentum": mu, "replicas": 2, "exchange_every": k}
    sampler = EntropyMCMC([param], **options, eta="auto", seed=0)
    schedules.Cyclical(sampler, 400, 2, 0.5, 1)
    for _ in range(4):
        param.grad = torch.ones(3)
        sampler.step()
    assert sampler.param_groups[0]["eta"] >= (4 if k > 1 else 1) * safe_eta(options)
    assert wide_enough(0.5, {**options, "exchange_every": 1}) == 0.5


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({}, "exact"),
        ({"momentum": 0.9}, "collapsed"),
        ({"integrator": "lm"}, "collapsed"),
        ({"integrator": "baoab"}, "collapsed"),
    ],
)
def test_the_remedy_is_one_that_exists(options, remedy):
    param, plain = nn.Parameter(torch.zeros(3)), {"lr": 0.1, "num_data": 64, "eta": 1e-4}
    with pytest.raises(ConfigError, match=f'or guide_update="{remedy}"'):
        EntropyMCMC([param], **plain, **options)
    EntropyMCMC([param], **plain, **options, guide_update=remedy)


def test_counts_are_whole_numbers_also_if_given_as_floats():
    param = nn.Parameter(torch.zeros(3))
    sampler = EntropyMCMC([param], lr=0.1, num_data=10, eta=0.1, replicas=2.0, exchange_every=1.0)
    assert "θ_1 … θ_2," in str(sampler.explain())
    with pytest.raises(ConfigError, match="replicas must be a whole number"):
        EntropyMCMC([param], lr=0.1, num_data=10, eta=0.1, replicas=2.5)
