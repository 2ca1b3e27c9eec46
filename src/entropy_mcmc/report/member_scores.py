"""How good the predictions are: of single samples, of each variable, of all, of the baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from entropy_mcmc import metrics
from entropy_mcmc.evaluation.row_scores import classification_rows, regression_rows
from entropy_mcmc.evaluation.scores import regression_scores
from entropy_mcmc.report.page_predictions import Classified, Predicted, Regressed, unit
from entropy_mcmc.report.run_data import RunData
from entropy_mcmc.report.score_difference import (
    Difference,
    accuracy_difference,
    nll_difference,
    rmse_difference,
)

Floats = npt.NDArray[np.float64]
WHOLE, THETA, GUIDE = "whole posterior", "θ only", "θ_a only"
SINGLE, BASELINE = "one sample, on average", "baseline: one SGD network"


@dataclass(frozen=True)
class Member:
    """Something that predicts, its scores, and what each row adds to them, for paired differences.

    `rows` has "nll" and "accuracy", or "nll", "coverage" and "squares" for a regression.
    """

    name: str
    networks: int
    scores: dict[str, float]
    rows: dict[str, Floats]


def differences(ours: Member, other: Member) -> list[Difference]:
    """Differences in NLL, and in accuracy or RMSE, paired over the rows."""
    if len(ours.rows["nll"]) != len(other.rows["nll"]):
        return []
    judged = [nll_difference(ours.rows["nll"], other.rows["nll"])]
    if "squares" in ours.rows:
        return [*judged, rmse_difference(ours.rows["squares"], other.rows["squares"])]
    return [*judged, accuracy_difference(ours.rows["accuracy"], other.rows["accuracy"])]


def members(run: RunData) -> list[Member]:
    """Every member of a run that can be scored, the whole posterior first."""
    if run.predicted is None:
        return []
    score = _classify if isinstance(run.predicted, Classified) else _regress
    scored = [score(run.predicted, "both", WHOLE)]
    if "guide" in run.predicted.roles and "theta" in run.predicted.roles:
        scored += [score(run.predicted, "theta", THETA), score(run.predicted, "guide", GUIDE)]
    if len(run.predicted.roles) > 1:
        scored.append(_single(singles(run.predicted)))
    base = None if run.baseline is None else run.baseline.predicted
    if base is not None and type(base) is type(run.predicted):
        scored.append(score(base, "both", BASELINE))
    return scored


def whole(run: RunData) -> Member | None:
    """The whole posterior's scores."""
    if run.predicted is None:
        return None
    score = _classify if isinstance(run.predicted, Classified) else _regress
    return score(run.predicted, "both", WHOLE)


def singles(predicted: Predicted) -> list[Member]:
    """Each sample by itself, in the order of collection."""
    if isinstance(predicted, Classified):
        return [
            _classified(role, 1, unit(probs), predicted.targets)
            for role, probs in zip(predicted.roles, predicted.each, strict=True)
        ]
    return [
        _regressed(role, 1, mean, variance, predicted.targets)
        for role, mean, variance in zip(
            predicted.roles, predicted.means, predicted.variances, strict=True
        )
    ]


def _single(each: list[Member]) -> Member:
    shared = set.intersection(*(set(one.scores) for one in each))
    means = {
        name: float(np.mean([one.scores[name] for one in each]))
        for name in each[0].scores
        if name in shared
    }
    rows = {name: np.mean([one.rows[name] for one in each], axis=0) for name in each[0].rows}
    return Member(SINGLE, 1, means, rows)


def _classify(predicted: Predicted, role: str, name: str) -> Member:
    assert isinstance(predicted, Classified)
    count = sum(role in ("both", own) for own in predicted.roles)
    return _classified(name, count, predicted.average(role), predicted.targets)


def _classified(name: str, networks: int, probs: Floats, targets: npt.NDArray[np.int64]) -> Member:
    rows = classification_rows(probs, targets)
    return Member(name, networks, metrics.summary(probs, targets), rows)


def _regress(predicted: Predicted, role: str, name: str) -> Member:
    assert isinstance(predicted, Regressed)
    count = sum(role in ("both", own) for own in predicted.roles)
    return _regressed(name, count, *predicted.moments(role), predicted.targets)


def _regressed(name: str, networks: int, mean: Floats, variance: Floats, targets: Floats) -> Member:
    scores = regression_scores(mean, variance, targets)
    return Member(name, networks, scores, regression_rows(mean, variance, targets))


def roc(inside: Floats, outside: Floats) -> tuple[Floats, Floats]:
    """False alarms on known inputs against hits on OOD ones, for every threshold."""
    edges = np.unique(np.concatenate([inside, outside]))[::-1]
    known, other = np.sort(inside), np.sort(outside)
    alarms = 1 - np.searchsorted(known, edges, side="left") / len(known)
    hits = 1 - np.searchsorted(other, edges, side="left") / len(other)
    return np.concatenate([[0.0], alarms]), np.concatenate([[0.0], hits])


def coverages(mean: Floats, variance: Floats, targets: Floats) -> list[tuple[float, float]]:
    """Share of targets inside central intervals of 10 % … 99 %."""
    levels = [*(k / 10 for k in range(1, 10)), 0.95, 0.99]
    std = np.sqrt(variance)
    return [(level, metrics.coverage(mean, std, targets, level)) for level in levels]
