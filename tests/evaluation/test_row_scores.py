"""What rows add to a score averages to the score."""

import numpy as np
import pytest

from entropy_mcmc import metrics
from entropy_mcmc.evaluation.row_scores import classification_rows, regression_rows

RNG = np.random.default_rng(0)


def test_rows_of_a_classification_average_to_its_metrics():
    probs, targets = RNG.dirichlet(np.ones(5), 200), RNG.integers(0, 5, 200)
    rows = classification_rows(probs, targets)
    assert rows["nll"].mean() == pytest.approx(metrics.nll(probs, targets), rel=1e-12)
    assert rows["accuracy"].mean() == metrics.accuracy(probs, targets)


def test_a_target_of_probability_zero_costs_infinity():
    assert classification_rows([[1.0, 0.0]], [1])["nll"].tolist() == [np.inf]


def test_rows_of_a_regression_average_to_its_metrics():
    mean, targets = RNG.normal(size=200), RNG.normal(size=200)
    variance = RNG.uniform(0.2, 2.0, 200)
    rows, std = regression_rows(mean, variance, targets), np.sqrt(variance)
    nll = metrics.gaussian_nll(mean, variance, targets)
    assert rows["nll"].mean() == pytest.approx(nll, rel=1e-12)
    assert 0 < rows["coverage"].mean() == metrics.coverage(mean, std, targets) < 1
    assert np.sqrt(rows["squares"].mean()) == pytest.approx(metrics.rmse(mean, targets), rel=1e-12)
