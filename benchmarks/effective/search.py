"""The step size at which a sampler is shown: the same search, with the same budget, for all.

1. The first step size is the best one on the quadratic energy near a draw, in closed form
   (`linear.py`), for every rule that has one; NUTS and MCLMC start from their own adaptation, and
   PSGLD from αh = 0.5.
2. On a Gaussian that is the end: the table has the closed form, and one run of a quarter of
   the length checks its variances.
3. Elsewhere up to four pilots of a quarter of the length go up from a step size that is plausible
   (its bias is not shown to be above 5 %, by two standard errors) and down from one that is not,
   until the two are within a factor of 1.3. The plausible pilot with most effective samples says
   the step size. A run of full length with another seed gives the numbers. They are shown if its
   estimated bias is 5 % or less, with a standard error of 2.5 % or less. If the bias is larger, the
   next run has a step size smaller by 1.3; if the error is too large to tell, it is four times as
   long, and so are those after it. Eight such runs at most.

What an earlier search has run is taken from it as long as it made the same choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from math import isclose
from typing import Any

import numpy as np

from effective import linear, measure, others, ours
from effective.linear import Prediction, Quadratic
from effective.measure import Measured, Place
from effective.targets import Target

PROTOCOL = 3  # of the stored cells; those of another one are measured anew,
REPLAYED = 2  # but of this one, whose finals allowed two standard errors more, runs are taken over
PILOTS, FINALS = 4, 8
LONGER = 4  # times the length, where a run of full length was too short
UP = 1.6
CLOSE = 1.3
ADAPTS = ("blackjax NUTS", "blackjax MCLMC")
METHODS = {**{name: ours for name in ours.METHODS}, **{name: others for name in others.METHODS}}
Row = dict[str, Any]


def closed_form(method: str, quadratic: Quadratic, place: Place) -> tuple[float, Prediction] | None:
    """Best step size on a quadratic energy and what it gives; None without a closed form."""
    form = METHODS[method].linear_of
    if form(method, 1.0, place) is None:
        return None
    return linear.best_step(lambda ratio: form(method, ratio, place), quadratic)


def first_step(method: str, quadratic: Quadratic, place: Place) -> float:
    """The step size that is tried first."""
    known = closed_form(method, quadratic, place)
    if known is None:
        return 1.0 if method in ADAPTS else 0.5
    return known[0]


def checked_cell(
    target: Target, known: Row, method: str, place: Place, quadratic: Quadratic
) -> Row | None:
    """The closed form on a Gaussian, and how far a run is from it; None if there is none."""
    best = closed_form(method, quadratic, place)
    if best is None:
        return None
    step, said = best
    made = METHODS[method].run(target, method, step, replace(place, steps=place.steps // 4))
    row = {
        "step": step,
        "per_gradient": said.per_gradient,
        "bias": said.bias,
        "deviation": deviation(made.draws, said.variances),
        "gradients": made.gradients * len(place.starts),
    }
    return {"tried": [row], "best": row, "closed_form": True}


def deviation(draws: Any, variances: Any) -> float:
    """Largest distance of a coordinate's mean square from its variance, in standard errors.

    The mean is zero. Errors are those of independent chains, which no autocorrelation enters, and
    relative to the mean square: the few squares of a slow coordinate are skewed, and where they
    happen to be small their own scatter is, too.
    """
    each = (np.asarray(draws, dtype=np.float64) ** 2).mean(1) / variances
    mean = each.mean(0)
    relative = each.std(0, ddof=1) / mean / np.sqrt(len(each))
    return float(np.abs((mean - 1) / relative).max())


def searched_cell(
    target: Target,
    known: Row,
    method: str,
    place: Place,
    quadratic: Quadratic,
    earlier: Sequence[Row] = (),
) -> Row:
    """Pilots and runs of full length; `best` is the last of these if it is accurate.

    `earlier` are rows of an earlier search, in their order.
    """
    replay = Replay(earlier)

    def row(step: float, length: int, seed: int, full: int = place.steps) -> Row:
        spot = replace(place, steps=length, full=full, seed=seed)
        return replay(
            step,
            length,
            lambda: measure.measured(
                METHODS[method].run(target, method, step, spot), known["variances"], known["order"]
            ),
        )

    def final(step: float, times: int, attempt: int) -> Row:
        length = times * place.steps
        return row(step, length, place.seed + 100 + attempt, full=length)

    fixed = method == "blackjax NUTS"
    first = first_step(method, quadratic, place)
    if fixed:
        pilots, step = [], first
    else:
        pilots = pilot_rows(lambda step, seed: row(step, place.steps // 4, seed), first, place.seed)
        step = chosen_step(pilots)
    finals = final_rows(final, step, fixed)
    return {"tried": [*pilots, *finals], "best": finals[-1] if is_accurate(finals[-1]) else None}


class Replay:
    """Rows of an earlier search while it made the same choices; new ones from there on."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = list(rows)

    def __call__(self, step: float, length: int, measured: Callable[[], Measured]) -> Row:
        """The stored row of this step size and length, or a new one."""
        row = self._rows.pop(0) if self._rows else None
        if row and isclose(row["step"], step, rel_tol=1e-6) and row.get("steps", length) == length:
            return row
        self._rows.clear()
        return measured_row(step, length, measured)


