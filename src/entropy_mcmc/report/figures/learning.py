"""The learning curve: loss and learning rate, with cycles, burn-in and samples marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from entropy_mcmc.report.figures.chart import Frame, Marks, Region, Series, chart
from entropy_mcmc.report.figures.svg import Axis, number, spanning, tag
from entropy_mcmc.report.html import Figure, Table
from entropy_mcmc.report.run_data import RunData

POINTS = 180
FEW = 3  # points that are drawn as marks
WIDE, NARROW = 960.0, 420.0
MOST_CYCLES = 60  # more would be a grey wall


def thinned(events: Sequence[dict[str, Any]], most: int = POINTS) -> list[dict[str, Any]]:
    """Log lines, at most `most`; each is the mean loss of neighbours, at the step of the last.

    >>> [e["loss"] for e in thinned([{"loss": v, "step": v} for v in (1.0, 3.0, 5.0)], 2)]
    [2.0, 5.0]
    """
    size = -(-len(events) // most)
    groups = [events[i : i + size] for i in range(0, len(events), size)] if size else []
    return [{**g[-1], "loss": math.fsum(e["loss"] for e in g) / len(g)} for g in groups]


def loss_figure(run: RunData) -> Figure | None:
    """Training loss of every chain against the step."""
    chains = {chain: thinned(events) for chain, events in run.losses().items()}
    if not chains:
        return None
    series = [
        Series(
            "training loss" if len(chains) == 1 else f"chain {chain + 1}",
            [float(e["step"]) for e in events],
            [e["loss"] for e in events],
            _kind(events),
            slot,
            tips=[f"step {e['step']:,}: loss {number(e['loss'])}" for e in events],
            dash=0 if len(chains) == 1 else None,
        )
        for slot, (chain, events) in enumerate(chains.items())
    ]
    x, y = _axes(run, series)
    marks = _marks(run)
    draw = [_drawing(run, series, x, y, marks, width) for width in (WIDE, NARROW)]
    collected = len({s.step for s in run.samples})
    keys = [("burn-in", "burn-in: learns, no noise, no samples"), ("noisy", "sampling phase")]
    keys += [("tick-key", f"a sample is kept ({collected} times)")] if collected else []
    return Figure(
        "Learning curve",
        "Mean training loss over the last logged steps"
        + (", on a logarithmic scale" if y.log else "")
        + f".{restarts_in_words(run)}",
        draw[0],
        _table(chains),
        series if len(series) > 1 else (),
        keys,
        narrow=draw[1],
        wide=True,
    )


def _kind(events: Sequence[Any]) -> str:
    """Few points are drawn as such: a line of one would not be seen."""
    return "line" if len(events) > FEW else "both"


@dataclass(frozen=True)
class Restart:
    """The training loss around the beginning of a new cycle.

    Attributes:
        step: Where the cycle begins.
        before: Last logged loss of the cycle before.
        peak: Highest logged loss of the new cycle.
        end: Its last one.
    """

    step: int
    before: float
    peak: float
    end: float


def restarts(run: RunData) -> list[Restart]:
    """Restarts of all chains, as far as both cycles have logged losses."""
    seen = []
    for events in run.losses().values():
        cycles: dict[int, list[float]] = {}
        for event in events:
            cycles.setdefault(int(event["cycle"]), []).append(float(event["loss"]))
        for k in range(1, run.record.cycles):
            if k in cycles and k - 1 in cycles:
                own = cycles[k]
                seen.append(
                    Restart(k * run.record.cycle_steps, cycles[k - 1][-1], max(own), own[-1])
                )
    return seen


def restarts_in_words(run: RunData) -> str:
    """What the restarts did to the loss, for the caption; nothing where there were none."""
    seen = restarts(run)
    if not seen:
        return ""
    said = " Dotted lines are restarts: the learning rate jumps up"
    jumps = [one for one in seen if one.peak > one.before]
    if not jumps:
        return f"{said}; at the logged steps the loss does not."
    worst = max(jumps, key=lambda one: one.peak - one.before)
    back = sum(one.end <= one.before for one in seen)
    return (
        f"{said}, and the loss with it, at most from {number(worst.before)} to "
        f"{number(worst.peak)}. It ends at or below the level before in {back} of {len(seen)} "
        "restarts."
    )


def _axes(run: RunData, series: Sequence[Series]) -> tuple[Axis, Axis]:
    values = [v for one in series for v in one.y]
    log = min(values) > 0 and len(values) > 1
    end = max(_total(run), *(one.x[-1] for one in series))
    x = Axis("step (one mini-batch each)", 0.0, float(end))
    return x, Axis("training loss", *spanning(values, log=log), log=log)


def _total(run: RunData) -> float:
    return float(run.record.cycle_steps * run.record.cycles)


def _marks(run: RunData) -> Marks:
    """Shades and lines from the schedule."""
    length, cycles = run.record.cycle_steps, run.record.cycles
    burn_in = run.record.config.schedule.burn_in
    if cycles > MOST_CYCLES or burn_in is None:
        return Marks()
    regions = []
    for k in range(cycles):
        noisy = k * length + math.ceil(burn_in * length)
        regions.append(Region(k * length, noisy, "region burn-in"))
        regions.append(Region(noisy, (k + 1) * length, "region noisy"))
    return Marks(regions, [float(k * length) for k in range(1, cycles)])


def _drawing(
    run: RunData, series: Sequence[Series], x: Axis, y: Axis, marks: Marks, width: float
) -> str:
    frame = Frame(x, y, width, 320.0)
    steps = sorted({sample.chain_and_step[1] for sample in run.samples})
    floor = frame.height - frame.bottom
    kept = [
        tag(
            "line",
            x1=frame.at_x(step),
            x2=frame.at_x(step),
            y1=floor - 12,
            y2=floor,
            class_="kept",
            data_tip=f"sample kept at step {step:,}",
        )
        for step in steps
    ]
    words = (
        f"Training loss against step. It goes from {number(series[0].y[0])} to "
        f"{number(series[0].y[-1])} in {run.record.cycles} cycles; samples are kept at "
        f"{len(steps)} steps."
    )
    return chart(frame, series, words, Marks(marks.regions, marks.uprights, extra=kept))


def _table(chains: dict[int, list[dict[str, Any]]]) -> Table:
    rows = [
        [e["step"], chain + 1, e["cycle"] + 1, number(e["loss"], 4), number(e["lr"]), e["samples"]]
        for chain, events in chains.items()
        for e in events
    ]
    head = ["step", "chain", "cycle", "training loss", "learning rate", "samples so far"]
    return Table("Learning curve", head, rows)


def overlaid(runs: Sequence[RunData]) -> Figure | None:
    """Learning curves of several runs against gradients, the first chain of each."""
    series = []
    for i, run in enumerate(runs):
        events = thinned(run.losses().get(0, []), 120)
        xs, ys = [float(e.get("gradients", e["step"])) for e in events], [e["loss"] for e in events]
        series += [Series(run.name, xs, ys, _kind(events), i, run=i)] if events else []
    if not series:
        return None
    log = all(v > 0 for one in series for v in one.y)
    x = Axis("gradients of mini-batches", 0.0, max(one.x[-1] for one in series))
    y = Axis("training loss", *spanning([v for s in series for v in s.y], log=log), log=log)
    words = "Training loss of " + ", ".join(f"{s.name} (ends at {number(s.y[-1])})" for s in series)
    rows = [
        [s.name, f"{g:,.0f}", number(v, 4)] for s in series for g, v in zip(s.x, s.y, strict=True)
    ]
    return Figure(
        "Learning curves",
        "First chain of each run, against the number of gradients: the honest measure of cost.",
        chart(Frame(x, y, WIDE, 320.0), series, words),
        Table("Learning curves", ["run", "gradients", "training loss"], rows),
        series,
        narrow=chart(Frame(x, y, NARROW, 320.0), series, words),
        wide=True,
    )
