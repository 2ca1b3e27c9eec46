"""The summary's picture: effects with intervals, the paper's beside ours in the same unit.

Above, a panel for each comparison on pictures: EMCMC against its main rivals and the paper's, in
NLL. Below, what the paper says elsewhere, where it has accuracies only; of an item with many claims
the largest and the smallest effect. All claims are in the items' tables.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from entropy_mcmc_reproduction.figure import blank, save
from entropy_mcmc_reproduction.picture_table import BETTER, FOUR, MAIN, PICTURES
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS

FIGURE = "effects"
COLOURS = {HOLDS: "#009E73", FAILS: "#D55E00", ALIKE: "#0072B2"}  # the rest is grey
GREY = "#777777"
COLUMNS, WIDTH, LINE = 3, 9.0, 0.19  # panels in a row; inches of the figure and of a claim
# Where an axis is linear, and the ticks of its positive half: effects differ by a hundred.
NATS, POINTS = (0.02, (0.01, 0.03, 0.1, 0.3, 1)), (1.0, (0.5, 1, 2, 5, 10))
BEYOND = 1.6  # times the largest mean is the end of the axis: wider intervals are cut
THEIRS = ("SGLD", "Entropy-SGD", "Entropy-SGLD")  # rivals of the paper beside the main ones
Outcomes = dict[str, dict[str, Any]]


class Row(NamedTuple):
    """One claim: item, text, gain with interval, the paper's gain, decision and margin."""

    item: str
    text: str
    effect: list[float]
    paper: float | None
    decision: str
    margin: float


def comparisons(found: Outcomes) -> list[Row]:
    """EMCMC against its main rivals and the paper's in NLL; four chains against the ensemble."""
    made = []
    for name, verdict in _with_effect(found, "nll"):
        ours, _, rival = verdict["claim"].replace(", augmented", "").partition(BETTER)
        if name in PICTURES and (ours, rival) in LABELS:
            made.append(_row(name, LABELS[ours, rival], verdict))
    return made


LABELS = {
    **{("EMCMC", rival): rival for rival in (*MAIN, *THEIRS)},
    (FOUR, "ensemble 4"): "4 chains − ensemble 4",
}


def claimed(found: Outcomes) -> list[Row]:
    """Claims of the paper on accuracy in other items, in points: at most two of each item."""
    by_item: dict[str, list[Row]] = {}
    for name, verdict in _with_effect(found, "accuracy"):
        if name not in PICTURES and paper_gain(verdict.get("paper", "")) is not None:
            row = _row(name, verdict["claim"], verdict)
            by_item.setdefault(name, []).append(_in_points(row))
    return [row for some in by_item.values() for row in outer(some)]


def _with_effect(found: Outcomes, measure: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, verdict)
        for name, outcome in found.items()
        for verdict in outcome["verdicts"]
        if verdict.get("effect") and verdict.get("measure") == measure
    ]


def _row(name: str, text: str, verdict: dict[str, Any]) -> Row:
    paper, margin = paper_gain(verdict.get("paper", "")), verdict.get("margin") or 0.0
    return Row(name, text, verdict["effect"], paper, verdict["decision"], margin)


def _in_points(row: Row) -> Row:
    return row._replace(effect=[100 * value for value in row.effect], margin=100 * row.margin)


def outer(some: list[Row]) -> list[Row]:
    """Of more than two claims of an item, those with the largest and the smallest gain."""
    ranked = sorted(some, key=lambda row: -row.effect[0])
    return some if len(some) <= 2 else [ranked[0], ranked[-1]]


def paper_gain(text: str) -> float | None:
    """The paper's gain: in NLL, where less is better, or in points of accuracy.

    >>> round(paper_gain("0.162 against 0.205"), 3)
    0.043
    >>> round(paper_gain("accuracy 95.1 against 94.6 %"), 3), paper_gain("faster")
    (0.5, None)
    """
    pair = re.fullmatch(r"(accuracy )?([\d.]+) against ([\d.]+)( %)?", text)
    if not pair:
        return None
    gain = float(pair[3]) - float(pair[2])
    return -gain if pair[1] else gain


