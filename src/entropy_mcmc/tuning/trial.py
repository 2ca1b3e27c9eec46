"""One trial: a run of the engine on the training rows, judged on the validation rows."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from entropy_mcmc import metrics
from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.evaluation import prediction_scores
from entropy_mcmc.evaluation.predictions import BOTH, Average
from entropy_mcmc.evaluation.row_scores import prediction_rows
from entropy_mcmc.evaluation.sets import TEST
from entropy_mcmc.posterior import RegressionPrediction
from entropy_mcmc.run.config import RunConfig
from entropy_mcmc.run.runner import Run, run
from entropy_mcmc.tuning.search import Result
from entropy_mcmc.tuning.trial_config import Given


def run_trial(config: RunConfig, given: Given, folder: Path) -> Result:
    """Run, or go on with, a trial in its folder; the folder stays until `clear`."""
    try:
        done = run(
            replace(config, run_dir=str(folder)),
            model=given.fresh_model(),
            data=given.data,
            loss=given.loss,
        )
        return judged(done)
    except NonFiniteError as error:
        return Result(math.inf, reason=str(error))


def judged(done: Run) -> Result:
    """Scores of a finished run on the rows that were held out."""
    average = done.predictions.whole(TEST).averages[BOTH]
    targets = done.predictions.targets(TEST)
    if not _is_finite(average):
        return Result(math.inf, reason="a prediction is not finite")
    nll, others = _scores(average, targets)
    if not math.isfinite(nll):
        return Result(math.inf, reason="a target has the probability 0")
    return Result(nll, tuple(prediction_rows(average, targets)["nll"].tolist()), others)


def _scores(average: Average, targets: Tensor) -> tuple[float, dict[str, float]]:
    """NLL and the one other score that is cheap: the rest would import scikit-learn."""
    if isinstance(average, Tensor) and average.ndim == 2:
        accuracy = metrics.accuracy(average, targets)
        return metrics.nll(average, targets), {"accuracy": accuracy}
    scores = prediction_scores(average, targets)
    return scores["nll"], {"rmse": scores["rmse"]}


def _is_finite(average: Average) -> bool:
    if isinstance(average, RegressionPrediction):
        return bool(average.mean.isfinite().all() and average.variance.isfinite().all())
    return bool(average.isfinite().all())


def clear(folder: Path) -> None:
    """Remove the folder of a trial whose result is kept: samples of large networks fill disks."""
    shutil.rmtree(folder, ignore_errors=True)
