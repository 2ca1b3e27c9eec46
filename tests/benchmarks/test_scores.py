"""Predictions and their measures against definitions."""

import numpy as np
import pytest
import torch
from scipy.stats import norm

from tournament import laplace, scores
from tournament.swag import Moments


def logits(seed, networks=3, rows=200, classes=4):
    return np.random.default_rng(seed).normal(size=(networks, rows, classes)).astype(np.float32)


def test_the_scale_undoes_overconfidence():
    draws = np.random.default_rng(0)
    true = scores.averaged(logits(1, networks=1, rows=20_000))
    labels = (true.cumsum(axis=1) > draws.uniform(size=(len(true), 1))).argmax(axis=1)
    overconfident = scores.scaled(true, 3.0)
    # sd of the fitted exponent is about 1/√(20000·variance of log p) < 0.01 of its value: 5 sd.
    assert scores.fitted_scale(overconfident, labels) == pytest.approx(1 / 3, rel=0.05)


def test_scaling_by_one_changes_nothing():
    probs = scores.averaged(logits(2))
    np.testing.assert_allclose(scores.scaled(probs, 1.0), probs, atol=1e-12)


def test_mixture_nll_is_its_definition():
    draws = np.random.default_rng(3)
    means, y = draws.normal(size=(4, 30)), draws.normal(size=30)
    expected = -np.log(norm.pdf(y, means, np.exp(0.3)).mean(axis=0)).mean()
    assert scores.mixture_nll(means, y, 0.6) == pytest.approx(expected)


def test_one_network_has_the_mean_square_as_noise():
    draws = np.random.default_rng(4)
    means, y = draws.normal(size=(1, 50)), draws.normal(size=50)
    expected = np.log(np.square(means[0] - y).mean())
    assert scores.fitted_noise(means, y) == pytest.approx(expected, abs=1e-4)


def test_measures_of_both_kinds():
    y = np.random.default_rng(5).integers(4, size=200)
    measured = scores.measures(
        scores.divided(logits(6, rows=500), (200, 200, 100), (y, np.roll(y, 1)))
    )
    assert {"nll", "ece", "auroc", "nll-scaled", "validation-nll"} <= set(measured)
    assert measured["networks"] == 3
    values = y.astype(np.float32)
    regression = scores.measures(
        scores.divided(logits(7, rows=400, classes=1), (200, 200), (values, values))
    )
    assert regression["nll"] == regression["nll-scaled"]


def test_moments_are_mean_and_variance():
    weights = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    moments = Moments()
    for row in weights:
        moments.add(row)
    torch.testing.assert_close(moments.mean, weights.mean(dim=0))
    torch.testing.assert_close(moments.variance, weights.var(dim=0, correction=0))


def test_swag_draws_have_its_covariance():
    moments = Moments()
    for row in torch.randn(6, 2, generator=torch.Generator().manual_seed(1)):
        moments.add(row)
    drawn = torch.stack(moments.draws(20_000, seed=2))
    low_rank = torch.stack(moments._deviations, dim=1) / np.sqrt(2 * 5)
    expected = torch.diag(moments.variance) / 2 + low_rank @ low_rank.T
    # Relative sd of a variance over 20,000 draws is 1 %; 5 sd is 1 in 10⁶.
    torch.testing.assert_close(drawn.T.cov(), expected, rtol=0.05, atol=0.05)


def test_laplace_is_the_inverse_of_the_kronecker_precision():
    generator = torch.Generator().manual_seed(3)
    phi, outputs = (
        torch.randn(40, width, generator=generator, dtype=torch.float64) for width in (3, 2)
    )
    inputs, curvature = laplace.factors(phi, outputs)
    root = laplace.spread(phi[:5], inputs, curvature, rows=40, variance=0.5)
    precision = 40 * torch.kron(curvature, inputs) + 2 * torch.eye(6).double()
    covariance = torch.linalg.inv(precision)
    for row, square in zip(phi[:5], root @ root.transpose(1, 2), strict=True):
        jacobian = torch.kron(torch.eye(2).double(), row[None])
        torch.testing.assert_close(square, jacobian @ covariance @ jacobian.T)


def test_curvature_is_the_hessian_of_the_cross_entropy():
    outputs = torch.randn(1, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    _, curvature = laplace.factors(torch.ones(1, 1, dtype=torch.float64), outputs)
    hessian = torch.autograd.functional.hessian(
        lambda z: torch.nn.functional.cross_entropy(z[None], torch.tensor([1])), outputs[0]
    )
    torch.testing.assert_close(curvature, hessian)
