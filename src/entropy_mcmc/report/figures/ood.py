"""Inputs that are unlike the training data: entropy histograms, ROC curves, corruptions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from entropy_mcmc import metrics
from entropy_mcmc.report.figures.chart import Frame, Marks, Series, chart
from entropy_mcmc.report.figures.svg import Axis, number, percent, share_tick, spanning
from entropy_mcmc.report.html import Figure, Table
from entropy_mcmc.report.labels import OOD_NAMES
from entropy_mcmc.report.member_scores import roc
from entropy_mcmc.report.page_predictions import Classified
from entropy_mcmc.report.run_data import RunData

Floats = npt.NDArray[np.float64]
DIAGONAL = ((0.0, 0.0), (1.0, 1.0))
BINS = 24
CURVE_POINTS = 80
# (name of the curve, entropies of known inputs, of OOD inputs, run number, slot, dash)
Detector = tuple[str, Floats, Floats, int | None, int, int]


def ood_name(name: str) -> str:
    """A set of OOD inputs in words."""
    return OOD_NAMES.get(name, name)


def histogram_figure(predicted: Classified) -> Figure:
    """Predictive entropy on test rows and on each OOD set."""
    groups = {"test rows": metrics.predictive_entropy(predicted.average())}
    for name, probs in predicted.ood.items():
        groups[ood_name(name)] = metrics.predictive_entropy(probs)
    edges = np.linspace(0, np.log(predicted.each.shape[2]), BINS + 1)
    shares = {name: np.histogram(v, edges)[0] / len(v) for name, v in groups.items()}
    series = [
        Series(name, edges.tolist(), share.tolist(), "steps", slot, dash=slot)
        for slot, (name, share) in enumerate(shares.items())
    ]
    top = max(float(share.max()) for share in shares.values())
    frame = Frame(
        Axis("predictive entropy (nats): 0 is certain", 0.0, float(edges[-1])),
        Axis("share of inputs", 0.0, top * 1.05, write=share_tick),
    )
    words = "Median entropy: " + "; ".join(
        f"{name} {number(float(np.median(v)))} nats" for name, v in groups.items()
    )
    rows = [
        [f"{edges[i]:.2f} – {edges[i + 1]:.2f}", *(percent(s[i]) for s in shares.values())]
        for i in range(BINS)
    ]
    return Figure(
        "How unsure on known and on OOD inputs?",
        "Shares of inputs by entropy of the whole posterior. The less the shapes overlap, the "
        "better OOD inputs are recognised.",
        chart(frame, series, words),
        Table("Entropy", ["entropy (nats)", *shares], rows),
        series,
    )


def roc_figure(detectors: Sequence[Detector], title: str = "ROC: catching OOD inputs") -> Figure:
    """One curve per detector, thinned to its turning points at equal steps."""
    series, rows, words = [], [], []
    for name, inside, outside, run, slot, dash in detectors:
        alarms, hits = _thin(*roc(inside, outside))
        area = metrics.auroc(inside, outside)
        label = f"{name}: AUROC {area:.3f}"
        series.append(Series(label, alarms, hits, "line", slot, run=run, dash=dash))
        words.append(label)
        rows += [
            [name, percent(a), percent(h)]
            for a, h in list(zip(alarms, hits, strict=True))[:: max(1, len(hits) // 20)]
        ]
    share = Axis("false alarms on test rows", 0.0, 1.0, write=share_tick)
    frame = Frame(share, Axis("OOD inputs caught", 0.0, 1.0, write=share_tick))
    return Figure(
        title,
        "An alarm is raised above a threshold of entropy; the curve goes through all thresholds. "
        "Up and to the left is better, the dashed diagonal is guessing.",
        chart(frame, series, "; ".join(words), Marks(reference=DIAGONAL)),
        Table("ROC curves", ["curve", "false alarms", "caught"], rows),
        series,
    )


def _thin(alarms: Floats, hits: Floats) -> tuple[list[float], list[float]]:
    if len(alarms) <= CURVE_POINTS:
        return alarms.tolist(), hits.tolist()
    # Equal steps along the curve, not along the thresholds, so that steep parts keep their shape.
    length = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(alarms)) + np.abs(np.diff(hits)))])
    picked = np.searchsorted(length, np.linspace(0, length[-1], CURVE_POINTS))
    picked = np.unique(picked.clip(0, len(alarms) - 1))
    return alarms[picked].tolist(), hits[picked].tolist()


def corruption_points(run: RunData, kind: str, who: str, metric: str) -> list[tuple[int, float]]:
    """(severity, value) of a corruption type, or of `mean`; severity 0 is the clean test set."""
    clean = run.evaluation("test", who)
    points = [(0, clean[metric])] if metric in clean and kind == "mean" else []
    for event in run.evaluations:
        parts = str(event.get("set", "")).split(":")
        if parts[0] == "corrupted" and parts[1:2] == [kind] and event.get("who") == who:
            points += [(int(parts[2]), event[metric])] if metric in event else []
    return sorted(points)


def corruption_kinds(run: RunData) -> list[str]:
    """Types that were evaluated, without their mean."""
    names = [str(e.get("set", "")).split(":") for e in run.evaluations]
    kinds = dict.fromkeys(n[1] for n in names if n[0] == "corrupted" and len(n) == 3)
    return [kind for kind in kinds if kind != "mean"]


def severity_figure(
    curves: Sequence[tuple[str, list[tuple[int, float]], int | None]], metric: str, title: str
) -> Figure | None:
    """A metric against the severity of corruption, the mean over types."""
    shown = [curve for curve in curves if len(curve[1]) > 1]
    if not shown:
        return None
    share = metric == "accuracy"
    write = percent if share else number
    tick = share_tick if share else number
    series = [
        Series(name, [float(s) for s, _ in points], [v for _, v in points], "both", slot, run=run)
        for slot, (name, points, run) in enumerate(shown)
    ]
    values = [v for s in series for v in s.y]
    ticks = tuple(sorted({x for s in series for x in s.x}))
    x = Axis(
        "severity (0 = clean, 5 = worst)", 0.0, max(ticks), ticks=ticks, write=lambda v: f"{v:.0f}"
    )
    frame = Frame(x, Axis(title, *spanning(values), write=tick))
    words = "; ".join(f"{s.name}: {write(s.y[0])} to {write(s.y[-1])}" for s in series)
    rows = [[s.name, int(a), write(b)] for s in series for a, b in zip(s.x, s.y, strict=True)]
    return Figure(
        f"{title} on corrupted test images",
        "Mean over the corruption types that were evaluated, by severity.",
        chart(frame, series, words),
        Table(f"{title} by severity", ["model", "severity", title.lower()], rows),
        series,
    )
