"""The summary's picture: effects of the second edition on NLL, with intervals.

Above, one panel for each comparison of methods on pictures; below, the other items, of an item with
many claims the largest and the smallest effect. All claims are in the items' tables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from entropy_mcmc_reproduction.claims import MARGINS
from entropy_mcmc_reproduction.figure import blank, save
from entropy_mcmc_reproduction.picture_table import PICTURES
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS

FIGURE, MEASURE = "effects", "nll"
COLOURS = {HOLDS: "#009E73", FAILS: "#D55E00", ALIKE: "#0072B2"}  # the rest is grey
GREY = "#777777"
COLUMNS, WIDTH, LINE = 4, 9.0, 0.2  # panels in a row; inches of the figure and of a claim
Outcomes = dict[str, dict[str, Any]]


class Row(NamedTuple):
    """One claim: its item and text, gain with interval, decision, and what the paper has."""

    item: str
    text: str
    effect: list[float]
    decision: str
    paper: str


def rows(found: Outcomes) -> list[Row]:
    """The claims on NLL that have an effect."""
    return [
        Row(name, v["claim"], v["effect"], v["decision"], v.get("paper", ""))
        for name, outcome in found.items()
        for v in outcome["verdicts"]
        if v.get("effect") and v.get("measure") == MEASURE
    ]


def outer(some: list[Row]) -> list[Row]:
    """Of more than two claims of an item, those with the largest and the smallest gain."""
    ranked = sorted(some, key=lambda row: -row.effect[0])
    return some if len(some) <= 2 else [ranked[0], ranked[-1]]


def paper_gain(text: str) -> float | None:
    """The paper's gain where it has two values of the NLL, ours first.

    >>> round(paper_gain("0.162 against 0.205"), 3), paper_gain("accuracy 95 against 94 %")
    (0.043, None)
    """
    pair = re.fullmatch(r"([\d.]+) against ([\d.]+)", text)
    return float(pair[2]) - float(pair[1]) if pair else None


def draw_all(found: Outcomes, folder: Path) -> None:
    """Draw the picture if there is an effect to show."""
    if rows(found):
        draw(found, folder / f"{FIGURE}.png")


def draw(found: Outcomes, path: Path) -> None:
    """Gains with 95 % intervals, positive in favour of the claim; the margin in grey."""
    by_item: dict[str, list[Row]] = {}
    for row in rows(found):
        by_item.setdefault(row.item, []).append(row)
    grids = _in_rows([name for name in by_item if name in PICTURES], COLUMNS)
    labels = [_texts(names, by_item) for names in grids]
    rest = [row for name, some in by_item.items() if name not in PICTURES for row in outer(some)]
    lines = [*map(len, labels), *([len(rest)] if rest else [])]
    figure, parts = _parts([LINE * count + 0.9 for count in lines])
    for part, names, texts in zip(parts, grids, labels, strict=False):
        axes = part.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for axis, name in zip(axes, names, strict=True):
            places = [texts.index(row.text) for row in by_item[name]]
            _forest(axis, by_item[name], places, name)
        axes[0].set_yticks(range(len(texts)), texts, fontsize=7)
        axes[0].set_ylim(len(texts) - 0.5, -0.5)
    if rest:
        axis = parts[-1].subplots()
        _forest(axis, rest, list(range(len(rest))), "other items: largest and smallest effect")
        axis.set_xscale("symlog", linthresh=MARGINS[MEASURE])  # effects differ by a thousand
        axis.set_xlabel("gain in NLL, nats (linear within the margin)", fontsize=7)
        axis.set_yticks(range(len(rest)), [f"{r.item}: {r.text}" for r in rest], fontsize=7)
        axis.set_ylim(len(rest) - 0.5, -0.5)
        for place, row in enumerate(rest):
            where = {"transform": axis.get_yaxis_transform(), "fontsize": 6, "va": "center"}
            axis.text(1.01, place, row.paper and f"paper: {row.paper}", **where)
    _legend(figure)
    save(figure, path)


def _texts(names: list[str], by_item: dict[str, list[Row]]) -> list[str]:
    """The claims of some comparisons that have an effect, in the order of their tables."""
    seen = {row.text for name in names for row in by_item[name]}
    listed = dict.fromkeys(text for name in names for text, _, _ in PICTURES[name].claims)
    return [text for text in listed if text in seen]


def _in_rows(names: list[str], columns: int) -> list[list[str]]:
    return [names[i : i + columns] for i in range(0, len(names), columns)]


def _parts(heights: list[float]) -> tuple[Any, list[Any]]:
    """A figure, and its parts one below the other."""
    figure = blank(WIDTH, sum(heights) + 0.3)
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)
    return figure, list(parts[:, 0])


def _forest(axis: Any, some: list[Row], places: list[int], title: str) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.axvspan(-MARGINS[MEASURE], MARGINS[MEASURE], color="#eeeeee")
    axis.axvline(0, color="grey", lw=0.8)
    for row, place in zip(some, places, strict=True):
        mean, low, high = row.effect
        colour = COLOURS.get(row.decision, GREY)
        axis.plot([low, high], [place, place], color=colour)
        axis.plot(mean, place, "o", ms=4, color=colour)
        if (paper := paper_gain(row.paper)) is not None:
            axis.plot(paper, place, "x", ms=5, color="black")
    axis.set_title(title, fontsize=8)
    axis.tick_params(labelsize=7)
    axis.locator_params(axis="x", nbins=4)
    axis.set_xlabel("gain in NLL, nats", fontsize=7)


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    colours = {**COLOURS, "not decided": GREY}
    handles = [Line2D([], [], color=c, marker="o", ms=4, label=name) for name, c in colours.items()]
    handles.append(Line2D([], [], color="black", marker="x", ls="", ms=5, label="the paper's gain"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=7, frameon=False)
