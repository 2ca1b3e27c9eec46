"""The comparison as text: one line per measure, one column per state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from entropy_mcmc.flatness.localisation_effect import DECIDES
from entropy_mcmc.text_table import aligned

Record = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """What the labels of the table say: numbers of rows, and distances."""

    data: int = 0
    hessian: int = 0
    rho: float = 0.0
    distance: float = 0.0


def table(records: Sequence[Record], sizes: Sizes) -> str:
    """All measures of all states; the smaller, the flatter."""
    lines = [["", *(str(record["name"]) for record in records)]]
    for label, cells in _lines(records, sizes):
        lines.append([label, *cells])
    note = (
        f"Smaller is flatter. Loss and Fisher: {sizes.data} training rows; the rest: a fixed "
        f"{sizes.hessian} of them.\nBatch norm as stored with each sample. ±: standard error "
        "over the probes."
    )
    return "\n".join([aligned(lines), note, *_learning_notes(records, sizes)])


def _learning_notes(records: Sequence[Record], sizes: Sizes) -> list[str]:
    """What the learning coefficient was measured on, and why not to trust it."""
    if not any("learning_coefficient" in r for r in records):
        return []
    lines = []
    if any(r["learning_coefficient"] is not None for r in records):
        lines.append(f"Local learning coefficient: {sizes.data} training rows, ± over its draws.")
    lines += _localisation_notes(records)
    return lines + [
        f"Learning coefficient of {r['name']}, not trustworthy: {r['learning_coefficient_warning']}"
        for r in records
        if r["learning_coefficient_warning"]
    ]


def _localisation_notes(records: Sequence[Record]) -> list[str]:
    """That γ is a convention, and of which states it says more than the loss does."""
    used = {r["learning_localisation"] for r in records if r.get("learning_localisation")}
    if not used:
        return []
    shown = ", ".join(f"{gamma:g}" for gamma in sorted(used))
    lines = [f"Its localisation γ = {shown} is a convention: compare at one γ only."]
    if any(r.get("learning_by_localisation") for r in records):
        lines.append(
            "By curvatures: ½ Σ a/(a+γ) of the Hessian, without sampling. "
            "Sensitivity: 0 for a count of directions, 1 for the Hessian's trace over γ."
        )
    decided = [r["name"] for r in records if gamma_decides(r)]
    if decided:
        lines.append(
            f"γ decides the value of {', '.join(decided)}: do not read it as a number of "
            "directions."
        )
    return lines


def gamma_decides(record: Mapping[str, Any]) -> bool:
    """Whether γ says more of a learning coefficient than the loss does.

    Of a row written before this was kept, by its sensitivity, however rough.
    """
    said, sensitivity = (record.get(f"learning_{n}") for n in ("gamma_decides", "sensitivity"))
    if said is None:
        return isinstance(sensitivity, int | float) and sensitivity > DECIDES
    return said is True


def _localisation_lines(records: Sequence[Record]) -> list[tuple[str, list[str]]]:
    """The quadratic estimate at γ/4, γ and 4γ, and how strongly it depends on γ."""
    rows = [r.get("learning_by_localisation") for r in records]
    lines = [
        (f"  by curvatures, {name}", ["" if row is None else f"{row[i]:.4g}" for row in rows])
        for i, name in enumerate(("γ/4", "γ", "4γ"))
    ]
    shown = [r.get("learning_sensitivity") for r in records]
    cells = ["" if value is None else f"{value:.2f}" for value in shown]
    return [*lines, ("  sensitivity to γ", cells)]


def _lines(records: Sequence[Record], sizes: Sizes) -> list[tuple[str, list[str]]]:
    traces = [f"{r['trace']:.4g} ± {r['trace_error']:.2g}" for r in records]
    learning = [_learning_cell(record) for record in records]
    lines = [
        ("training loss", _cells(records, "loss")),
        ("test error", _cells(records, "test_error")),
        ("Fisher diagonal, mean", _cells(records, "fisher_mean")),
        ("Fisher diagonal, largest", _cells(records, "fisher_max")),
        ("Hessian, largest eigenvalue", _cells(records, "top_eigenvalue")),
        ("Hessian, trace", traces),
        (f"rise of the loss, worst within {sizes.rho:g} (SAM)", _cells(records, "sharpness")),
        (f"rise of the loss, random directions at {sizes.distance:g}", _cells(records, "rise")),
        ("local learning coefficient", learning),
        *_localisation_lines(records),
    ]
    return [line for line in lines if any(line[1])]


def _learning_cell(record: Record) -> str:
    """Value and error; a question mark where the estimate is not to be trusted."""
    value, error = (record.get(n) for n in ("learning_coefficient", "learning_coefficient_error"))
    if value is None:
        return "failed" if record.get("learning_coefficient_warning") else ""
    mark = "?" if record.get("learning_coefficient_warning") else ""
    return f"{value:.4g} ± {math.nan if error is None else error:.2g}{mark}"


def _cells(records: Sequence[Record], name: str) -> list[str]:
    return ["" if r[name] is None else f"{r[name]:.4g}" for r in records]
