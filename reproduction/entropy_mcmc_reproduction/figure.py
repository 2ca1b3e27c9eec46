"""Figures of the items: matplotlib without global state, one colour per method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Okabe and Ito's colours, which differ for colour-blind readers too.
PALETTE = {
    "sgd": "#555555",
    "sgld": "#E69F00",
    "sghmc": "#009E73",
    "emcmc": "#0072B2",
    "guide": "#56B4E9",
    "entropy-sgd": "#009E73",
    "entropy-sgld": "#CC79A7",
    "sam": "#D55E00",
    "bsam": "#B8A000",
    "snapshots": "#999999",
    "ensemble": "#000000",
    "hmc": "#882255",
}


def blank(width: float, height: float) -> Any:
    """A figure without axes, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(
    count: int, columns: int, width: float = 3.2, height: float = 2.6, share: bool = False
) -> tuple[Any, list[Any]]:
    """A figure with `count` axes in rows of `columns`."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = blank(width * columns, height * rows)
    grid = figure.subplots(rows, columns, sharex=share, sharey=share, squeeze=False)
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.set_visible(False)
    for axis in axes[:count]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes[:count]


def save(figure: Any, path: Path) -> None:
    """Write a PNG without time stamps, so that the same numbers give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={"Software": None})
