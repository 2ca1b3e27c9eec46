"""Heat is read along the directions that the learning coefficient counts, however few they are."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from entropy_mcmc import flatness
from entropy_mcmc.flatness.curvatures import (
    Curvatures,
    by_differences,
    by_hessian,
    counted_directions,
    curvatures,
)
from entropy_mcmc.flatness.learning_coefficient import estimate
from entropy_mcmc.flatness.model_and_batches import vector
from learning_references import half_square

STIFF, FLAT, ROWS = 10, 2990, 500
SAMPLING = flatness.LocalSampling(steps=600, burn_in=200, chains=4, batch_size=None, stacked=True)


class Regression:
    """Ten weights of curvature about 1 at their least squares, among thousands on which nothing
    depends; the residuals make mini-batches noisy."""

    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        x = torch.zeros(ROWS, STIFF + FLAT)
        x[:, :STIFF] = torch.randn(ROWS, STIFF, generator=draw)
        y = 3 * torch.randn(ROWS, 1, generator=draw)
        self.data = x, y
        self.model = nn.Linear(STIFF + FLAT, 1, bias=False)
        nn.init.zeros_(self.model.weight)
        solution = torch.linalg.lstsq(x[:, :STIFF], y).solution
        self.model.weight.data[:, :STIFF] = solution.mT
        self.curvature = torch.linalg.eigvalsh(x[:, :STIFF].T @ x[:, :STIFF] / ROWS)

    def of(self, **changes):
        return estimate(self.model, half_square, self.data, replace(SAMPLING, **changes))

    def exact(self, gamma=100.0):
        a = ROWS / math.log(ROWS) * self.curvature
        return float((a / (a + gamma)).sum() / 2)


@pytest.fixture(scope="module")
def regression():
    return Regression()


@pytest.mark.parametrize("lr", ["auto", 0.04])
@pytest.mark.parametrize("rows", [8, 64, None])
def test_a_few_hot_directions_among_thousands_are_seen(regression, rows, lr):
    """T/T is near 3.2, 1.25 and 1.04; the mean over all weights is 1.03 in each."""
    got = regression.of(batch_size=rows, lr=lr)
    heat = got.counted_temperature / got.temperature
    # Seed 0, false alarm 6e-5: the value is too large by what is measured.
    assert abs(got.value - heat * regression.exact()) < 4 * got.standard_error
    assert abs(got.measured_temperature / got.temperature - 1) < 0.1
    assert got.trustworthy == (rows is None)
    if rows is None:
        return
    (text,) = got.warnings
    assert "too hot along the directions that the value counts" in text
    assert f"{got.counted_temperature:.3g} measured for T=6.21, at most 6.84" in text
    assert f"use a batch_size above {rows}, or lower lr=" in text


def test_the_advice_of_a_smaller_step_helps(regression):
    """At the lr that the warning names the heat is at its limit, a tenth."""
    hot = regression.of(batch_size=64)
    lr = float(re.search(r"to about (\S+)$", hot.warnings[0])[1])
    calm = regression.of(batch_size=64, lr=lr, steps=800, burn_in=300)
    heat = calm.counted_temperature / calm.temperature - 1
    assert heat == pytest.approx(0.1, rel=0.2)
    assert not any("too hot" in text for text in calm.warnings)


def test_full_batches_are_not_told_to_be_larger(regression):
    (text,) = regression.of(lr=0.4).warnings
    assert "too hot" in text
    assert "batch_size" not in text


def test_chains_one_after_another_read_the_same(regression):
    options = {"steps": 60, "burn_in": 30, "chains": 2, "batch_size": 64}
    alone, stacked = (regression.of(**options, stacked=stacked) for stacked in (False, True))
    assert alone.counted_temperature == pytest.approx(stacked.counted_temperature, rel=1e-5)


def small_network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    x = torch.randn(30, 2, dtype=torch.float64)
    return model, (x, torch.randn(30, 1, dtype=torch.float64))


def test_directions_are_eigenvectors_once_all_are_found():
    model, data = small_network()
    scale = [torch.tensor(2.0)] * 4
    product = by_hessian(model, half_square, data, scale)
    found = curvatures(product, vector(model), seed=0)
    assert len(found.values) == 13
    torch.testing.assert_close(found.vectors @ found.vectors.mT, torch.eye(13).double())
    for value, v in zip(found.values, found.vectors, strict=True):
        torch.testing.assert_close(product(v), float(value) * v, atol=1e-9, rtol=0)


def test_differences_of_gradients_are_products_of_the_hessian(unchanged):
    """The rest is of second order in the length: about 1e-6 here."""
    model, data = small_network()
    unchanged(model)
    scale, v = [torch.tensor(0.5)] * 4, torch.randn(13, dtype=torch.float64)
    expected = by_hessian(model, half_square, data, scale)(v)
    got = by_differences(model, half_square, data, scale, 1e-3)(v)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


def test_an_infinite_loss_nearby_ends_the_search(unchanged):
    model, data = small_network()
    unchanged(model)
    start = vector(model)

    def walled(output, target):
        value = half_square(output, target)
        moved = torch.cat([p.reshape(-1) for p in model.parameters()]) - start
        return value + torch.where(moved.abs().sum() > 0, math.inf, 0.0) * value

    product = by_differences(model, walled, data, [torch.ones(())] * 4, 0.1)
    assert not product(torch.ones(13, dtype=torch.float64)).any()
    found = curvatures(product, start, seed=0)
    assert found.values.tolist() == [0.0]
    assert counted_directions(found, 1.0, 1.0).shape == (1, 13)


def test_shares_are_those_of_the_value():
    """a/(a + γ) times how many; one that hardly is in the random vector still counts as one."""
    found = Curvatures(np.array([-1.0, 0.0, 1.0, 30.0]), np.array([2.0, 5, 6, 0.1]), torch.eye(4))
    rows = counted_directions(found, weight=10.0, localisation=100.0)
    parts = np.array([6 * 10 / 110, 300 / 400])
    expected = torch.zeros(2, 4)
    expected[:, 2:] = torch.from_numpy(np.sqrt(parts / parts.sum())).diag()
    torch.testing.assert_close(rows, expected)
