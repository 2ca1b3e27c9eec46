"""Single samples against averages, and the reliability diagram."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from entropy_mcmc.evaluation import calibration_bins
from entropy_mcmc.posterior.manifest import Sample
from entropy_mcmc.report.figures.chart import Frame, Marks, Series, chart
from entropy_mcmc.report.figures.svg import Axis, number, percent, share_tick, spanning
from entropy_mcmc.report.html import Figure, Table
from entropy_mcmc.report.labels import METRICS, SHARES
from entropy_mcmc.report.member_scores import BASELINE, WHOLE, Member, singles
from entropy_mcmc.report.run_data import RunData

Floats = npt.NDArray[np.float64]
DIAGONAL = ((0.0, 0.0), (1.0, 1.0))
FEW = 20  # rows of a group below which its share of right answers says little
SYMBOLS = {"theta": "θ", "guide": "θ_a"}


def samples_figure(run: RunData, scored: Sequence[Member], metric: str) -> Figure | None:
    """Every sample's own score in the order of collection, and the averages as lines."""
    if run.predicted is None or len(run.predicted.roles) < 2:
        return None
    alone = [one.scores[metric] for one in singles(run.predicted)]
    entries = list(zip(run.samples, run.predicted.roles, alone, strict=False))
    steps = sorted({sample.step for sample, _, _ in entries})
    count = run.record.config.replicas
    series = []
    for slot, role in enumerate(r for r in SYMBOLS if r in run.predicted.roles):
        own = [(steps.index(s.step) + 1.0, v, s) for s, r, v in entries if r == role]
        tips = [
            f"{SYMBOLS[role]}{_of_replica(s, count)}, cycle {(s.cycle or 0) + 1}, step "
            f"{s.chain_and_step[1]:,}: {_write(metric)(v)}"
            for _, v, s in own
        ]
        name = f"one sample of {SYMBOLS[role]}"
        points = [x for x, _, _ in own], [v for _, v, _ in own]
        series.append(Series(name, *points, "points", slot, tips=tips))
    lines = [m for m in scored if m.name in (WHOLE, BASELINE)]
    ends = (0.5, len(steps) + 0.5)
    for slot, member in enumerate(lines, 2):
        series.append(Series(member.name, ends, [member.scores[metric]] * 2, "line", slot))
    short, better, _ = METRICS[metric]
    values = [v for s in series for v in s.y]
    x = Axis("samples in the order they were kept", ends[0], ends[1], ticks=_counts(len(steps)))
    low, high = spanning(values, margin=0.12)
    if metric in SHARES:
        low, high = max(low, 0.0), min(high, 1.0)
    frame = Frame(x, Axis(short, low, high, write=_tick(metric)))
    words = f"{short} of {len(alone)} single samples, from {_write(metric)(min(alone))} to "
    words += f"{_write(metric)(max(alone))}; " + "; ".join(
        f"{m.name} {_write(metric)(m.scores[metric])}" for m in lines
    )
    names = [SYMBOLS[role] + _of_replica(sample, count) for sample, role, _ in entries]
    rows = [
        [i + 1, name, (s.cycle or 0) + 1, s.chain_and_step[1], _write(metric)(v)]
        for i, (name, (s, _, v)) in enumerate(zip(names, entries, strict=True))
    ]
    return Figure(
        f"{short} of single samples and of their average",
        f"Each mark is one network ({better} is better). Where the line of the whole posterior "
        "beats most marks, averaging helps.",
        chart(frame, series, words),
        Table(f"{short} by sample", ["sample", "variable", "cycle", "step", short], rows),
        series,
    )


def _of_replica(sample: Sample, count: int) -> str:
    """Which replica a sample is, for the reader; nothing where θ is the only one."""
    return "" if sample.replica is None else f", replica {sample.replica + 1} of {count}"


def _write(metric: str) -> Callable[[float], str]:
    return percent if metric in SHARES else number


def _tick(metric: str) -> Callable[[float], str]:
    return share_tick if metric in SHARES else number


