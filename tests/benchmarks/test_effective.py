"""The measures and the page of benchmarks/ess.py, and one run of each of our samplers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from effective import measure, ours, targets


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend("")  # the script puts its folder on the path: undone after the test
    place = Path(__file__).parents[2] / "benchmarks" / "ess.py"
    spec = importlib.util.spec_from_file_location("ess_script", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def autoregressive(rho, chains=4, draws=20_000, seed=0):
    g = np.random.default_rng(seed)
    noise = g.normal(size=(draws, chains)) * np.sqrt(1 - rho**2)
    values = np.zeros((draws, chains))
    values[0] = g.normal(size=chains)
    for i in range(1, draws):
        values[i] = rho * values[i - 1] + noise[i]
    return values.T[:, :, None]


def test_ess_per_gradient_of_a_known_autocorrelation():
    """AR(1) with ρ = 0.8 has ESS n(1−ρ)/(1+ρ); the estimate of 80,000 draws is within 10 %."""
    made = measure.Run(autoregressive(0.8), gradients=40_000, seconds=2.0)
    result = measure.measured(made, [1.0])
    assert result.ess == pytest.approx(80_000 / 9, rel=0.1)
    assert result.per_gradient == pytest.approx(result.ess / 160_000)
    assert result.per_second == pytest.approx(result.ess / 2)
    assert result.accurate


def test_bias_is_found_in_the_group_that_has_it_and_short_runs_are_not_judged():
    draws = np.random.default_rng(1).normal(size=(4, 4000, 40))
    draws[:, :, :4] *= 1.1  # variance 21 % too large
    variances = np.concatenate([np.full(4, 0.99), np.full(36, 1.0)])
    result = measure.measured(measure.Run(draws, 4000, 1.0), variances)
    assert result.bias == pytest.approx(0.22, abs=0.03)
    assert not result.accurate
    short = measure.measured(measure.Run(draws[:, :40, 10:11], 40, 1.0), [1.0])
    assert short.bias_error > measure.UNSURE
    assert not short.accurate


@pytest.mark.parametrize("method", list(ours.METHODS))
def test_every_sampler_here_runs(method):
    target = targets.gaussian(10.0, dim=3)
    ratio = ours.METHODS[method][1][0]
    made = ours.run(target, method, ratio, 10.0, 10.0, 50, 2, 1)
    assert made.draws.shape[0] == 2
    assert made.draws.shape[2] == 3
    assert np.isfinite(made.draws).all()


def test_variances_of_two_modes_are_those_of_exact_draws():
    """Shares 2 : 1 by width; variances from a million draws, within 1 %."""
    g = np.random.default_rng(0)
    flat = g.random(10**6) < 2 / 3
    means = targets.CLOSE * np.array([[-2.0, -1.0], [2.0, 1.0]])
    noise = g.normal(size=(10**6, 2)) * np.where(flat, 1.0, 0.5**0.5)[:, None]
    exact = (means[flat.astype(int)] + noise).var(0)
    np.testing.assert_allclose(targets.two_modes().variances, exact, rtol=0.01)


def test_the_page_has_the_best_first_and_says_why_not(script):
    best = {"step": 0.1, "ess": 50.0, "per_gradient": 0.01, "per_second": 7.0, "bias": 0.01}
    best["bias_error"] = 0.02
    cells = {
        "g | slow": {"tried": [], "best": {**best, "per_gradient": 0.001}},
        "g | fast": {"tried": [], "best": best},
        "g | broken": {"tried": [{"step": 1, "error": "NonFiniteError: x"}], "best": None},
        "g | short": {"tried": [{"step": 1, "bias_error": 0.5}], "best": None},
    }
    stored = {"targets": {"g": {"title": "Gaussian", "condition": 10.0}}, "cells": cells}
    lines = script.render(stored).splitlines()
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert [row.split(" | ")[0][2:] for row in rows] == ["fast", "slow", "broken", "short"]
    assert "NonFiniteError" in rows[2]
    assert "too short to judge" in rows[3]
