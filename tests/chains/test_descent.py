"""Starts far from the posterior."""

import pytest
import torch

from entropy_mcmc import chains
from entropy_mcmc.chains import curvature, log_density, transforms
from entropy_mcmc.chains.descent import NEAR, descended

G = torch.Generator().manual_seed(0)
X = torch.randn(200, generator=G)
Y = torch.poisson((2 + X / 2).exp(), generator=G)
SHORT = {"draws": 250, "warm_up_steps": 300, "thin": 3, "seed": 0}


def counts(t, x, y):
    """A Poisson regression with a log link."""
    eta = t["a"] + t["b"] * x
    return y * eta - eta.exp()


def built(function, init, data=()):
    density, states = log_density.build(function, None, init, 4, {}, data)
    states = states + 0.1 * torch.randn(states.shape, generator=torch.Generator().manual_seed(3))
    return density, states, curvature.first_scale(density, states)


def quadrature():
    """Means and standard deviations of a and b, on a grid of ±8 standard deviations."""
    a = torch.linspace(1.8, 2.2, 161, dtype=torch.float64)
    b = torch.linspace(0.3, 0.7, 161, dtype=torch.float64)
    grid = torch.cartesian_prod(a, b)
    eta = grid[:, :1] + grid[:, 1:] * X.double()
    weight = (Y * eta - eta.exp()).sum(dim=1).softmax(dim=0)
    mean = weight @ grid
    return mean, (weight @ (grid - mean) ** 2).sqrt()


@pytest.mark.parametrize(("start", "batch_size"), [(0.0, None), (-3.0, None), (-3.0, 100)])
def test_a_log_link_may_start_far_away(start, batch_size):
    """From 0, with means of 7 to be found, the first window overshot to e^1000.

    Means to 0.3 sd and sd to 25 %: 5 standard errors of an ESS of 300. With mini-batches, whose
    chains move slowly, that the draws are near is all that is looked at.
    """
    draws = chains.sample(
        counts, {"a": start, "b": 0.0}, data=(X, Y), batch_size=batch_size, **SHORT
    )
    values = torch.stack([draws["a"], draws["b"]], dim=-1).flatten(0, 1).double()
    mean, sd = quadrature()
    away = ((values.mean(dim=0) - mean) / sd).abs().max()
    assert away < (0.3 if batch_size is None else 4)
    if batch_size is None:
        assert ((values.std(dim=0) / sd) - 1).abs().max() < 0.25


def test_a_scale_may_start_orders_of_magnitude_too_wide():
    """Location and scale of numbers of 1e-3 ± 5e-5, from 0 and 1: the way there is a ravine.

    With flat priors on m and s the mean of m is that of the data, to 0.3 sd, and s near theirs, to
    15 %: 5 standard errors of an ESS of 300, and 3.5 sd of s.
    """
    y = 1e-3 + 5e-5 * torch.randn(300, generator=torch.Generator().manual_seed(1))

    def normal(t, y):
        return -(((y - t["m"]) / t["s"]) ** 2) / 2 - t["s"].log()

    init, given = {"m": 0.0, "s": 1.0}, {"s": transforms.positive()}
    draws = chains.sample(normal, init, transforms=given, data=(y,), **SHORT)
    sd = float(y.std())
    assert abs(float(draws["m"].mean() - y.mean())) < 0.3 * sd / 300**0.5
    assert float(draws["s"].mean()) == pytest.approx(sd, rel=0.15)


def test_the_descent_ends_near_a_mode():
    density, states, scale = built(counts, {"a": -3.0, "b": 0.0}, (X, Y))
    before = density.count.rows
    nearer = descended(density, states, scale, None)
    slopes = density.slopes(scale)(nearer / scale)
    assert (slopes.square().sum(dim=1) <= NEAR * 2).all()
    taken = (density.count.rows - before) / density.num_data / len(states)
    assert taken < 20


@pytest.mark.parametrize(
    ("function", "init"),
    [
        (lambda t: -((t["a"] - 1e3) ** 2) / 2, {"a": 0.0}),  # a full step is right
        (lambda t: -((t["a"] * torch.tensor([1.0, 30.0])) ** 2).sum(), {"a": torch.zeros(2)}),
        (lambda t: -t["a"].abs(), {"a": 0.5}),
        (lambda t: -torch.log1p(t["a"] ** 2), {"a": 0.5}),
        (lambda t: t["a"] ** 2, {"a": 1.0}),  # without a bound: left for the warm-up to tell
    ],
)
def test_starts_that_the_warm_up_can_take_stay_bit_for_bit(function, init):
    density, states, scale = built(function, init)
    before = density.count.rows
    assert torch.equal(descended(density, states, scale, None), states)
    assert density.count.rows - before == len(states)  # one gradient of each
