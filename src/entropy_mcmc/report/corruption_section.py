"""Corrupted test images: curves by severity, and every type in a table."""

from __future__ import annotations

from markupsafe import Markup

from entropy_mcmc.report.figures.ood import (
    corruption_kinds,
    corruption_points,
    severity_figure,
)
from entropy_mcmc.report.figures.svg import percent
from entropy_mcmc.report.html import Section, Table
from entropy_mcmc.report.run_data import RunData


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
