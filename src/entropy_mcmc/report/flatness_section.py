"""Flatness of the last samples: the table and the pictures of `emcmc flatness`."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from entropy_mcmc.flatness.table import gamma_decides
from entropy_mcmc.report.figures.svg import number, percent
from entropy_mcmc.report.html import Section, Table, base64_of, notice, piece
from entropy_mcmc.report.run_data import Flatness

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
        "half the number of directions that the loss pins down against the localisation γ, which "
        "is a convention (local learning coefficient): compare at one γ only",
    ),
}
PICTURES = {
    "fisher": "Histograms of the diagonal Fisher: mass near 0 means flat.",
    "density": "Density of the Hessian's eigenvalues.",
    "interpolation": "Loss along random directions away from each sample.",
    "between": "Loss on the line from θ to its guide θ_a, and beyond both.",
    "surface": "Loss in the plane through three points.",
}


def flatness_section(flatness: Flatness | None) -> Section | None:
    """The table of `emcmc flatness` and its pictures."""
    if flatness is None or not flatness.rows:
        return None
    columns = [c for c in FLATNESS_COLUMNS if any(row.get(c) is not None for row in flatness.rows)]
    rows = [
        [row.get("name", "?"), *(_cell(column, row) for column in columns)] for row in flatness.rows
    ]
    table = Table(
        "Flatness of the last samples",
        ["sample", *(FLATNESS_COLUMNS[column][0] for column in columns)],
        rows,
    )
    meanings = [FLATNESS_COLUMNS[c] for c in columns if FLATNESS_COLUMNS[c][1]]
    pictures = [(PICTURES[name], base64_of(data)) for name, data in flatness.pictures.items()]
    return Section(
        "flatness",
        "Flatness",
        "How much the loss rises when the weights move: smaller numbers mean a flatter basin. "
        "Measured at the last sample of each variable.",
        [
            table,
            *_learning_notices(flatness),
            *_deciding_notices(flatness),
            *_localisation_notices(flatness),
            piece("meanings", meanings),
            piece("pictures", pictures),
        ],
    )


def _learning_notices(flatness: Flatness) -> list[Markup]:
    """Why a learning coefficient is not to be trusted."""
    return [
        notice(
            f"Learning coefficient of {row.get('name', '?')}, not trustworthy: {text}", "warning"
        )
        for row in flatness.rows
        if isinstance(text := row.get("learning_coefficient_warning"), str)
    ]


def _deciding_notices(flatness: Flatness) -> list[Markup]:
    """Of which learning coefficients γ says more than the loss does."""
    decided = [str(row.get("name", "?")) for row in flatness.rows if gamma_decides(row)]
    if not decided:
        return []
    words = f"γ decides the learning coefficient of {', '.join(decided)}: do not read it as a "
    return [notice(f"{words}number of directions.", "note")]


def _localisation_notices(flatness: Flatness) -> list[Markup]:
    """How the learning coefficients move with γ, by the curvatures alone."""
    notices = []
    for row in flatness.rows:
        values: Any = row.get("learning_by_localisation")
        gamma: Any = row.get("learning_localisation")
        known = isinstance(values, list) and len(values) == 3
        if not known or not all(isinstance(v, int | float) for v in (gamma, *values)):
            continue
        quarter, same, fourfold = (number(value) for value in values)
        notices.append(
            notice(
                f"Learning coefficient of {row.get('name', '?')}: γ = {gamma:g} is a convention. "
                f"By curvatures alone it is {quarter} at γ/4, {same} at γ and {fourfold} at 4γ"
                f"{_sensitivity(row)}.{_sampling(row)}",
                "note",
            )
        )
    return notices


def _sensitivity(row: dict[str, Any]) -> str:
    value = row.get("learning_sensitivity")
    return f" (sensitivity {value:.2f} of 1)" if isinstance(value, int | float) else ""


def _sampling(row: dict[str, Any]) -> str:
    """How well its chains were mixed, and at their temperature where the value counts."""
    rhat, claimed = row.get("learning_rhat"), row.get("learning_temperature")
    # Of older runs there is only the mean over all weights.
    counted = row.get("learning_counted_temperature")
    measured = row.get("learning_measured_temperature") if counted is None else counted
    parts = [f"R-hat {rhat:.3f}"] if isinstance(rhat, int | float) else []
    if isinstance(measured, int | float) and isinstance(claimed, int | float):
        parts.append(f"temperature {number(measured)} measured, {number(claimed)} set")
    return f" Its chains: {'; '.join(parts)}." if parts else ""


def _cell(column: str, row: dict[str, Any]) -> str:
    value, error = row.get(column), row.get(f"{column}_error")
    if not isinstance(value, int | float):
        return "failed" if row.get(f"{column}_warning") else "–"
    shown = percent(value) if column == "test_error" else number(value)
    mark = "?" if row.get(f"{column}_warning") else ""  # not to be trusted: a notice says why
    return f"{shown} ± {number(error, 2)}{mark}" if isinstance(error, int | float) else shown + mark
