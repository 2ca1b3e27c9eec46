"""Comparison of methods over tables: means over splits, mean ranks, paired tests.

Methods are compared on the tables, and on the splits of each, that all of them were run on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, studentized_range, wilcoxon

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "tables"
OURS = "entropy-mcmc"
UNTUNED = {
    "classification": (OURS, "logistic", "mlp", "forest", "hist-boosting", "lightgbm"),
    "regression": (OURS, "bayesian-ridge", "mlp", "forest", "hist-boosting", "lightgbm"),
}
LEVEL = 0.05
Record = dict[str, Any]


def records(task: str, half: str) -> list[Record]:
    """Files of one task and half."""
    every = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))]
    return [r for r in every if (r["task"], r["half"]) == (task, half) and "fits" in r]


def splits(record: Record, names: Sequence[str]) -> list[str]:
    """Splits that all of these methods were run on, without those where one gave NaN."""
    every = sorted({key.split("/")[1] for key in record["fits"]}, key=int)
    return [s for s in every if all(nll_of(record, name, s) is not None for name in names)]


def nll_of(record: Record, name: str, split: str) -> float | None:
    """NLL of a fit; None where it was not run, or is not a number."""
    value = record["fits"].get(f"{name}/{split}", {}).get("nll", math.nan)
    return float(value) if math.isfinite(value) else None


def failed(tables: Sequence[Record], name: str) -> dict[str, int]:
    """Tables on which a method gave NaN, and in how many splits."""
    counts = {
        r["table"]: sum(
            key.split("/")[0] == name and not math.isfinite(fit["nll"])
            for key, fit in r["fits"].items()
        )
        for r in tables
    }
    return {table: count for table, count in counts.items() if count}


@dataclass(frozen=True)
class Comparison:
    """Methods `names`, the first of which is ours, on the tables that have enough common splits."""

    names: tuple[str, ...]
    tables: tuple[Record, ...]

    @classmethod
    def of(cls, tables: Sequence[Record], names: Sequence[str], least: int = 1) -> Comparison:
        """Tables on which all methods share at least so many splits."""
        kept = [r for r in tables if len(splits(r, names)) >= least]
        return cls(tuple(names), tuple(kept))

    def split_counts(self) -> str:
        """Numbers of common splits, in words."""
        counts = {len(splits(r, self.names)) for r in self.tables}
        if len(counts) > 1:
            return f"{min(counts)} to {max(counts)} splits each"
        count = counts.pop() if counts else 0
        return f"{count} split{'s' if count != 1 else ''} each"

    def __bool__(self) -> bool:
        return len(self.tables) > 1

    def means(self, score: str) -> np.ndarray:
        """Mean over the common splits, (tables, methods)."""
        return np.array([self._row(r, score) for r in self.tables])

    def _row(self, record: Record, score: str) -> list[float]:
        own, fits = splits(record, self.names), record["fits"]
        return [float(np.mean([fits[f"{n}/{s}"][score] for s in own])) for n in self.names]

    def ranks(self, score: str) -> np.ndarray:
        """Mean rank of each method over tables; less is better, ties share."""
        return ranks(self.means(score))

    def place(self, score: str) -> int:
        """Place of ours by mean rank: 1 is the first."""
        found = self.ranks(score)
        return 1 + int((found[1:] < found[0]).sum())

    def wins(self, score: str) -> list[int]:
        """Tables on which ours is better than each other method."""
        values = self.means(score)
        return [int((values[:, 0] < values[:, i]).sum()) for i in range(1, len(self.names))]

    def p_values(self, score: str) -> list[float]:
        """Wilcoxon's test over tables of each other method against ours, after Holm."""
        return holm(self.means(score))

    def verdicts(self, score: str) -> dict[str, str]:
        """Whether ours is better or worse than each other method, or neither is decided."""
        values = self.means(score)
        gaps = np.median(values[:, 1:] - values[:, :1], axis=0)
        words = {}
        for name, p, gap in zip(self.names[1:], self.p_values(score), gaps, strict=True):
            words[name] = "open" if p > LEVEL else "better" if gap > 0 else "worse"
        return words

    def critical_distance(self) -> float:
        """Difference of two mean ranks that Nemenyi's test decides at 5 %."""
        k = len(self.names)
        q = float(studentized_range.ppf(1 - LEVEL, k, np.inf)) / np.sqrt(2)
        return float(q * np.sqrt(k * (k + 1) / (6 * len(self.tables))))


def ranks(values: np.ndarray) -> np.ndarray:
    """Mean rank of each column over rows; less is better, ties share."""
    return np.asarray(rankdata(values, axis=1).mean(axis=0))


def holm(values: np.ndarray) -> list[float]:
    """Holm-adjusted p-values of Wilcoxon's test of each column against the first."""
    raw = [float(wilcoxon(values[:, 0], values[:, i]).pvalue) for i in range(1, values.shape[1])]
    order, adjusted, last = np.argsort(raw), [0.0] * len(raw), 0.0
    for place, i in enumerate(order):
        last = max(last, min(1.0, (len(raw) - place) * raw[i]))
        adjusted[i] = last
    return adjusted


def fits_of(tables: Sequence[Record], name: str = OURS) -> list[Record]:
    """All fits of a method."""
    return [r["fits"][f"{name}/{s}"] for r in tables for s in splits(r, [name])]


def worse_than_nothing(tables: Sequence[Record]) -> dict[str, float]:
    """Tables on which ours lies above the class frequencies, or the training mean, and by how much.

    More than 1 % and two standard errors of the paired difference over splits.
    """
    worse = {}
    for r in tables:
        fits = fits_of([r])
        gaps = np.array([f["nll"] - f["plain_nll"] for f in fits])
        error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
        limit = 0.01 * abs(float(np.mean([f["plain_nll"] for f in fits]))) + 2 * error
        if gaps.mean() > limit:
            worse[r["table"]] = float(gaps.mean())
    return worse


def pooled(tables: Sequence[Record], name: str) -> float:
    """Mean of a share over all test rows of ours."""
    fits = fits_of(tables)
    return float(np.average([f[name] for f in fits], weights=[f["test_rows"] for f in fits]))


def far_coverage(tables: Sequence[Record]) -> dict[str, float]:
    """Tables whose 95 % intervals hold less or more than 95 ± (3 + 2 standard errors) per cent.

    The standard error is that of a share of as many rows as the table has: splits share rows.
    """
    far = {}
    for r in tables:
        limit = 0.03 + 2 * np.sqrt(0.95 * 0.05 / r["rows"])
        share = pooled([r], "coverage")
        if abs(share - 0.95) > limit:
            far[r["table"]] = share
    return far
