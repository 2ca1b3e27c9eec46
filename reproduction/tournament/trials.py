"""The second league: 16 trials for every method, as a pure function of the store.

Each method draws 16 settings at a quarter of the budget; the best four by validation NLL run at the
full budget, and the best of those is the method's setting. All with one seed, never used again.

The reproduction's search, `STOPPING`, also lets every finalist stop at half of the full budget,
runs the two best with two more seeds, and looks beyond the end of a range where its pick lies near
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import qmc

from tournament.methods import Knobs, Method, answers, trajectories
from tournament.scores import measures
from tournament.settings import Settings
from tournament.store import Store
from tournament.tasks import Task

TRIALS, FINALISTS, SHARE = 16, 4, 0.25
SEED = 99  # no judged run has it, nor those below it that finalists have
BEYOND = (0.25, 0.5)  # how far beyond the end of a range is looked, as parts of its length
RANGES = {  # low and high, drawn evenly in logarithm
    "lr": (0.01, 0.3),
    "prior_variance": (0.01, 3.0),
    "temperature": (1e-3, 1.0),
    "horizon": (0.02, 1.0),
    "average": (0.01, 0.3),
    "weight_decay": (1e-4, 1.0),
    "rho": (0.005, 0.5),
    "scale": (0.05, 5.0),
}
LR_SCALE = {
    "adamw": 0.02,
    "bsam": 5.0,
    "ivon": 2.0,
    **dict.fromkeys(("sgld", "entropy-sgd", "entropy-sgld"), 10.0),
}  # of the range of lr; SGD's is 1


@dataclass(frozen=True)
class Search:
    """How settings are searched; the default is the league's.

    Attributes:
        trials: Settings that are tried at a quarter of the budget.
        finalists: Those of them that are tried at the full budget.
        lengths: Stopping points, as parts of the budget. Each finalist is run to all of them: which
            is better shows at the full budget only, where one may fit its data too well.
        budget: Of the task's, for searches on a small scale.
        final_seeds: Seeds of the two best finalists, whose mean NLL decides; 1 decides at once.
        widened: Whether a pick near the end of a range is tried beyond it.
    """

    trials: int = TRIALS
    finalists: int = FINALISTS
    lengths: tuple[float, ...] = (1.0,)
    budget: float = 1.0
    final_seeds: int = 1
    widened: bool = False


LEAGUE = Search()
STOPPING = Search(lengths=(1.0, 0.5), final_seeds=3, widened=True)


def candidates(method: Method, base: Knobs, search: Search = LEAGUE) -> list[dict[str, float]]:
    """The settings: the method's recipe first, the others by a Sobol sequence."""
    if not method.open:
        return [dict(base)]
    points = qmc.Sobol(len(method.open), seed=15).random(TRIALS)[: search.trials - 1]
    return [dict(base), *({**base, **placed(method, point)} for point in points)]


def stopped(knobs: dict[str, float], length: float) -> dict[str, float]:
    """The setting, to be stopped at a part of the budget."""
    return knobs if length == 1 else {**knobs, "length": length}


def placed(method: Method, point: np.ndarray) -> dict[str, float]:
    """Knobs at a point of the unit cube."""
    knobs = {}
    for name, place in zip(method.open, point, strict=True):
        low, high = RANGES[name]
        knobs[name] = float(f"{_scale(method, name) * low * (high / low) ** place:.4g}")
    return knobs


def _scale(method: Method, name: str) -> float:
    return LR_SCALE.get(method.optimizer, 1.0) if name == "lr" else 1.0


def place_of(method: Method, name: str, value: float) -> float:
    """Where a value lies in its range, in logarithms: 0 is its low end, 1 its high one."""
    low, high = RANGES[name]
    return math.log(value / (_scale(method, name) * low)) / math.log(high / low)


def near_end(method: Method, name: str, value: float) -> bool:
    """Whether a value lies in the first or last tenth of its range, or outside.

    >>> from tournament.methods import METHODS
    >>> [near_end(METHODS["SGD"], "lr", lr) for lr in (0.011, 0.05, 0.29)]
    [True, False, True]
    """
    return not 0.1 <= place_of(method, name, value) <= 0.9


def beyond(method: Method, knobs: Knobs) -> list[dict[str, float]]:
    """The setting with each number that lies near the end of its range moved beyond that end.

    >>> from tournament.methods import METHODS
    >>> [each["lr"] for each in beyond(METHODS["SGD"], {"lr": 0.29, "prior_variance": 0.1})]
    [0.7021, 1.643]
    """
    made = []
    for name in [n for n in method.open if n in knobs and near_end(method, n, knobs[n])]:
        low, high = RANGES[name]
        for part in BEYOND:
            outside = 1 + part if place_of(method, name, knobs[name]) > 0.5 else -part
            value = _scale(method, name) * low * (high / low) ** outside
            made.append({**knobs, name: float(f"{value:.4g}")})
    return made


def near_ends(method: Method, knobs: Knobs) -> list[bool]:
    """`near_end` of each chosen number of a method."""
    return [near_end(method, name, knobs[name]) for name in method.open if name in knobs]


def validation_nll(method: Method, runs: list[Settings], store: Store) -> float:
    """Validation NLL of a finished trial; infinite if it diverged."""
    answered = answers(method, runs, store)
    return float("inf") if answered is None else measures(answered)["validation-nll"]


def chosen(
    method: Method, task: Task, base: Knobs, store: Store, search: Search = LEAGUE
) -> tuple[dict[str, float] | None, list[Settings]]:
    """The method's setting, or None and the runs that are missing to know it."""
    tried = candidates(method, base, search)
    if len(tried) == 1:
        return tried[0], []

    def ranked(knobs: Ranked, share: float, seeds: int) -> Ranked:
        runs = _runs(method, task, knobs, share * search.budget, seeds)
        if missing := _missing(runs, store):
            raise _MissingError(missing)
        return _best(method, knobs, runs, store)

    try:
        finalists = ranked(tried, SHARE, 1)[: search.finalists]
        best = ranked(_at_lengths(finalists, search), 1.0, 1)
        if search.final_seeds > 1:
            best = ranked(best[:2], 1.0, search.final_seeds)
        if search.widened and (others := beyond(method, best[0])):
            best = ranked([best[0], *others], 1.0, search.final_seeds)
    except _MissingError as error:
        return None, error.runs
    return best[0], []


class _MissingError(Exception):
    """A stage cannot be judged yet."""

    def __init__(self, runs: list[Settings]) -> None:
        super().__init__(f"{len(runs)} runs are missing")
        self.runs = runs


def _at_lengths(knobs: Sequence[dict[str, float]], search: Search) -> list[dict[str, float]]:
    return [stopped(each, length) for each in knobs for length in search.lengths]


Ranked = list[dict[str, float]]
Runs = list[list[list[Settings]]]  # of each setting, of each seed, its chains


def _runs(method: Method, task: Task, knobs: Sequence[Knobs], share: float, seeds: int) -> Runs:
    return [
        [trajectories(method, task, SEED - i, each, share) for i in range(seeds)] for each in knobs
    ]


def _missing(runs: Runs, store: Store) -> list[Settings]:
    return store.missing(settings for each in runs for chains in each for settings in chains)


def _best(
    method: Method, knobs: Sequence[dict[str, float]], runs: Runs, store: Store
) -> list[dict[str, float]]:
    """Settings by their mean validation NLL, the lowest first."""
    values = [np.mean([validation_nll(method, chains, store) for chains in each]) for each in runs]
    return [knobs[i] for i in np.argsort(values, kind="stable")]
