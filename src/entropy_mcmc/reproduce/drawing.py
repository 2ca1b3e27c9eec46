"""Figures without pyplot's state: nothing here opens a window or remembers a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with colour-blind eyes can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def panels(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = (4.0, 3.2), **options: Any
) -> tuple[Figure, Any]:
    """A figure and its axes as a matrix; `size` is that of one panel."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * size[0], rows * size[1]), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Figure, path: Path) -> None:
    """Write a PNG that does not depend on the day."""
    figure.savefig(path, dpi=130, metadata={"Software": None})
