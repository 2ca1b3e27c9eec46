"""The step size at which a sampler is shown: the same search, with the same budget, for all.

1. The first step size is the best one on the quadratic energy near a draw, in closed form
   (`linear.py`), for every rule that has one; NUTS and MCLMC start from their own adaptation, and
   PSGLD from αh = 0.5.
2. On a Gaussian that is the end: the table has the closed form, and one run of a quarter of
   the length checks its variances.
3. Elsewhere up to four pilots of a quarter of the length go up from a step size that is accurate
   and down from one that is not, until the two are within a factor of 1.3. The accurate pilot with
   most effective samples says the step size. A run of full length with another seed gives the
   numbers; while it is not accurate, up to three more, each at a step size smaller by 1.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from effective import linear, measure, others, ours
from effective.linear import Prediction, Quadratic
from effective.measure import Measured, Place
from effective.targets import Target

PROTOCOL = 2  # of the stored cells; those of another one are measured anew
PILOTS, FINALS = 4, 4
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
    target: Target, known: Row, method: str, place: Place, quadratic: Quadratic
) -> Row:
    """Pilots and runs of full length; `best` is the last of these if it is accurate."""

    def row(step: float, length: int, seed: int) -> Row:
        spot = replace(place, steps=length, full=place.steps, seed=seed)
        return judged_row(
            step,
            lambda: measure.measured(
                METHODS[method].run(target, method, step, spot), known["variances"], known["order"]
            ),
        )

    first = first_step(method, quadratic, place)
    if method == "blackjax NUTS":
        pilots, step = [], first
    else:
        pilots = pilot_rows(lambda step, seed: row(step, place.steps // 4, seed), first, place.seed)
        step = chosen_step(pilots)
    finals = []
    for attempt in range(FINALS):
        finals.append(row(step / CLOSE**attempt, place.steps, place.seed + 100 + attempt))
        if finals[-1].get("accurate") or method == "blackjax NUTS":
            break
    best = finals[-1] if finals[-1].get("accurate") else None
    return {"tried": [*pilots, *finals], "best": best}


def judged_row(step: float, measured: Callable[[], Measured]) -> Row:
    """A step size with its result, or with the error that it gave."""
    try:
        result = measured()
    except Exception as error:  # a rule that diverges: say so, go on
        return {"step": step, "error": f"{type(error).__name__}: {error}"[:200]}
    return {
        "step": step, **asdict(result), "judged": result.judged, "accurate": result.accurate
    }  # fmt: skip


def pilot_rows(pilot: Callable[[float, int], Row], first: float, seed: int) -> list[Row]:
    """Step sizes by bisection, from the first one up or down.

    >>> def pilot(step, seed):
    ...     known = {"judged": True, "bias": 0.0, "bias_error": 0.01}
    ...     return {"step": step, "accurate": step < 3, **known}
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
    """Whether a larger step size comes next: this one is accurate, or too slow to be judged."""
    if "error" in row or not np.isfinite(row["bias"]):
        return False
    if not np.isfinite(row["bias_error"]):
        return bool(row["bias"] < 1)  # too few draws for an error: larger steps make more of them
    slow = not row["judged"] and row["bias"] - 2 * row["bias_error"] <= measure.TOLERATED
    return bool(row["accurate"] or slow)


def chosen_step(rows: list[Row]) -> float:
    """That of the accurate pilot with most effective samples; else the largest that goes up."""
    good = [row for row in rows if row.get("accurate")]
    if good:
        return float(max(good, key=lambda row: row["per_gradient"])["step"])
    slow = [row["step"] for row in rows if goes_up(row)]
    return float(max(slow)) if slow else float(min(row["step"] for row in rows) / UP)
