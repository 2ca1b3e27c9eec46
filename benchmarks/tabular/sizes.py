"""Where the estimators lead and where boosted trees do, by the number of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as students_t

from tabular.comparison import LEVEL, OURS, Comparison, Record, fits_of, splits

BANDS = ((0, 300), (300, 1000), (1000, 3000), (3000, 10**9))
MANY_ROWS = 3000
BOOSTING = ("hist-boosting", "lightgbm")
TEST_TO_TRAINING = 1 / 3  # rows of a split


def band_name(low: int, high: int) -> str:
    """Numbers of rows in words.

    >>> [band_name(*band) for band in BANDS[::3]]
    ['up to 300', 'more than 3,000']
    """
    if not low:
        return f"up to {high:,}"
    return f"{low + 1:,} to {high:,}" if high < BANDS[-1][1] else f"more than {low:,}"


def by_size(compared: Comparison) -> str:
    """Mean ranks in NLL for tables of so many rows, one line for each band."""
    names = compared.names
    lines = [f"| rows | tables | {' | '.join(names)} |", "|" + "---|" * (len(names) + 2)]
    for low, high in BANDS:
        own = tuple(r for r in compared.tables if low < r["rows"] <= high)
        if not own:
            continue
        ranks = Comparison(names, own).ranks("nll")
        cells = [f"**{v:.2f}**" if v == ranks.min() else f"{v:.2f}" for v in ranks]
        lines.append(f"| {band_name(low, high)} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Duel:
    """Ours against the better of the boosting methods on one table."""

    record: Record
    ours: float
    boosting: float
    decided: bool

    @property
    def lost(self) -> bool:
        """Whether boosting has the lower NLL."""
        return self.boosting < self.ours


def duel(record: Record) -> Duel:
    """Mean NLLs over common splits, and whether their difference is decided."""
    own = splits(record, (OURS, *BOOSTING))
    nll = {n: [record["fits"][f"{n}/{s}"]["nll"] for s in own] for n in (OURS, *BOOSTING)}
    rival = min(BOOSTING, key=lambda name: float(np.mean(nll[name])))
    ours, boosting = float(np.mean(nll[OURS])), float(np.mean(nll[rival]))
    p = corrected_p(np.subtract(nll[OURS], nll[rival]))
    return Duel(record, ours, boosting, p < LEVEL)


def corrected_p(gaps: np.ndarray) -> float:
    """Two-sided p-value of Student's t for random splits, which share rows (Nadeau and Bengio).

    The variance of the mean of J splits is (1/J + test/training rows) times that of one.
    """
    count = len(gaps)
    if count < 2:
        return 1.0
    error = float(gaps.std(ddof=1)) * math.sqrt(1 / count + TEST_TO_TRAINING)
    if not error:
        return float(gaps.mean() == 0)
    return float(2 * students_t.sf(abs(float(gaps.mean())) / error, count - 1))


def boosting_share(duels: Sequence[Duel]) -> str:
    """How often boosting is ahead, and what fits cost, one line for each band of rows."""
    lines = ["| rows | tables | boosting ahead | decided | ours ahead | decided | fit, CPU s |"]
    lines.append("|" + "---|" * 7)
    for low, high in BANDS:
        own = [d for d in duels if low < d.record["rows"] <= high]
        lost, won = [d for d in own if d.lost], [d for d in own if not d.lost]
        cells: list[object] = [len(own), len(lost), surely(lost), len(won), surely(won)]
        cells.append(f"{seconds(own, OURS):.1f} against {seconds(own, *BOOSTING):.1f}")
        if own:
            lines.append(f"| {band_name(low, high)} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def surely(duels: Sequence[Duel]) -> int:
    """How many are decided."""
    return sum(d.decided for d in duels)


def seconds(duels: Sequence[Duel], *names: str) -> float:
    """Median over tables of the CPU-seconds of a fit by the slowest of these methods."""
    each = [[mean_seconds(d.record, name) for name in names] for d in duels]
    return float(np.median([max(row) for row in each])) if each else math.nan


def mean_seconds(record: Record, name: str) -> float:
    """Mean over splits of the CPU-seconds of a fit."""
    return float(np.mean([fit["fit_seconds"] for fit in fits_of([record], name)]))


def lost_tables(duels: Sequence[Duel]) -> str:
    """The tables on which boosting has the lower NLL, the largest gain first."""
    lines = ["| table | task | rows | columns | ours | boosting | gain | decided |"]
    lines.append("|" + "---|" * 8)
    for d in sorted((d for d in duels if d.lost), key=lambda d: d.boosting - d.ours):
        r = d.record
        cells = [r["table"], r["task"], r["rows"], r["columns"], f"{d.ours:.3f}"]
        cells += [f"{d.boosting:.3f}", f"{d.ours - d.boosting:.3f}", "yes" if d.decided else "no"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def advice(duels: Sequence[Duel]) -> str:
    """What the tables say to a user, in one paragraph."""
    large = [d for d in duels if d.record["rows"] > MANY_ROWS]
    small = [d for d in duels if d.record["rows"] <= MANY_ROWS]
    if not large:
        return f"Tables with more than {MANY_ROWS:,} rows have not been run yet."
    lost, rare = ([d for d in each if d.lost] for each in (large, small))
    return (
        f"**When to prefer boosted trees.** Of {len(large)} tables with more than {MANY_ROWS:,} "
        f"rows they have the lower NLL on {len(lost)} ({surely(lost)} decided), of {len(small)} "
        f"smaller ones on {len(rare)} ({surely(rare)} decided). So try them beside ours from "
        f"{MANY_ROWS:,} rows on, and take them where a fit must last less than a second. The "
        f"largest table here has {max(d.record['rows'] for d in duels):,} rows: nothing is shown "
        f"beyond."
    )


def section(tables: dict[str, Comparison]) -> str:
    """Mean ranks by rows for each task, and the duel with boosting over both."""
    duels = [duel(record) for compared in tables.values() for record in compared.tables]
    if not duels:
        return ""
    parts = ["## By the number of rows, and against boosted trees", advice(duels), EXPLAINED]
    parts += [boosting_share(duels), lost_tables(duels)]
    for task, compared in tables.items():
        if compared:
            parts += [f"Mean ranks in NLL, {task}:", by_size(compared)]
    return "\n\n".join(parts)


EXPLAINED = """Boosting is the better of `hist-boosting` and `lightgbm` on each table, which favours
it. A difference is decided where Student's t over the splits, with the correction of Nadeau and
Bengio for rows that splits share, gives p < .05 (of one table, not of all of them). The limit of
3,000 rows was chosen with the tables in view. CPU-seconds are medians over tables, on a busy
machine."""
