"""What each row adds to a score, for differences that are paired over rows.

The mean over rows is the metric of the same name; of "squares", that of RMSE squared.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from entropy_mcmc._metric_inputs import Array, Floats
from entropy_mcmc.evaluation.predictions import Average
from entropy_mcmc.posterior import RegressionPrediction

Z = NormalDist().inv_cdf(0.975)  # of the interval that should hold 95 %


def prediction_rows(predicted: Average, targets: Array) -> dict[str, Floats]:
    """Rows of an average: of a classification (a tensor) or of a regression."""
    if isinstance(predicted, RegressionPrediction):
        return regression_rows(predicted.mean, predicted.variance, targets)
    return classification_rows(predicted, targets)


def classification_rows(probs: Array, targets: Array) -> dict[str, Floats]:
    """−log p(target), and 1 where the largest probability is the target's.

    >>> rows = classification_rows([[0.5, 0.5], [0.0, 1.0]], [1, 1])
    >>> rows["nll"].tolist(), rows["accuracy"].tolist()
    ([0.6931471805599453, 0.0], [0.0, 1.0])
    """
    values, labels = np.asarray(probs, np.float64), np.asarray(targets)
    with np.errstate(divide="ignore"):
        losses = -np.log(values[np.arange(len(labels)), labels]) + 0.0  # + 0.0: no -0.0
    return {"nll": losses, "accuracy": (values.argmax(1) == labels).astype(np.float64)}


def regression_rows(mean: Array, variance: Array, targets: Array) -> dict[str, Floats]:
    """−log density, 1 inside the central interval of 95 %, and the squared error.

    >>> {name: rows.tolist() for name, rows in regression_rows([0.0], [4.0], [3.0]).items()}
    {'nll': [2.737085713764618], 'coverage': [1.0], 'squares': [9.0]}
    """
    centre, spread, truth = (np.asarray(v, np.float64) for v in (mean, variance, targets))
    squares = (truth - centre) ** 2
    losses = 0.5 * (np.log(2 * np.pi * spread) + squares / spread)
    inside = np.abs(truth - centre) <= Z * np.sqrt(spread)
    return {"nll": losses, "coverage": inside.astype(np.float64), "squares": squares}
