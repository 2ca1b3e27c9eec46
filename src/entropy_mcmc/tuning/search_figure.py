"""The picture of a search: validation NLL against each hyper-parameter."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from entropy_mcmc.tuning.search import Outcome, Trial
from entropy_mcmc.tuning.space import KNOBS, Axis

COLUMNS = 2
HEADROOM = 1.5  # of the spread of the better half: what is worse is drawn at the upper edge


def picture(outcome: Outcome) -> Any:
    """One panel for each axis; full-length runs are filled, the recipe and the choice marked."""
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(outcome.space))
    rows = math.ceil(len(outcome.space) / columns)
    figure = Figure(figsize=(4.2 * columns, 2.9 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).flatten()
    top = _top(outcome)
    for panel, axis in zip(panels, outcome.space, strict=False):
        _panel(panel, outcome, axis, top)
    for panel in panels[len(outcome.space) :]:
        panel.set_visible(False)
    for first in panels[::columns]:
        first.set_ylabel("validation NLL")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=8, frameon=False)
    return figure


def save_picture(outcome: Outcome, path: Path) -> None:
    """Write the picture as SVG; the same trials give the same bytes."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "emcmc"}):
        picture(outcome).savefig(path, format="svg", metadata={"Date": None})


def _panel(panel: Any, outcome: Outcome, axis: Axis, top: float) -> None:
    full, best, recipe = outcome.rungs[-1].epochs, outcome.best, outcome.recipe
    short = [t for t in outcome.trials if t.longest < full]
    done = [t for t in outcome.trials if t.longest == full]
    worse = [t for t in outcome.trials if t.nll > top]
    for trials, label, mark, style in (
        (short, "shorter runs only", "o", {"mfc": "none", "mec": "0.55"}),
        (done, f"{full} epochs", "o", {"mfc": "C0", "mec": "C0"}),
        (worse, "worse, or diverged", "^", {"mfc": "0.55", "mec": "0.55"}),
    ):
        shown = [t for t in trials if mark == "^" or t.nll <= top]
        if shown:
            panel.plot(*_places(shown, axis, top), mark, ms=5, label=label, **style)
    panel.plot(*_places([recipe], axis, top), "s", ms=11, mfc="none", mec="C1", label="recipe")
    panel.plot(*_places([best], axis, top), "*", ms=13, color="C3", label="chosen")
    ends = sorted((axis.value(axis.low), axis.value(axis.high)))
    for end in ends:
        panel.axvline(end, color="0.8", lw=1, ls=":", zorder=0)
    panel.set_xlabel(KNOBS[axis.name].label or axis.name)
    if not KNOBS[axis.name].from_one:
        panel.set_xscale("log")
    panel.grid(axis="y", color="0.93")
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _places(trials: list[Trial], axis: Axis, top: float) -> tuple[list[float], list[float]]:
    return [t.point[axis.name] for t in trials], [min(t.nll, top) for t in trials]


def _top(outcome: Outcome) -> float:
    """The NLL above which trials are drawn at the edge, so that the good ones can be told apart."""
    losses = sorted(trial.nll for trial in outcome.trials if math.isfinite(trial.nll))
    low, middle = losses[0], losses[len(losses) // 2]
    return max(low + (1 + HEADROOM) * (middle - low), outcome.best.nll) or 1.0
