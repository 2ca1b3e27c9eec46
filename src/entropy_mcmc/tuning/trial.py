"""One trial: a run of the engine on the training rows, judged on the validation rows."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from entropy_mcmc import metrics
from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.evaluation import prediction_scores
from entropy_mcmc.evaluation.predictions import BOTH, Average
from entropy_mcmc.evaluation.sets import TEST
from entropy_mcmc.posterior import RegressionPrediction
from entropy_mcmc.run.config import RunConfig
from entropy_mcmc.run.runner import Run, run
from entropy_mcmc.tuning.problem import Given
from entropy_mcmc.tuning.search import Result


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
    return Result(nll, tuple(row_nll(average, targets)), others)


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


def row_nll(average: Average, targets: Tensor) -> list[float]:
    """NLL of each row, whose mean is `metrics.nll` or `metrics.gaussian_nll`.

    >>> import torch
    >>> row_nll(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([0, 0]))
    [0.6931471805599453, 0.0]
    """
    wanted = np.asarray(targets)
    if isinstance(average, RegressionPrediction):
        mean, variance = (np.asarray(v, np.float64) for v in (average.mean, average.variance))
        rows = 0.5 * (np.log(2 * np.pi * variance) + (wanted - mean) ** 2 / variance)
    else:
        rows = -np.log(np.asarray(average, np.float64)[np.arange(len(wanted)), wanted]) + 0.0
    return [float(row) for row in rows]


def clear(folder: Path) -> None:
    """Remove the folder of a trial whose result is kept: samples of large networks fill disks."""
    shutil.rmtree(folder, ignore_errors=True)
