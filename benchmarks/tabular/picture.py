"""Picture of the benchmark: mean ranks of the untuned methods on confirmation tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tabular import targets
from tabular.comparison import OURS, UNTUNED, Comparison, records

OWN, OTHERS, BAND = "#1b3f73", "#8a8f98", "#e6e8eb"
SCORES = {"classification": ("nll", "ece"), "regression": ("nll", "crps")}


def panel(axes: Any, compared: Comparison, score: str, title: str) -> None:
    """Methods from the best at the top; the band is the critical distance from ours."""
    found = compared.ranks(score)
    order = np.argsort(-found)
    distance = compared.critical_distance()
    axes.axvspan(found[0] - distance, found[0] + distance, color=BAND, zorder=0)
    for place, i in enumerate(order):
        own = compared.names[i] == OURS
        colour = OWN if own else OTHERS
        axes.hlines(place, 1, found[i], color=colour, lw=1.2)
        axes.plot(found[i], place, "o", color=colour, ms=8 if own else 6)
        axes.annotate(f"{found[i]:.2f}", (found[i], place), (7, -3), textcoords="offset points")
    axes.set_yticks(range(len(order)), [compared.names[i] for i in order])
    axes.set_xlim(1, len(order))
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("mean rank (1 is best)")
    axes.spines[["top", "right"]].set_visible(False)


def draw(path: Path) -> bool:
    """Draw what was run; whether there was anything."""
    from matplotlib.figure import Figure

    tables = {
        task: Comparison.of(records(task, "confirmation"), names, targets.SPLITS)
        for task, names in UNTUNED.items()
    }
    if not all(tables.values()):
        return False
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    for row, (task, compared) in zip(figure.subplots(2, 2), tables.items(), strict=True):
        for axes, score in zip(row, SCORES[task], strict=True):
            panel(axes, compared, score, f"{task}, {len(compared.tables)} tables: {score.upper()}")
    figure.savefig(path, dpi=110)
    return True