def is_shown(found: Outcomes) -> bool:
    """Whether there is an effect to draw."""
    return bool(comparisons(found) or claimed(found))


def draw_all(found: Outcomes, folder: Path) -> None:
    """Draw the picture if there is an effect to show."""
    if is_shown(found):
        draw(found, folder / f"{FIGURE}.png")


def draw(found: Outcomes, path: Path) -> None:
    """Gains with 95 % intervals, positive in favour of EMCMC or the claim; margins in grey."""
    by_item: dict[str, list[Row]] = {}
    for row in comparisons(found):
        by_item.setdefault(row.item, []).append(row)
    names, rest = list(by_item), claimed(found)
    grids = [names[i : i + COLUMNS] for i in range(0, len(names), COLUMNS)]
    labels = list(LABELS.values())
    heights = [LINE * len(labels) + 0.95 for _ in grids]
    heights += [LINE * len(rest) + 0.75] if rest else []
    figure = blank(WIDTH, sum(heights) + 0.3)
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, some in zip(parts, grids, strict=False):
        axes = part.subplots(1, COLUMNS, sharey=True, squeeze=False)[0]
        for axis, name in zip(axes, some, strict=False):
            places = [labels.index(row.text) for row in by_item[name]]
            _forest(axis, by_item[name], places, textwrap.fill(PICTURES[name].title, 32))
            _scale(axis, *NATS)
            axis.set_xlim(*_limits([row for each in by_item.values() for row in each]))
            axis.set_xlabel("gain in NLL, nats", fontsize=7)
        for axis in axes[len(some) :]:
            axis.set_visible(False)
        _name_rows(axes[0], labels)
    if rest:
        axis = parts[-1].subplots()
        title = "Other claims of the paper, on accuracy: largest and smallest effect of each item"
        _forest(axis, rest, list(range(len(rest))), title)
        _scale(axis, *POINTS)
        axis.set_xlabel("gain in accuracy, points", fontsize=7)
        _name_rows(axis, [f"{row.item}: {row.text}" for row in rest])
    _legend(figure)
    save(figure, path)


def _limits(some: list[Row]) -> tuple[float, float]:
    """The same for all panels, so that they compare: all means and margins, and a little more."""
    reach = [(row.effect[0], -row.margin, row.margin) for row in some]
    return BEYOND * min(map(min, reach)), BEYOND * max(map(max, reach))


def _name_rows(axis: Any, names: list[str]) -> None:
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.set_ylim(len(names) - 0.5, -0.5)


def _forest(axis: Any, some: list[Row], places: list[int], title: str) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.axvline(0, color="grey", lw=0.8)
    for row, place in zip(some, places, strict=True):
        axis.barh(place, 2 * row.margin, left=-row.margin, height=1, color="#e8e8e8", zorder=0)
        mean, low, high = row.effect
        colour = COLOURS.get(row.decision, GREY)
        axis.plot([low, high], [place, place], color=colour)
        axis.plot(mean, place, "o", ms=4, color=colour)
        if row.paper is not None:
            axis.plot(row.paper, place, "x", ms=5, color="black")
    axis.set_title(title, fontsize=8)
    axis.tick_params(labelsize=7)


def _scale(axis: Any, linear: float, ticks: tuple[float, ...]) -> None:
    """Linear around 0, then logarithmic; as far as the data of all panels go."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axis.set_xscale("symlog", linthresh=linear)
    shown = [*(-tick for tick in reversed(ticks)), 0, *ticks]
    axis.xaxis.set_major_locator(FixedLocator(shown))
    axis.xaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axis.xaxis.set_minor_locator(NullLocator())


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    words = {HOLDS: "better", FAILS: "worse", ALIKE: "alike within the grey margin"}
    colours = {**{words[kind]: colour for kind, colour in COLOURS.items()}, "not decided": GREY}
    handles = [Line2D([], [], color=c, marker="o", ms=4, label=name) for name, c in colours.items()]
    handles.append(Line2D([], [], color="black", marker="x", ls="", ms=5, label="the paper's gain"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=7, frameon=False)
