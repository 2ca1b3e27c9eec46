"""The summary's picture: every effect of the second edition with its interval."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from entropy_mcmc_reproduction.claims import MARGINS
from entropy_mcmc_reproduction.figure import panels, save
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS

FIGURE = "effects"
COLOURS = {HOLDS: "#009E73", FAILS: "#D55E00", ALIKE: "#0072B2"}  # the rest is grey
TITLES = {
    "nll": "gain in NLL, nats",
    "accuracy": "gain in accuracy",
    "train_nll": "gain in mean training NLL of the run, nats",
}


class Row(NamedTuple):
    """One claim: its text, gain with interval, decision, and what the paper has."""

    text: str
    effect: list[float]
    decision: str
    paper: str


def rows(found: dict[str, dict[str, Any]], measure: str = "nll") -> list[Row]:
    """The claims of a measure that have an effect."""
    return [
        Row(f"{name}: {v['claim']}", v["effect"], v["decision"], v.get("paper", ""))
        for name, outcome in found.items()
        for v in outcome["verdicts"]
        if v.get("effect") and v.get("measure") == measure
    ]


def draw_all(found: dict[str, dict[str, Any]], folder: Path) -> None:
    """Draw the picture if there is an effect to show."""
    if rows(found):
        draw(found, folder / f"{FIGURE}.png")


def draw(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Gains with 95 % intervals, positive in favour of the paper's claim; the margin in grey."""
    shown = {measure: rows(found, measure) for measure in TITLES}
    shown = {measure: some for measure, some in shown.items() if some}
    heights = [0.26 * len(some) + 1.0 for some in shown.values()]
    figure, axes = panels(len(shown), 1, 9.0, sum(heights) / len(heights))
    axes[0].get_gridspec().set_height_ratios(heights)
    for axis, (measure, some) in zip(axes, shown.items(), strict=True):
        margin = MARGINS[measure]
        axis.axvspan(-margin, margin, color="#eeeeee")
        axis.axvline(0, color="grey", lw=0.8)
        for place, row in enumerate(some):
            mean, low, high = row.effect
            colour = COLOURS.get(row.decision, "#777777")
            axis.plot([low, high], [place, place], color=colour)
            axis.plot(mean, place, "o", ms=4, color=colour)
            axis.text(
                1.01,
                place,
                row.paper,
                transform=axis.get_yaxis_transform(),
                fontsize=6,
                va="center",
            )
        axis.set_yticks(range(len(some)), [row.text for row in some], fontsize=7)
        axis.set_ylim(len(some) - 0.5, -0.5)
        axis.locator_params(axis="x", nbins=5)
        axis.set_xlabel(f"{TITLES[measure]} (right: the paper's values)", fontsize=8)
    save(figure, path)
