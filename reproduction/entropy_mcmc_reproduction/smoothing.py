"""Fig. 1b and the effect of η: the posterior of two modes, smoothed; all in closed form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc_reproduction import landscape
from entropy_mcmc_reproduction.figure import panels, save
from entropy_mcmc_reproduction.items import Item, Outcome, Results, Verdict
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.text import FAILS, HOLDS

NAME = "smoothing/peaks"
ETAS = (0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0)
DRAWN = (0.0, 0.5, 5.0)
LINES = {0.0: "#0072B2", 0.1: "#D55E00", 0.5: "#009E73", 1.0: "#CC79A7", 5.0: "#E69F00"}


def jobs(scale: str, place: Place) -> list[Job]:
    """One job, the same at every scale: it takes no time."""
    return [Job(NAME, "smoothing:compute", {"etas": list(ETAS), "positions": 601})]


def compute(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Peaks, their ratio, masses and maxima by η."""
    line = np.linspace(-8.0, 8.0, settings["positions"])
    points = line[:, None] * np.array(landscape.FLAT) / landscape.REACH
    rows = []
    for eta in settings["etas"]:
        on_line = landscape.density(points, eta)
        inner = on_line[1:-1]
        maxima = int(((inner > on_line[:-2]) & (inner > on_line[2:])).sum())
        sharp, flat = landscape.density(np.array([landscape.SHARP, landscape.FLAT]), eta)
        rows.append(
            {
                "eta": eta,
                "peak_ratio": (landscape.VARIANCES[1] + eta) / (landscape.VARIANCES[0] + eta),
                "sharp_peak": float(sharp),
                "flat_peak": float(flat),
                "curvature_of_sharp_peak": 1 / (landscape.VARIANCES[0] + eta),
                "maxima": maxima,
                "flat_mass": landscape.flat_mass(eta),
            }
        )
    return {"by_eta": rows}


def show(results: Results, scale: str) -> Outcome:
    """Table by η, figure, and what the paper says of it."""
    if NAME not in results:
        return Outcome([], [], [])
    rows = results[NAME]["by_eta"]
    columns = [
        *("η", "peak ratio sharp : flat", "density at the sharp mode", "at the flat mode"),
        *("maxima", "mass nearer the flat mode"),
    ]
    table = [
        [
            f"{row['eta']:g}",
            f"{row['peak_ratio']:.2f}",
            f"{row['sharp_peak']:.4f}",
            f"{row['flat_peak']:.4f}",
            f"{row['maxima']}",
            f"{row['flat_mass']:.4f}",
        ]
        for row in rows
    ]
    notes = [
        "Closed form, no error. The peak ratio is that of the two modes' own peaks, "
        "(1 + η)/(½ + η); the density at a mode includes the tail of the other one."
    ]
    return Outcome(columns, table, _verdicts(rows), {"smoothing": lambda path: draw(path)}, notes)


def _verdicts(rows: list[dict[str, Any]]) -> list[Verdict]:
    smallest, largest = (next(r for r in rows if r["eta"] == eta) for eta in (0.01, 5.0))
    flatter = largest["peak_ratio"] > smallest["peak_ratio"]
    masses = [row["flat_mass"] for row in rows]
    middle = next(row for row in rows if row["eta"] == 0.5)
    return [
        Verdict(
            "Smaller η makes the smoothed distribution flatter",
            f"peak ratio sharp : flat falls from {smallest['peak_ratio']:.2f} at η = 0.01 to "
            f"{largest['peak_ratio']:.2f} at η = 5, and the peaks sink: larger η flattens",
            HOLDS if flatter else FAILS,
            short="smaller is flatter",
        ),
        Verdict(
            "The smoothed posterior only keeps flat modes",
            f"mass nearer the flat mode {masses[0]:.4f} before smoothing, {middle['flat_mass']:.4f}"
            f" at η = 0.5, {masses[-1]:.4f} at η = {rows[-1]['eta']:g}: convolution keeps the mass "
            "of each mode, and lowers the sharp peak only in height",
            HOLDS if middle["flat_mass"] > 0.95 else FAILS,
            short="only flat modes are kept",
        ),
    ]


def draw(path: Path) -> None:
    """Contours at three η, and the same density at points of the line through both modes."""
    figure, axes = panels(len(DRAWN) + 1, len(DRAWN) + 1, 3.3, 3.1)
    side = np.linspace(-5.0, 5.0, 201)
    grid = np.stack(np.meshgrid(side, side), -1)
    for axis, eta in zip(axes, DRAWN, strict=False):
        heights = landscape.density(grid, eta)
        axis.contourf(side, side, heights, 12, cmap="Blues")
        for (x, y), colour in ((landscape.SHARP, LINES[0.1]), (landscape.FLAT, LINES[0.5])):
            axis.plot(x, y, "+", color=colour, markersize=9, markeredgewidth=2)
        axis.set(title="posterior (η = 0)" if not eta else f"smoothed, η = {eta:g}", aspect="equal")
    positions = np.linspace(-7.0, 7.0, 400)
    line = positions[:, None] * np.array(landscape.FLAT) / landscape.REACH
    last = axes[-1]
    for eta, colour in LINES.items():
        last.plot(positions, landscape.density(line, eta), color=colour, label=f"η = {eta:g}")
    last.set(title="on the line of the modes", xlabel="position", ylabel="density (2-D)")
    last.set_xticks(range(-6, 7, 2))
    last.legend(frameon=False, fontsize=8, loc="upper right")
    save(figure, path)


ITEM = Item(
    "The two-mode posterior, smoothed by η",
    "Fig. 1b and appendix",
    jobs,
    show,
    says="smoothing keeps the flat modes; the smaller η, the flatter",
)
