"""The posterior of the noise against closed forms and naive sums."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from entropy_mcmc_reproduction import regression_choice
from entropy_mcmc_reproduction.regression_data import Splits
from entropy_mcmc_reproduction.regression_noise import GRID, NoisePosterior, NoisePrior

DRAWS = torch.Generator().manual_seed(0)
HELD = 0.1 * torch.randn(3, 2, 30, generator=DRAWS, dtype=torch.float64)  # networks, runs, rows
HELD_TARGETS = 0.1 * torch.randn(2, 30, generator=DRAWS, dtype=torch.float64)
ASKED = 0.1 * torch.randn(3, 2, 5, generator=DRAWS, dtype=torch.float64)
ASKED_TARGETS = torch.tensor([[0.0, 0.1, -0.3, 0.6, 2.0], [0.0, 0.2, 0.3, -0.1, -1.0]]).double()
TAILS = (3.0, 8.0, math.inf)


def naive(run, prior):
    """Weights, evidence, predictive density and probability below the targets, point by point."""
    points = [(s, tail) for s in GRID.tolist() for tail in prior.tails]
    joint, predicted, below = [], [], []
    held, asked = (each[:, run].numpy() for each in (HELD, ASKED))
    held_y, asked_y = (each[run].numpy() for each in (HELD_TARGETS, ASKED_TARGETS))
    for s, tail in points:
        kind = stats.norm if math.isinf(tail) else stats.t(tail)
        rows = np.mean([kind.pdf((held_y - m) / s**0.5) / s**0.5 for m in held], axis=0)
        weight = s ** (-prior.rows / 2) * math.exp(-prior.rows * prior.variance / 2 / s)
        joint.append((weight, weight * np.prod(rows)))
        scores = [(asked_y - m) / s**0.5 for m in asked]
        predicted.append(np.mean([kind.pdf(z) / s**0.5 for z in scores], axis=0))
        below.append(np.mean([kind.cdf(z) for z in scores], axis=0))
    priors, joint = np.array(joint).T
    weights = joint / joint.sum()
    evidence = joint.sum() / priors.sum()
    return weights, evidence, weights @ np.array(predicted), weights @ np.array(below)


@pytest.mark.parametrize(
    "prior", [NoisePrior(), NoisePrior(rows=4, variance=0.1), NoisePrior(TAILS, 1.0, 0.01)]
)
def test_grid_is_the_naive_sum(prior):
    found = NoisePosterior.given(HELD, HELD_TARGETS, prior)
    for run in range(2):
        weights, evidence, predicted, below = naive(run, prior)
        np.testing.assert_allclose(found.log_weights[run].exp().numpy(), weights, atol=1e-10)
        assert float(found.evidence[run]) == pytest.approx(math.log(evidence) / 30)
        logs = found.log_density(ASKED, ASKED_TARGETS)
        assert float(logs[run]) == pytest.approx(np.log(predicted).mean(), rel=1e-6)
        levels = found.level(ASKED, ASKED_TARGETS)
        np.testing.assert_allclose(levels[run].numpy(), below, atol=1e-6)


@pytest.mark.parametrize(("rows", "variance"), [(0.0, 1.0), (4.0, 0.05)])
def test_one_network_predicts_the_textbooks_student_t(rows, variance):
    """Conjugacy: k + n degrees of freedom, scale² (k·s₀ + Σe²)/(k + n)."""
    prior = NoisePrior(rows=rows, variance=variance)
    found = NoisePosterior.given(HELD[:1], HELD_TARGETS, prior)
    squares = (HELD_TARGETS - HELD[0]).square().sum(1)
    count = rows + HELD.shape[2]
    scales = ((rows * variance + squares) / count).sqrt().tolist()
    for run, scale in enumerate(scales):
        errors = (ASKED_TARGETS[run] - ASKED[0, run]).numpy()
        wanted = stats.t.logpdf(errors, count, scale=scale).mean()
        got = float(found.log_density(ASKED[:1], ASKED_TARGETS)[run])
        assert got == pytest.approx(wanted, abs=2e-3)  # the grid's steps and its end
        below = stats.t.cdf(errors, count, scale=scale)
        got = found.level(ASKED[:1], ASKED_TARGETS)[run].numpy()
        np.testing.assert_allclose(got, below, atol=1e-3)


def test_few_rows_are_not_taken_for_certainty():
    """An outlier after 10 rows of small errors: the plug-in is ruined, the average is not."""
    held = torch.full((1, 1, 10), 0.01)
    found = NoisePosterior.given(held, torch.zeros(1, 10), NoisePrior())
    outlier = found.log_density(torch.zeros(1, 1, 1), torch.ones(1, 1))
    assert float(outlier) > -60
    assert stats.norm.logpdf(1.0, scale=0.01) < -4000


def test_a_run_that_diverged_has_no_evidence():
    means = HELD.clone()
    means[:, 1] = math.nan
    found = NoisePosterior.given(means, HELD_TARGETS, NoisePrior())
    assert torch.isfinite(found.evidence[0])
    assert float(found.evidence[1]) == -math.inf
    assert torch.isfinite(found.typical()).all()
    assert found.of([1]).log_weights.shape == (1, len(GRID))


def test_the_choice_never_sees_the_test_rows(monkeypatch):
    """With the test rows destroyed it is the same, and rows are held out twice."""
    whole = regression_choice.compared("diabetes", "ensemble", None, "smoke")
    assert set(whole) == {*regression_choice.CANDIDATES, *regression_choice.SHAPES}
    of, seen = Splits.of, []

    def blind(values, test):
        splits = of(values, test)
        splits.judged_targets.fill_(1e3)
        splits.judged_inputs.fill_(1e3)
        seen.append(splits)
        return splits

    monkeypatch.setattr(regression_choice.Splits, "of", blind)
    assert regression_choice.compared("diabetes", "ensemble", None, "smoke") == whole
    outer = seen[0].validation(0.2)
    inner = outer.validation(0.2)
    rows = [inner.inputs[0], inner.judged_inputs[0], outer.judged_inputs[0]]
    assert len(torch.unique(torch.cat(rows), dim=0)) == sum(map(len, rows)) == seen[0].rows


def test_the_plug_in_has_all_weight_at_its_best():
    found = regression_choice.fitted(HELD, HELD_TARGETS, None)
    assert found.log_weights.exp().sum(1).tolist() == [1.0, 1.0]
    free = NoisePosterior.given(HELD, HELD_TARGETS, NoisePrior())
    assert found.log_weights.argmax(1).tolist() == free.log_weights.argmax(1).tolist()
