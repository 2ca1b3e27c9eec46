"""Regression: predicted against true, coverage by level, residuals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from entropy_mcmc.evaluation.row_scores import Z
from entropy_mcmc.report.figures.chart import Frame, Marks, Series, chart
from entropy_mcmc.report.figures.svg import Axis, number, percent, share_tick, spanning
from entropy_mcmc.report.html import Figure, Table
from entropy_mcmc.report.member_scores import coverages

Floats = npt.NDArray[np.float64]
POINTS = 200
REACH = 4.0  # standard deviations shown
DIAGONAL = ((0.0, 0.0), (1.0, 1.0))


def _picked(count: int) -> npt.NDArray[np.intp]:
    """Rows that are drawn, at most `POINTS`, the same for every figure."""
    order = np.random.default_rng(0).permutation(count)
    return np.sort(order[:POINTS])


def scatter_figure(mean: Floats, variance: Floats, targets: Floats) -> Figure:
    """True values against predictions, with 95 % intervals."""
    rows = _picked(len(targets))
    m, half, t = mean[rows], Z * np.sqrt(variance[rows]), targets[rows]
    inside = np.abs(t - m) <= half
    low, high = spanning([*(m - half).tolist(), *(m + half).tolist(), *t.tolist()], margin=0.03)
    series = []
    for slot, (mask, name) in enumerate(((inside, "inside its interval"), (~inside, "outside"))):
        if not mask.any():
            continue
        tips = [
            f"true {number(float(a))}, predicted {number(float(b))} ± {number(float(c))}"
            for a, b, c in zip(t[mask], m[mask], half[mask], strict=True)
        ]
        points = t[mask].tolist(), m[mask].tolist()
        series.append(Series(name, *points, "points", slot, half[mask].tolist(), tips=tips))
    frame = Frame(Axis("true value", low, high), Axis("predicted value", low, high), height=340.0)
    words = (
        f"{len(rows)} test rows: predicted against true; {int(inside.sum())} true values are "
        "inside their 95 % interval"
    )
    table = [
        [number(float(a), 4), number(float(b), 4), number(float(c)), "yes" if i else "no"]
        for a, b, c, i in zip(t, m, half, inside, strict=True)
    ]
    return Figure(
        "Predicted against true",
        f"{len(rows)} test rows. On the dashed diagonal the prediction is exact; bars are the "
        "predicted 95 % intervals and should cross it in 95 of 100 cases.",
        chart(frame, series, words, Marks(reference=((low, low), (high, high)))),
        Table("Predictions", ["true", "predicted", "± (95 %)", "inside"], table),
        series,
    )


def coverage_figure(
    judged: Sequence[tuple[str, Floats, Floats, Floats]], runs: bool = False
) -> Figure:
    """Share of true values inside the interval, against its nominal level."""
    series, table = [], []
    for slot, (name, mean, variance, targets) in enumerate(judged):
        shares = coverages(mean, variance, targets)
        points = [level for level, _ in shares], [share for _, share in shares]
        series.append(Series(name, *points, "both", slot, run=slot if runs else None))
        table += [[name, percent(level, 0), percent(share)] for level, share in shares]
    level = Axis("level of the interval", 0.0, 1.0, write=share_tick)
    frame = Frame(level, Axis("true values inside", 0.0, 1.0, write=share_tick))
    words = "; ".join(f"{s.name}: the 95 % interval holds {percent(s.y[-2])}" for s in series)
    return Figure(
        "Calibration of intervals",
        "A 90 % interval should hold 90 % of the true values: the dashed diagonal. Below it the "
        "intervals are too narrow, above it too wide.",
        chart(frame, series, words, Marks(reference=DIAGONAL)),
        Table("Coverage by level", ["model", "level", "inside"], table),
        series,
    )


def residual_figure(mean: Floats, variance: Floats, targets: Floats) -> Figure:
    """Residuals in units of the predicted standard deviation, against the prediction."""
    rows = _picked(len(targets))
    scaled = (targets[rows] - mean[rows]) / np.sqrt(variance[rows])
    tips = [
        f"predicted {number(float(a))}: {number(float(b))} standard deviations off"
        for a, b in zip(mean[rows], scaled, strict=True)
    ]
    xs, ys = mean[rows].tolist(), scaled.tolist()
    series = [Series("one test row", xs, ys, "points", 0, tips=tips)]
    x = Axis("predicted value", *spanning(xs))
    reach = max(3.2, float(np.abs(scaled).max()) * 1.05)
    frame = Frame(x, Axis("(true − predicted) / predicted std", -reach, reach))
    lines = [
        Series("±1.96: 95 % should be between", [x.low, x.high], [v, v], "line", 2, faint=True)
        for v in (-Z, Z)
    ]
    words = (
        f"Standardised residuals of {len(rows)} test rows, from {number(min(ys))} to "
        f"{number(max(ys))}; {percent(float((np.abs(scaled) <= Z).mean()))} are within ±1.96"
    )
    table = [[number(a, 4), number(b)] for a, b in zip(xs, ys, strict=True)]
    return Figure(
        "Residuals",
        "How many predicted standard deviations the truth is away. A cloud around 0 without a "
        "pattern is right; a slope or a funnel means that something is not modelled.",
        chart(frame, [*series, *lines], words, Marks(reference=((x.low, 0.0), (x.high, 0.0)))),
        Table("Residuals", ["predicted", "standardised residual"], table),
        [series[0], lines[0]],
    )


def spread_figure(mean: Floats, variance: Floats, targets: Floats) -> Figure:
    """Histogram of standardised residuals beside the bell curve that they should follow."""
    scaled = ((targets - mean) / np.sqrt(variance)).clip(-REACH, REACH)
    edges = np.linspace(-REACH, REACH, 17)
    shares = np.histogram(scaled, edges)[0] / len(scaled)
    grid = np.linspace(-REACH, REACH, 61)
    bell = np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi) * (edges[1] - edges[0])
    series = [
        Series("test rows", edges.tolist(), shares.tolist(), "steps", 0, dash=0),
        Series("what a calibrated model gives", grid.tolist(), bell.tolist(), "line", 1),
    ]
    x = Axis("(true − predicted) / predicted std", -REACH, REACH)
    top = 1.08 * max(float(shares.max()), float(bell.max()))
    words = (
        f"Standardised residuals have mean {number(float(scaled.mean()))} and standard deviation "
        f"{number(float(scaled.std()))}; 0 and 1 are right"
    )
    table = [
        [f"{a:.2g} – {b:.2g}", percent(s)]
        for a, b, s in zip(edges[:-1], edges[1:], shares, strict=True)
    ]
    return Figure(
        "Spread of the residuals",
        "Narrower than the curve: intervals are too wide. Wider: too narrow. What is further than "
        f"{REACH:g} away is in the last bar.",
        chart(Frame(x, Axis("share of rows", 0.0, top, write=share_tick)), series, words),
        Table("Spread of residuals", ["standardised residual", "share of rows"], table),
        series,
    )