def measured_row(step: float, length: int, measured: Callable[[], Measured]) -> Row:
    """A step size with its result, or with the error that it gave."""
    try:
        return {"step": step, "steps": length, **asdict(measured())}
    except Exception as error:  # a rule that diverges: say so, go on
        return {"step": step, "steps": length, "error": f"{type(error).__name__}: {error}"[:200]}


def result_of(row: Row) -> Measured | None:
    """What a row has measured; None if the run ended with an error."""
    if "error" in row:
        return None
    return Measured(**{field.name: row[field.name] for field in fields(Measured)})


def is_accurate(row: Row) -> bool:
    """Whether a row may be shown."""
    result = result_of(row)
    return result is not None and result.accurate


def final_rows(final: Callable[[float, int, int], Row], step: float, fixed: bool) -> list[Row]:
    """Runs until one is accurate: smaller steps after a bias, longer runs after doubt.

    >>> def final(step, times, attempt):
    ...     numbers = {"ess": 99, "group_ess": 99, "per_gradient": 1, "seconds": 1}
    ...     return {"step": step, "bias": step / 20, "bias_error": 0.03 / times, **numbers}
    >>> [round(row["step"], 2) for row in final_rows(final, 1.2, False)]
    [1.2, 1.2, 0.92]
    """
    rows: list[Row] = []
    times = 1
    while len(rows) < FINALS:
        rows.append(final(step, times, len(rows)))
        result = result_of(rows[-1])
        if result is not None and result.accurate:
            break
        if fixed or (result is not None and result.too_short):
            if times == LONGER:
                break
            times = LONGER
        else:
            step /= CLOSE
    return rows


def pilot_rows(pilot: Callable[[float, int], Row], first: float, seed: int) -> list[Row]:
    """Step sizes by bisection, from the first one up or down.

    >>> def pilot(step, seed):
    ...     numbers = {"ess": 99, "group_ess": 99, "per_gradient": 1, "seconds": 1}
    ...     return {"step": step, "bias": step / 60, "bias_error": 0.0, **numbers}
    >>> [round(row["step"], 2) for row in pilot_rows(pilot, 1.0, 0)]
    [1.0, 1.6, 2.56, 4.1]
    """
    low, high, step = 0.0, float("inf"), first
    rows: list[Row] = []
    while len(rows) < PILOTS and high > CLOSE * low:
        rows.append(pilot(step, seed + len(rows)))
        if goes_up(rows[-1]):
            low = max(low, step)
        else:
            high = min(high, step)
        if low and np.isfinite(high):
            step = (low * high) ** 0.5
        else:
            step = low * UP if low else high / UP**2
    return rows


def goes_up(row: Row) -> bool:
    """Whether a larger step size comes next: this one is plausible, or too slow to be judged."""
    result = result_of(row)
    return result is not None and not result.biased


def chosen_step(rows: list[Row]) -> float:
    """That of the plausible pilot with most effective samples; else the largest that goes up."""
    good = [row for row in rows if (result := result_of(row)) is not None and result.plausible]
    if good:
        return float(max(good, key=lambda row: row["per_gradient"])["step"])
    slow = [row["step"] for row in rows if goes_up(row)]
    return float(max(slow)) if slow else float(min(row["step"] for row in rows) / UP)
