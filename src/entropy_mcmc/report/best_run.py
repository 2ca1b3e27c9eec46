"""Which run of a comparison has the best score, where the test rows decide it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np

from entropy_mcmc import metrics
from entropy_mcmc.report.labels import METRICS
from entropy_mcmc.report.member_scores import Member
from entropy_mcmc.report.page_predictions import Classified, Predicted
from entropy_mcmc.report.score_difference import (
    ACCURACY_MARGIN,
    AUROC_MARGIN,
    ECE_MARGIN,
    NLL_MARGIN,
    RMSE_MARGIN,
    Floats,
    paired,
)

LEVEL = 0.05  # of a wrong mark in one column, Bonferroni over the runs
RESAMPLES = 200
SEED = 0
MARGINS = {
    "accuracy": ACCURACY_MARGIN,
    "nll": NLL_MARGIN,
    "rmse": RMSE_MARGIN,
    "ece": ECE_MARGIN,
    "auroc": AUROC_MARGIN,
}
ROWS = {"accuracy": "accuracy", "nll": "nll", "rmse": "squares"}


def decided_best(
    name: str, values: Sequence[float | None], error: Callable[[int, int], float]
) -> int | None:
    """The place of the best value if it is clear of every other one, and not alike, else None.

    Args:
        name: The metric.
        values: Of each run; None where there is none.
        error: (place, place) → standard error of the difference of two values.
    """
    known = [i for i, value in enumerate(values) if value is not None]
    better = METRICS[name][1]
    if len(known) < 2 or better not in ("higher", "lower"):
        return None
    sign = 1 if better == "higher" else -1
    best = max(known, key=lambda i: sign * (values[i] or 0.0))
    z = NormalDist().inv_cdf(1 - LEVEL / 2 / (len(known) - 1))
    for other in known:
        away = sign * ((values[best] or 0.0) - (values[other] or 0.0))
        if other == best:
            continue
        reach = z * error(best, other)
        # NaN, for what has no error, decides nothing.
        if not away > reach or away + reach <= _margin(name, values[other] or 0.0):
            return None
    return best


def _margin(name: str, value: float) -> float:
    """Differences within it count as alike; that of RMSE is a share of the value."""
    return MARGINS[name] * (value if name == "rmse" else 1.0)


def row_error(members: Sequence[Member | None], name: str) -> Callable[[int, int], float]:
    """Error of the difference of two runs' scores, paired over the test rows."""

    def error(i: int, j: int) -> float:
        first, second = members[i], members[j]
        if first is None or second is None:
            return float("nan")
        a, b = first.rows[ROWS[name]], second.rows[ROWS[name]]
        if len(a) != len(b):
            return float("nan")
        spread = paired(a, b)[1]
        scale = np.sqrt(a.mean()) + np.sqrt(b.mean()) if name == "rmse" else 1.0
        return float(spread / scale) if scale else float("nan")

    return error


def resampled_error(draws: Sequence[Floats | None]) -> Callable[[int, int], float]:
    """The same from each run's score on resampled rows (the same rows for all runs)."""

    def error(i: int, j: int) -> float:
        first, second = draws[i], draws[j]
        return float("nan") if first is None or second is None else float(np.std(first - second))

    return error


def ece_draws(predicted: Predicted | None) -> Floats | None:
    """ECE on bootstrap samples of the test rows."""
    if not isinstance(predicted, Classified):
        return None
    probs, targets = predicted.average(), predicted.targets
    rng = np.random.default_rng(SEED)
    rows = (rng.integers(len(targets), size=len(targets)) for _ in range(RESAMPLES))
    return np.array([metrics.ece(probs[own], targets[own]) for own in rows])


def auroc_draws(predicted: Predicted | None) -> Floats | None:
    """Mean AUROC over the OOD sets, on bootstrap samples of the known and of the OOD rows."""
    if not isinstance(predicted, Classified) or not predicted.ood:
        return None
    known = metrics.predictive_entropy(predicted.average())
    others = [metrics.predictive_entropy(probs) for probs in predicted.ood.values()]
    rng = np.random.default_rng(SEED)
    return np.array([_mean_auroc(rng, known, others) for _ in range(RESAMPLES)])


def _mean_auroc(rng: np.random.Generator, known: Floats, others: Sequence[Floats]) -> float:
    inside = known[rng.integers(len(known), size=len(known))]
    outside = [other[rng.integers(len(other), size=len(other))] for other in others]
    return float(np.mean([metrics.auroc(inside, other) for other in outside]))
