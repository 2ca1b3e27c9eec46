"""Sections from files beside the samples: diagnostics, flatness, corruptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from markupsafe import Markup

from entropy_mcmc.report.collect import Flatness, RunData
from entropy_mcmc.report.figures.chart import Frame, Marks, Series, chart
from entropy_mcmc.report.figures.ood import (
    corruption_kinds,
    corruption_points,
    severity_figure,
)
from entropy_mcmc.report.figures.svg import Axis, number, percent, spanning
from entropy_mcmc.report.html import Figure, Section, Table, base64_of, bullets, notice, piece

SYMBOLS = {"theta": "θ", "guide": "θ_a"}
FLATNESS_COLUMNS = {
    "loss": ("training loss", "mean loss over all training rows"),
    "test_error": ("test error", "share of test rows that are wrong"),
    "fisher_mean": ("mean Fisher", "mean squared gradient per parameter; smaller is flatter"),
    "fisher_max": ("largest Fisher", ""),
    "top_eigenvalue": ("largest curvature", "largest Hessian eigenvalue; smaller is flatter"),
    "trace": ("Hessian trace", "sum of curvatures over all directions"),
    "sharpness": ("sharpness", "rise of the loss at the worst near point (SAM, ρ = 0.05)"),
    "rise": ("rise", "rise of the loss along random directions, at the end of the line"),
    "learning_coefficient": (
        "learning coefficient",
        "half the number of directions that the loss pins down (local learning coefficient)",
    ),
}
PICTURES = {
    "fisher": "Histograms of the diagonal Fisher: mass near 0 means flat.",
    "density": "Density of the Hessian's eigenvalues.",
    "interpolation": "Loss along random directions away from each sample.",
    "between": "Loss on the line from θ to its guide θ_a, and beyond both.",
    "surface": "Loss in the plane through three points.",
}


def diagnostics_section(run: RunData) -> Section | None:
    """Verdict, temperature, mixing; what is not in the file is left out."""
    found = run.diagnostics
    if found is None:
        return None
    advice = [entry for entry in found.get("advice") or [] if isinstance(entry, dict)]
    grave = [entry for entry in advice if entry.get("severity") != "note"]
    notes = [entry for entry in advice if entry.get("severity") == "note"]
    content: list[object] = [
        notice(_sentence(entry), str(entry.get("severity"))) for entry in grave
    ]
    content += [Markup("<h4>Notes</h4>"), bullets(map(_sentence, notes))] if notes else []
    if not content:
        content.append(notice(str(found.get("text", "nothing to diagnose"))))
    table = _roles_table(found)
    content += [table] if table else []
    figure = thermometer_figure(run)
    content += [figure] if figure else []
    words = {
        "ok": "Nothing speaks against these samples.",
        "note": "Nothing grave; the notes say what to keep in mind.",
        "warning": "Something deserves a look before these samples are used.",
        "problem": "These samples should not be used as they are.",
    }
    lead = words.get(str(found.get("severity")), "") + (
        " Checked: is the chain at its temperature, do its cycles agree, are its samples different?"
    )
    return Section("diagnostics", "Diagnostics", lead, content)


def _sentence(entry: dict[str, Any]) -> str:
    """A finding and what to change; older files have the finding only."""
    text, change = entry.get("text", ""), entry.get("change")
    return f"{text}. To change: {change}." if change else str(text)


def _roles_table(found: dict[str, Any]) -> Table | None:
    """One column for each variable."""
    entries = [entry for entry in found.get("roles") or [] if isinstance(entry, dict)]
    measured = [(words, [look(entry) for entry in entries]) for words, look in MIXING.items()]
    rows = [
        [words, *(number(value) for value in values)]
        for words, values in measured
        if any(value is not None for value in values)
    ]
    return Table("Mixing and distances", ["what", *map(_symbol, entries)], rows) if rows else None


def _distance(part: str, side: str) -> Callable[[dict[str, Any]], float | None]:
    return lambda entry: (entry.get(part) or {}).get(side)


def _mixing(name: str, place: int) -> Callable[[dict[str, Any]], float | None]:
    return lambda entry: ((entry.get("mixing") or {}).get(name) or (None, None))[place]


MIXING = {
    "distance of weights within a cycle": _distance("weights", "within"),
    "distance of weights between cycles": _distance("weights", "between"),
    "difference of predictions within a cycle": _distance("predictions", "within"),
    "difference of predictions between cycles": _distance("predictions", "between"),
    "effective sample size, worst prediction": _mixing("ess", 0),
    "effective sample size, median prediction": _mixing("ess", 1),
    "R-hat, worst prediction": _mixing("rhat", 0),
    "R-hat, median prediction": _mixing("rhat", 1),
}


def _symbol(entry: dict[str, Any]) -> str:
    return SYMBOLS.get(str(entry.get("role")), str(entry.get("role")))


def thermometer_figure(run: RunData) -> Figure | None:
    """Measured over claimed temperature, at each reading."""
    readings = [
        e
        for e in run.events
        if e["kind"] == "thermometer" and e.get("expected") and e.get("size") and "step" in e
    ]
    if not readings:
        return None
    ratios = [e["observed"] / e["expected"] for e in readings]
    errors = [float(np.sqrt(2 / e["size"])) for e in readings]
    steps = [float(e["step"]) for e in readings]
    tips = [
        f"step {e['step']:,}: {number(r)} times T = {number(e['temperature'])}"
        for e, r in zip(readings, ratios, strict=True)
    ]
    series = [Series("one reading", steps, ratios, "points", 0, errors, tips=tips)]
    low, high = spanning([*ratios, 1.0, *(r + 2 * e for r, e in zip(ratios, errors, strict=True))])
    x = Axis("step", 0.0, max(steps) * 1.05)
    frame = Frame(x, Axis("measured / claimed temperature", min(low, 0.8), max(high, 1.2)))
    words = f"{len(ratios)} readings from {number(min(ratios))} to {number(max(ratios))} times T"
    rows = [
        [e["step"], number(e["temperature"]), number(r), number(s)]
        for e, r, s in zip(readings, ratios, errors, strict=True)
    ]
    return Figure(
        "Thermometer",
        "The distance of θ and θ_a shows at which temperature the chain really is: 1 is right. "
        "Above 1, mini-batch noise heats it.",
        chart(frame, series, words, Marks(reference=((0.0, 1.0), (x.high, 1.0)))),
        Table("Readings", ["step", "claimed T", "ratio", "standard error"], rows),
        series,
    )


def flatness_section(found: Flatness | None) -> Section | None:
    """The table of `emcmc flatness` and its pictures."""
    if found is None or not found.rows:
        return None
    columns = [c for c in FLATNESS_COLUMNS if any(row.get(c) is not None for row in found.rows)]
    rows = [
        [row.get("name", "?"), *(_cell(column, row) for column in columns)] for row in found.rows
    ]
    table = Table(
        "Flatness of the last samples",
        ["sample", *(FLATNESS_COLUMNS[column][0] for column in columns)],
        rows,
    )
    meanings = [FLATNESS_COLUMNS[c] for c in columns if FLATNESS_COLUMNS[c][1]]
    pictures = [(PICTURES[name], base64_of(data)) for name, data in found.pictures.items()]
    return Section(
        "flatness",
        "Flatness",
        "How much the loss rises when the weights move: smaller numbers mean a flatter basin. "
        "Measured at the last sample of each variable.",
        [
            table,
            *_learning_notices(found),
            piece("meanings", meanings),
            piece("pictures", pictures),
        ],
    )


def _learning_notices(found: Flatness) -> list[Markup]:
    """Why a learning coefficient is not to be trusted."""
    return [
        notice(
            f"Learning coefficient of {row.get('name', '?')}, not trustworthy: {text}", "warning"
        )
        for row in found.rows
        if isinstance(text := row.get("learning_coefficient_warning"), str)
    ]


def _cell(column: str, row: dict[str, Any]) -> str:
    value, error = row.get(column), row.get(f"{column}_error")
    if not isinstance(value, int | float):
        return "–"
    shown = percent(value) if column == "test_error" else number(value)
    return f"{shown} ± {number(error, 2)}" if isinstance(error, int | float) else shown


def corruption_section(run: RunData) -> Section | None:
    """Curves by severity, and every type in a table."""
    kinds = corruption_kinds(run)
    if not kinds:
        return None
    who = [(run.name, run.method)]
    if run.baseline is not None and run.baseline.method != run.method:
        who.append(("baseline: one SGD network", run.baseline.method))
    names = {run.name: "whole posterior"}
    figures = [
        severity_figure(
            [(names.get(n, n), corruption_points(run, "mean", w, m), None) for n, w in who], m, t
        )
        for m, t in (("accuracy", "Accuracy"), ("ece", "Calibration error (ECE)"))
    ]
    severities = sorted({s for kind in kinds for s, _ in _points(run, kind)})
    rows = [[kind.replace("_", " "), *_heat(run, kind, severities)] for kind in kinds]
    head = ["corruption", *(f"severity {s}" for s in severities)]
    return Section(
        "corruption",
        "Corrupted test images",
        "The test images were spoiled on purpose, from slightly (1) to strongly (5).",
        [
            [figure for figure in figures if figure is not None],
            Table("Accuracy of the whole posterior by type and severity", head, rows),
        ],
    )


def _points(run: RunData, kind: str) -> list[tuple[int, float]]:
    return corruption_points(run, kind, run.method, "accuracy")


def _heat(run: RunData, kind: str, severities: list[int]) -> list[Markup]:
    values = dict(_points(run, kind))
    return [
        Markup('<span class="heat" style="--share:{:.0f}%">{}</span>').format(
            100 * values[s], percent(values[s])
        )
        if s in values
        else Markup("–")
        for s in severities
    ]
