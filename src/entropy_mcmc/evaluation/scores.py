"""Scores of predictions: the one place where metrics are put together."""

from __future__ import annotations

import numpy as np

from entropy_mcmc import metrics
from entropy_mcmc._metric_inputs import (
    Array,
    Floats,
    equal_width_bins,
    probabilities_and_labels,
)
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.evaluation.predictions import Average
from entropy_mcmc.posterior import RegressionPrediction


def prediction_scores(predicted: Average, targets: Array) -> dict[str, float]:
    """Scores of an average: of a classification (a tensor) or of a regression."""
    if isinstance(predicted, RegressionPrediction):
        return regression_scores(predicted.mean, predicted.variance, targets)
    if predicted.ndim == 1:
        raise ConfigError(
            "the network returns a mean only, so the noise is not known, and there is no "
            "predictive distribution to score; let it return mean and log-variance"
        )
    return metrics.summary(predicted, targets)


def regression_scores(mean: Array, variance: Array, targets: Array) -> dict[str, float]:
    """RMSE, NLL and coverage of Gaussian predictions.

    >>> regression_scores([0.0, 0.0], [1.0, 1.0], [1.0, -1.0])["rmse"]
    1.0
    """
    return {
        "rmse": metrics.rmse(mean, targets),
        "nll": metrics.gaussian_nll(mean, variance, targets),
        "coverage": metrics.coverage(mean, np.sqrt(np.asarray(variance)), targets),
    }


def detection_scores(inside: Array, outside: Array) -> dict[str, float]:
    """How well OOD rows are told from in-distribution ones by predictive entropy.

    Args:
        inside: Probabilities of in-distribution rows.
        outside: Probabilities of OOD rows, which are the positives.
    """
    pair = metrics.predictive_entropy(inside), metrics.predictive_entropy(outside)
    return {
        "auroc": metrics.auroc(*pair),
        "aupr": metrics.aupr(*pair),
        "fpr95": metrics.fpr95(*pair),
    }


def calibration_bins(probs: Array, targets: Array, bins: int | None = None) -> Floats:
    """Per bin of `metrics.ece`: mean confidence, accuracy, rows; empty bins are left out."""
    checked, labels = probabilities_and_labels(probs, targets)
    confidence, correct = checked.max(axis=1), checked.argmax(axis=1) == labels
    index = equal_width_bins(confidence, bins)
    rows = [
        (confidence[index == k].mean(), correct[index == k].mean(), float((index == k).sum()))
        for k in np.unique(index)
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 3)
