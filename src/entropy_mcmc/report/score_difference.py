"""Signed differences of two scores with their error, and what they decide.

A difference is *better* or *worse* when it is more than two standard errors from 0, *alike* when
all of that interval lies within a stated margin, and *open* otherwise: the rows do not decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from entropy_mcmc.report.figures.svg import number

Floats = npt.NDArray[np.float64]
ERRORS = 2.0  # standard errors of the interval
# Within these two methods count as alike; those of NLL, ECE and AUROC are docs/comparison.md's.
NLL_MARGIN, ECE_MARGIN, AUROC_MARGIN = 0.01, 0.005, 0.01
ACCURACY_MARGIN, RMSE_MARGIN = 0.005, 0.01
NLL, ACCURACY, RMSE = "NLL", "accuracy", "RMSE"


@dataclass(frozen=True)
class Difference:
    """Ours − theirs of one measure.

    Attributes:
        measure: Its name.
        value: The difference; NaN where a score is infinite.
        error: Its standard error.
        margin: Differences within it make no difference.
        lower_is_better: Whether a negative difference is a gain.
        errors: Standard errors of the interval.
    """

    measure: str
    value: float
    error: float
    margin: float
    lower_is_better: bool = True
    errors: float = ERRORS

    @property
    def kind(self) -> str:
        """What it decides: "better", "worse", "alike", "open", or "infinite"."""
        if math.isnan(self.value):
            return "infinite"
        reach = self.errors * self.error
        if abs(self.value) + reach <= self.margin:
            return "alike"
        if abs(self.value) <= reach:
            return "open"
        return "better" if (self.value < 0) == self.lower_is_better else "worse"

    @property
    def amount(self) -> str:
        """The signed difference with its error, and what it does not decide."""
        if self.kind == "infinite":
            return "infinite for one of them"
        if self.measure == ACCURACY:
            points = round(100 * self.value, 1)
            shown = f"{'−' if points < 0 else '+' if points > 0 else ''}{abs(points):.1f}"
            amount = f"{shown} ± {100 * self.error:.1f} points"
            margin = f"{100 * self.margin:g} points"
        else:
            unit = " nats" if self.measure == NLL else ""
            amount = f"{signed(self.value)} ± {number(self.error, 2)}{unit}"
            margin = f"{number(self.margin, 2)}{unit}"
        note = {"alike": f", alike within {margin}", "open": ", not decided"}.get(self.kind, "")
        return f"{amount}{note}"

    def __str__(self) -> str:
        return f"{self.measure} {self.amount}"


def signed(value: float) -> str:
    """A number with its sign.

    >>> signed(-0.01234), signed(0.5)
    ('−0.012', '+0.5')
    """
    return f"{'−' if value < 0 else '+'}{number(abs(value), 2)}"


def paired(first: Floats, second: Floats) -> tuple[float, float]:
    """Mean of first − second over rows or seeds, and its standard error; NaN where undefined.

    >>> paired(np.ones(4), np.zeros(4))
    (1.0, 0.0)
    """
    with np.errstate(invalid="ignore"):
        away = first - second
    if not np.isfinite(away).all() or len(away) < 2:
        return math.nan, math.nan
    return float(away.mean()), float(away.std(ddof=1) / math.sqrt(len(away)))


def nll_difference(first: Floats, second: Floats) -> Difference:
    """Difference of the mean losses of rows, in nats."""
    return Difference(NLL, *paired(first, second), NLL_MARGIN)


def accuracy_difference(first: Floats, second: Floats) -> Difference:
    """Difference of the shares of rows that are right (1), not wrong (0)."""
    return Difference(ACCURACY, *paired(first, second), ACCURACY_MARGIN, lower_is_better=False)


def rmse_difference(first: Floats, second: Floats) -> Difference:
    """Difference of RMSE, from the squared errors of rows; the margin is 1 % of the second.

    a − b = (a² − b²)/(a + b), whose error is that of the mean of squares over a + b.
    """
    value, error = paired(first, second)
    roots = math.sqrt(first.mean()) + math.sqrt(second.mean())
    margin = RMSE_MARGIN * math.sqrt(second.mean())
    return (
        Difference(RMSE, value / roots, error / roots, margin)
        if roots
        else Difference(RMSE, 0.0, 0.0, 0.0)
    )
