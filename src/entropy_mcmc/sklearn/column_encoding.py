"""Columns of a table → inputs of a network: numbers, categories, missing values, heavy tails.

Numbers are centred and scaled to variance 1. A column with values many spreads from its median
(`HEAVY`) is first compressed by asinh((x − median)/spread), which is linear in the middle and a
logarithm in the tails: one outlier of 1e9 then neither flattens the other values nor dominates a
gradient. A missing number becomes the median, and columns with missing training values get a second
input that says so.

Categories (strings, pandas categories and booleans of object type) become one input per level,
one-hot. Levels of fewer than `RARE` rows share one input, as do levels beyond the `MOST_LEVELS`
most frequent, and levels that come up only in a prediction. Missing is a level. The variances of
these inputs sum to 1: a column of categories weighs as much as a column of numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt

from entropy_mcmc.errors import ConfigError

Doubles = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]

HEAVY = 30.0  # spreads from the median beyond which a column is compressed
RARE = 3
MOST_LEVELS = 64
# Probabilities of a lower quantile, each with the spread of a normal between it and its mirror.
WIDTHS = ((0.25, 1.349), (0.1, 2.563), (0.02, 4.107), (0.005, 5.152))


@dataclass(frozen=True)
class Numbers:
    """A column of numbers: what is subtracted, what divides, and whether asinh comes between."""

    median: float
    spread: float
    heavy: bool
    mean: float
    scale: float
    marks_missing: bool

    @classmethod
    def of(cls, values: Doubles, weights: Doubles) -> Numbers:
        """Fit to a column, in which NaN is missing."""
        known = np.isfinite(values)
        if not known.any():
            return cls(0.0, 1.0, False, 0.0, 1.0, False)
        present, weights = values[known], weights[known]
        median, spread = float(np.median(present)), spread_of(present)
        heavy = bool(np.abs(present - median).max() > HEAVY * spread)
        bent = np.arcsinh((present - median) / spread) if heavy else present
        total = weights.sum()
        mean = float(weights @ bent / total) if total else float(bent.mean())
        scale = float(np.sqrt(weights @ (bent - mean) ** 2 / total)) if total else 0.0
        tiny = 10 * np.finfo(np.float64).eps * abs(mean)
        return cls(
            median, spread, heavy, mean, scale if scale > tiny else 1.0, not bool(known.all())
        )

    def inputs(self, values: Doubles) -> Doubles:
        """One input, or two: (rows, 1 or 2)."""
        missing = np.isnan(values)
        filled = np.where(missing, self.median, values)
        bent = np.arcsinh((filled - self.median) / self.spread) if self.heavy else filled
        column = (bent - self.mean) / self.scale
        return np.stack([column, missing.astype(float)] if self.marks_missing else [column], axis=1)


@dataclass(frozen=True)
class Levels:
    """A column of categories: the levels that have an input of their own, and how often."""

    names: tuple[str | None, ...]
    shares: tuple[float, ...]  # of the rows, of each input; that of all other levels last
    scale: float

    @classmethod
    def of(cls, values: Objects, weights: Doubles) -> Levels:
        """Fit to a column, in which None and NaN are a level."""
        counts = Counter(map(level, values))
        often = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
        names = tuple(name for name, count in often if count >= RARE)[:MOST_LEVELS]
        hot = one_hot(values, names)
        if len(names) == len(counts):  # an input that no row has would keep its prior
            hot = hot[:, : len(names)]
        total = weights.sum()
        shares = weights @ hot / total if total else hot.mean(axis=0)
        variance = float((shares * (1 - shares)).sum())
        return cls(names, tuple(shares.tolist()), float(np.sqrt(variance)) or 1.0)

    def inputs(self, values: Objects) -> Doubles:
        """One input for each level, and one for all others if there were; variances sum to 1."""
        hot: Doubles = one_hot(values, self.names)[:, : len(self.shares)]
        inputs: Doubles = (hot - np.asarray(self.shares)) / self.scale
        return inputs


@dataclass(frozen=True)
class Columns:
    """All columns of a table, in their order."""

    parts: tuple[Numbers | Levels, ...]

    @classmethod
    def of(cls, columns: Iterable[Any], weights: Doubles) -> Columns:
        """Fit to columns of numbers (float64) and of categories (object)."""

        def fitted(column: Any) -> Numbers | Levels:
            if column.dtype == object:
                return Levels.of(column, weights)
            return Numbers.of(column, weights)

        return cls(tuple(map(fitted, columns)))

    def inputs(self, columns: Iterable[Any], names: Sequence[Any] | None = None) -> Doubles:
        """The matrix that networks see, (rows, inputs); `names` are for error messages."""
        parts = []
        for i, (part, column) in enumerate(zip(self.parts, columns, strict=True)):
            if isinstance(part, Numbers) and column.dtype == object:
                name = i if names is None else names[i]
                raise ConfigError(
                    f"column {name!r} must hold numbers, as it did in fit, got "
                    f"{first_text(column)!r}; convert it"
                )
            if isinstance(part, Levels):
                parts.append(part.inputs(column.astype(object)))
            else:
                parts.append(part.inputs(column.astype(np.float64)))
        return np.concatenate(parts, axis=1)


def spread_of(values: Doubles) -> float:
    """A robust standard deviation: from the middle half, or more where that is constant.

    >>> spread_of(np.array([0.0, 1.0, 2.0, 3.0, 1e9])).__round__(2)
    1.48
    """
    for low, width in WIDTHS:
        ends = np.quantile(values, [low, 1 - low])
        if ends[1] > ends[0]:
            return float(ends[1] - ends[0]) / width
    return float(values.std()) or 1.0


def level(value: Any) -> str | None:
    """A category as it is compared: its text, or None for a missing one.

    >>> [level(v) for v in ("a", 3, None, float("nan"))]
    ['a', '3', None, None]
    """
    if isinstance(value, str):
        return str(value)
    try:
        missing = value is None or bool(value != value)  # NaN and NaT differ from themselves
    except TypeError:  # pandas.NA
        missing = True
    return None if missing else str(value)


def one_hot(values: Objects, names: tuple[str | None, ...]) -> Doubles:
    """(rows, levels + 1); the last column is for all other levels."""
    place = {name: i for i, name in enumerate(names)}
    numbers = [place.get(level(value), len(names)) for value in values]
    hot: Doubles = np.eye(len(names) + 1)[numbers]
    return hot


def first_text(column: Objects) -> Any:
    """First value that is not a number."""
    return next((v for v in column if not isinstance(v, Number)), None)
