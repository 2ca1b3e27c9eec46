"""Outcomes as text, and numbers with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from entropy_mcmc.text_table import aligned
from entropy_mcmc_reproduction.items import Outcome


def mean_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and its standard error over seeds; None with one seed, or where a value is infinite."""
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2 or not np.isfinite(array).all():
        return float(array.mean()), None
    return float(array.mean()), float(array.std(ddof=1) / np.sqrt(len(array)))


def number(values: Sequence[float], digits: int = 3, factor: float = 1.0) -> str:
    """`mean ± standard error`.

    >>> number([0.5, 0.7], 1, 100)
    '60.0 ± 10.0'
    """
    mean, error = mean_error([value * factor for value in values])
    return f"{mean:.{digits}f}" if error is None else f"{mean:.{digits}f} ± {error:.{digits}f}"


def significant(values: Sequence[float]) -> str:
    """`mean ± standard error` for numbers of any size.

    >>> significant([2e-6, 4e-6])
    '3e-06 ± 1e-06'
    """
    mean, error = mean_error(values)
    return f"{mean:.3g}" if error is None else rounded(mean, error)


def rounded(mean: float, error: float) -> str:
    """`mean ± error` with two digits of the error, and no digit of the mean beyond them.

    >>> rounded(0.16843, 1.7123), rounded(1120.4, 97.1), rounded(2.0212e-5, 4.6e-7)
    ('0.2 ± 1.7', '1120 ± 97', '2.02e-05 ± 4.6e-07')
    """
    if error < 1e-4:
        return f"{mean:.3g} ± {error:.2g}"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    return f"{mean:.{decimals}f} ± {error:.{decimals}f}"


HOLDS, FAILS, ALIKE = "holds", "does not hold", "alike within the margin"
UNDECIDED, NOT_RUN = "not decided at this scale", "not run"


def markdown(outcome: Outcome) -> str:
    """Table, verdicts and notes."""
    parts = []
    if outcome.rows:
        parts.append(_table(outcome.columns, outcome.rows))
    parts += [f"![{name}]({name}.png)" for name in outcome.figures]
    if outcome.verdicts:
        limited = any(v.limit for v in outcome.verdicts)
        lines = [
            [v.told, v.measured, v.decided, *([v.limit or "–"] if limited else [])]
            for v in outcome.verdicts
        ]
        head = ["claim", "measured", "verdict", *(["what limits it"] if limited else [])]
        parts.append(_table(head, lines))
    parts += outcome.notes
    return "\n\n".join(parts)


def _table(columns: list[str], rows: list[list[str]]) -> str:
    head = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def show(title: str, outcome: Outcome) -> str:
    """The outcome for a terminal."""
    lines = [title, ""]
    if outcome.rows:
        lines.append(aligned([outcome.columns, *outcome.rows], left=None))
    for verdict in outcome.verdicts:
        lines += ["", f"claim:    {verdict.told}", f"measured: {verdict.measured}"]
        lines += [f"verdict:  {verdict.decision}"]
        lines += [f"limit:    {verdict.limit}"] if verdict.limit else []
    return "\n".join([*lines, "", *outcome.notes]).rstrip() + "\n"
