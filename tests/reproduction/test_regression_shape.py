"""Noise that varies from row to row: found where it is there, not found where it is not."""

import math

import pytest
import torch
from scipy import stats

from entropy_mcmc_reproduction import regression_shape as shapes
from entropy_mcmc_reproduction.regression_noise import NoisePosterior, NoisePrior
from entropy_mcmc_reproduction.regression_shape import Shape

ROWS = 2000


def table(slope, seed=0, rows=ROWS):
    """One run, one network that predicts 0: errors with log s(x) = −2 + slope·x₁, Gaussian."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, rows, 3, generator=generator)
    noise = torch.randn(1, rows, generator=generator)
    y = noise * torch.exp(-1 + slope * x[..., 0] / 2)
    return torch.zeros(1, 1, rows), x, y


def test_a_slope_is_found():
    """Its standard error is √(2/rows) = 0.032 for Gaussian errors; 4.5 of them, and shrinkage."""
    means, x, y = table(0.8)
    shape = Shape.given("inputs", means, x, y)
    slopes = (shape.weights / shape.scale)[0]  # in units of the features
    assert shape.spreads.item() > 0
    assert slopes[2].item() == pytest.approx(0.8, abs=0.16)
    assert slopes[3:].abs().max() < 0.16
    relative = shape.relative(means, x)[0]
    assert float(torch.corrcoef(torch.stack([relative.log(), x[0, :, 0]]))[0, 1]) > 0.98


def test_where_there_is_none_predictions_hardly_change():
    """Twelve tables of 60 rows without a shape: what is found by chance costs next to nothing."""
    fresh, x_new, y_new = table(0.0, seed=999)
    lost = []
    for seed in range(12):
        means, x, y = table(0.0, seed=100 + seed, rows=60)
        shape = Shape.given("squares", means, x, y)
        inside, outside = shape.relative(means, x), shape.relative(fresh, x_new)
        plain = NoisePosterior.given(means, y, NoisePrior()).log_density(fresh, y_new)
        varied = NoisePosterior.given(means, y, NoisePrior(), inside)
        lost.append(plain.item() - varied.log_density(fresh, y_new, outside).item())
    assert sum(lost) / len(lost) < 0.01
    assert sorted(lost)[6] == 0  # most have none


def test_scores_with_a_shape_are_those_of_the_density(monkeypatch):
    """Known s and ρ: log-density, evidence and level against scipy's normal, row by row."""
    monkeypatch.setattr(
        "entropy_mcmc_reproduction.regression_noise.GRID", torch.tensor([0.5], dtype=torch.float64)
    )
    generator = torch.Generator().manual_seed(3)
    means = torch.randn(2, 1, 4, generator=generator, dtype=torch.float64)
    y = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    relative = torch.tensor([[0.5, 1.0, 2.0, 4.0]], dtype=torch.float64)
    widths = (0.5 * relative[0]).sqrt().numpy()
    each = [stats.norm(means[k, 0].numpy(), widths) for k in range(2)]
    density = sum(known.pdf(y[0].numpy()) for known in each) / 2
    level = sum(known.cdf(y[0].numpy()) for known in each) / 2
    noise = NoisePosterior.given(means, y, NoisePrior(), relative)
    wanted = sum(map(math.log, density)) / 4
    assert noise.evidence.item() == pytest.approx(wanted)
    assert noise.log_density(means, y, relative).item() == pytest.approx(wanted)
    assert noise.level(means, y, relative)[0].tolist() == pytest.approx(level.tolist())


def test_the_density_of_errors_is_scipys():
    squares = torch.tensor([0.0, 0.3, 4.0], dtype=torch.float64)
    found = shapes.log_density(squares, torch.tensor(math.log(0.7)), torch.tensor(math.log(5.0)))
    wanted = stats.t(5, scale=math.sqrt(0.7)).logpdf(squares.sqrt().numpy())
    assert found.tolist() == pytest.approx(wanted.tolist(), rel=1e-6)


def test_a_run_that_diverged_has_no_shape():
    means, x, y = table(0.8, rows=50)
    shape = Shape.given("inputs", means * math.nan, x, y)
    assert shape.weights.abs().max() == 0
    assert shape.relative(means * math.nan, x).unique().tolist() == [1.0]
    assert shape.of([0]).spreads.tolist() == [0.0]


def test_a_flat_shape_is_one_everywhere():
    means, x, y = table(0.8, rows=50)
    flat = Shape.flat("squares", means, x)
    assert flat.relative(means, x).unique().tolist() == [1.0]
    both = Shape.together([flat, Shape.given("squares", means, x, y)])
    twice = means.repeat(1, 2, 1), x.repeat(2, 1, 1)
    assert both.relative(*twice)[0].unique().tolist() == [1.0]
    assert len(both.relative(*twice)[1].unique()) > 1