def _counts(count: int) -> tuple[float, ...]:
    stride = max(1, math.ceil(count / 8))
    return tuple(float(k) for k in range(1, count + 1, stride))


def reliability_figure(
    judged: Sequence[tuple[str, Floats, npt.NDArray[np.int64]]], runs: bool = False
) -> Figure:
    """Stated confidence against the share that is right; the diagonal is honest."""
    series, rows, words = [], [], []
    for slot, (name, probs, targets) in enumerate(judged):
        bins = calibration_bins(probs, targets)
        errors = [wilson(a, n) for _, a, n in bins]
        sizes = [2.5 + 5.5 * math.sqrt(n / bins[:, 2].sum()) for n in bins[:, 2]]
        tips = [
            f"{name}: {int(n)} rows, {percent(c)} confident, {percent(a)} right"
            + (" (few rows)" if n < FEW else "")
            for c, a, n in bins
        ]
        xs, ys = bins[:, 0].tolist(), bins[:, 1].tolist()
        run = slot if runs else None
        few = (bins[:, 2] < FEW).tolist()
        series.append(Series(name, xs, ys, "points", slot, errors, sizes, few, tips, run))
        away = float(np.abs(bins[:, 0] - bins[:, 1]) @ bins[:, 2] / bins[:, 2].sum())
        words.append(f"{name}: calibration error {number(away)}")
        rows += [[name, _few(n), percent(c), percent(a)] for c, a, n in bins]
    share = Axis("confidence (probability of the chosen class)", 0.0, 1.0, write=share_tick)
    frame = Frame(share, Axis("share that is right", 0.0, 1.0, write=share_tick))
    return Figure(
        "Reliability diagram",
        "Rows grouped by confidence. On the dashed diagonal, 80 % sure means right in 80 % of "
        "cases; below it the model is overconfident. Larger marks hold more rows; bars are 68 % "
        "intervals.",
        chart(frame, series[::-1], "Reliability. " + "; ".join(words), Marks(reference=DIAGONAL)),
        Table("Reliability", ["model", "rows", "mean confidence", "right"], rows),
        series,
        [("hollow-key", f"outlined: fewer than {FEW} rows, which say little")],
    )


def _few(rows: float) -> str:
    return f"{int(rows)} (few)" if rows < FEW else str(int(rows))


def wilson(share: float, count: float, z: float = 1.0) -> tuple[float, float]:
    """How far the interval of a share reaches down and up; honest for few rows and for 100 %.

    >>> [round(v, 3) for v in wilson(1.0, 1)]
    [0.5, 0.0]
    """
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    spread = share * (1 - share) / count + z * z / (4 * count * count)
    half = z * math.sqrt(spread) / (1 + z * z / count)
    return max(0.0, share - middle + half), max(0.0, middle + half - share)


def confidence_figure(probs: Floats, targets: npt.NDArray[np.int64]) -> Figure:
    """How often which confidence is stated, for right and for wrong predictions."""
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == targets
    edges = np.linspace(0, 1, 21)
    counts = [np.histogram(confidence[mask], edges)[0] for mask in (right, ~right)]
    top = float(max(counts[0].max(), counts[1].max(), 1))
    series = [
        Series(name, edges.tolist(), (c + 0.0).tolist(), "steps", slot, dash=0)
        for name, c, slot in zip(("right", "wrong"), counts, (0, 1), strict=True)
    ]
    x = Axis("confidence", 0.0, 1.0, write=share_tick)
    y = Axis("test rows (log scale)", 0.5, top * 1.3, log=True)
    words = f"{int(right.sum())} right and {int((~right).sum())} wrong predictions by confidence"
    rows = [
        [f"{percent(a, 0)} – {percent(b, 0)}", int(r), int(w)]
        for a, b, r, w in zip(edges[:-1], edges[1:], *counts, strict=True)
    ]
    return Figure(
        "How sure is it?",
        "Number of test rows by confidence. Wrong predictions should be few on the right.",
        chart(Frame(x, y), series, words),
        Table("Rows by confidence", ["confidence", "right", "wrong"], rows),
        series,
    )
