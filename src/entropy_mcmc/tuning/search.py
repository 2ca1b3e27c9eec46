"""The search itself: a pure function of its options and of the results of its trials.

Whatever was killed is replayed: the same results give the same next trials. Trials of a group are
proposed together and rungs are synchronous, so that neither the number of workers nor the order in
which trials end can change anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.tuning.proposals import next_points, spread_points
from entropy_mcmc.tuning.rungs import Rung, generations
from entropy_mcmc.tuning.space import Axis, Point, widened

RECIPE = 0  # number of the trial that is the recipe


@dataclass(frozen=True)
class Job:
    """One trial to run for some epochs."""

    trial: int
    epochs: int
    point: Point


@dataclass(frozen=True)
class Result:
    """What a job gave.

    Attributes:
        nll: On the validation rows; infinite if the trial diverged.
        rows: NLL of each row; empty if it diverged.
        scores: Other scores by name.
        reason: Why it diverged, if it did.
    """

    nll: float
    rows: tuple[float, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class Trial:
    """Settings and what they gave, by epochs."""

    number: int
    point: Point
    results: dict[int, Result] = field(default_factory=dict)

    @property
    def longest(self) -> int:
        """Epochs of its longest run."""
        return max(self.results)

    @property
    def nll(self) -> float:
        """NLL of its longest run."""
        return self.results[self.longest].nll

    @property
    def rank(self) -> tuple[float, ...]:
        """Order in tables: those that ran longer first, then by NLL."""
        return (-self.longest, self.nll, self.number)


@dataclass(frozen=True)
class Outcome:
    """A finished search: its trials by number, its rungs, and the space as it was at the end."""

    trials: tuple[Trial, ...]
    rungs: tuple[Rung, ...]
    space: tuple[Axis, ...]

    @property
    def ranked(self) -> list[Trial]:
        """Trials, the best one first."""
        return sorted(self.trials, key=lambda trial: trial.rank)

    @property
    def best(self) -> Trial:
        """The trial with the lowest NLL at full length."""
        return self.ranked[0]

    @property
    def recipe(self) -> Trial:
        """The trial with the recipe's own values."""
        return self.trials[RECIPE]

    @property
    def on_edge(self) -> list[str]:
        """What the best trial has at an end of its range."""
        return [axis.name for axis in self.space if axis.on_edge(self.best.point[axis.name])]


Evaluate = Callable[[Sequence[Job]], Sequence[Result]]


def run_search(
    space: Sequence[Axis], rungs: Sequence[Rung], seed: int, evaluate: Evaluate
) -> Outcome:
    """Try, keep the best, try them longer.

    Args:
        space: What to choose; the first trial is at each axis's `start`.
        rungs: How many trials run for how long, the last at full length.
        seed: Of the proposals.
        evaluate: Runs jobs, in any order, and returns their results in the order of the jobs.
    """
    trials: list[Trial] = []
    for number, size in enumerate(generations(rungs[0].trials)):
        points, space = _proposed(space, trials, size, seed + number)
        born = [Trial(len(trials) + place, point) for place, point in enumerate(points)]
        trials += _run(born, rungs[0].epochs, evaluate)
    _refuse_hopeless(trials)
    for rung in rungs[1:]:
        survivors = {trial.number for trial in promoted(trials, rung.trials)}
        longer = _run([t for t in trials if t.number in survivors], rung.epochs, evaluate)
        trials = sorted(
            [*longer, *(t for t in trials if t.number not in survivors)], key=lambda t: t.number
        )
    _refuse_hopeless([t for t in trials if t.longest == rungs[-1].epochs])
    return Outcome(tuple(trials), tuple(rungs), tuple(space))


def _proposed(
    space: Sequence[Axis], trials: Sequence[Trial], size: int, seed: int
) -> tuple[list[dict[str, float]], Sequence[Axis]]:
    """Points of the next group, and the space in which they are."""
    if not trials:
        recipe = {axis.name: axis.start for axis in space}
        return [recipe, *spread_points(space, size - 1, seed)], space
    best = min(trials, key=lambda trial: trial.rank)
    space, probe = widened(space, best.point)
    beyond = [] if probe is None else [probe]
    done = [(trial.point, trial.nll) for trial in trials]
    return [*beyond, *next_points(space, size - len(beyond), seed, done)], space


def _run(trials: Sequence[Trial], epochs: int, evaluate: Evaluate) -> list[Trial]:
    """The trials with the results of runs of this length."""
    results = evaluate([Job(trial.number, epochs, trial.point) for trial in trials])
    return [
        Trial(trial.number, trial.point, {**trial.results, epochs: result})
        for trial, result in zip(trials, results, strict=True)
    ]


def promoted(trials: Iterable[Trial], count: int) -> list[Trial]:
    """The best trials, and always the recipe, so that what the search gained is known."""
    ranked = sorted(trials, key=lambda trial: trial.rank)
    kept = [t for t in ranked if t.number == RECIPE or math.isfinite(t.nll)][:count]
    recipe = next(trial for trial in ranked if trial.number == RECIPE)
    return kept if recipe in kept else [*kept[: count - 1], recipe]


def _refuse_hopeless(trials: Sequence[Trial]) -> None:
    if not any(math.isfinite(trial.nll) for trial in trials):
        first = trials[0]
        raise NonFiniteError(
            f"all {len(trials)} trials diverged; the first said: "
            f"{first.results[first.longest].reason}; check the data, or search smaller learning "
            "rates, such as ranges={lr: [1e-4, 1e-2]}"
        )
