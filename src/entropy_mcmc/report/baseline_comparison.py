"""Calibration and OOD detection beside the baseline's, with errors from resampled test rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from entropy_mcmc import metrics
from entropy_mcmc.report.best_run import auroc_draws, ece_draws
from entropy_mcmc.report.page_predictions import Classified, Predicted
from entropy_mcmc.report.run_data import RunData
from entropy_mcmc.report.score_difference import AUROC_MARGIN, ECE_MARGIN, Difference, Floats


def decided_losses(run: RunData) -> list[Difference]:
    """Differences in ECE and OOD AUROC by which the run is clearly behind its baseline."""
    base = None if run.baseline is None else run.baseline.predicted
    if not isinstance(base, Classified) or not isinstance(run.predicted, Classified):
        return []
    if len(base.targets) != len(run.predicted.targets):
        return []
    pairs = [_difference("ECE", _ece, ece_draws, run.predicted, base, ECE_MARGIN)]
    if run.predicted.ood and set(run.predicted.ood) == set(base.ood):
        area = _difference("OOD AUROC", _auroc, auroc_draws, run.predicted, base, AUROC_MARGIN)
        pairs.append(area)
    return [one for one in pairs if one is not None and one.kind == "worse"]


def _difference(
    measure: str,
    score: Callable[[Classified], float],
    draws: Callable[[Predicted | None], Floats | None],
    ours: Classified,
    theirs: Classified,
    margin: float,
) -> Difference | None:
    """The difference, None where it is no loss: resampling takes a while."""
    value = score(ours) - score(theirs)
    lower = measure == "ECE"
    if not (value > 0 if lower else value < 0):
        return None
    first, second = draws(ours), draws(theirs)
    if first is None or second is None:
        return None
    return Difference(measure, value, float(np.std(first - second)), margin, lower_is_better=lower)


def _ece(predicted: Classified) -> float:
    return float(metrics.ece(predicted.average(), predicted.targets))


def _auroc(predicted: Classified) -> float:
    known = metrics.predictive_entropy(predicted.average())
    outside = (metrics.predictive_entropy(probs) for probs in predicted.ood.values())
    return float(np.mean([metrics.auroc(known, other) for other in outside]))
