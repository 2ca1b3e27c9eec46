"""The headline table of the README, from the outcomes of two items: never typed by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.posterior.atomic_files import atomic
from entropy_mcmc_reproduction.items import item
from entropy_mcmc_reproduction.page import DECISIONS, outcomes

MARKS = ("<!-- headline: emcmc reproduce --headline README.md -->", "<!-- end of headline -->")
COLUMNS = ("method", "samples", "accuracy %", "NLL", "training NLL", "ECE %")


def write(path: Path, results: Path, size: str) -> None:
    """Replace what stands between the marks of a page."""
    with atomic(path) as temporary:
        temporary.write_text(placed(path.read_text(encoding="utf-8"), results, size), "utf-8")


def placed(text: str, results: Path, size: str) -> str:
    """The text of a page with the table between its marks."""
    if not all(mark in text for mark in MARKS):
        raise ConfigError(
            f"the page must hold the lines {MARKS[0]!r} and {MARKS[1]!r}, between which the table "
            f"is put; add them where it shall stand"
        )
    head, rest = text.split(MARKS[0])
    tail = rest.split(MARKS[1])[1]
    return f"{head}{MARKS[0]}\n{table(outcomes(results, size))}\n{MARKS[1]}{tail}"


def table(found: dict[str, dict[str, Any]]) -> str:
    """Every method: how good, how calibrated, and how it detects OOD data; then the budget.

    >>> print(table({}))
    No result has been committed yet.
    """
    if "classification" not in found:
        return "No result has been committed yet."
    main = _by_method(found["classification"])
    detection = _by_method(found["ood"]) if "ood" in found else {}
    columns = [*COLUMNS, *(["AUROC of SVHN %"] if detection else [])]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for method, row in main.items():
        cells = [row[column] for column in COLUMNS]
        if detection:
            cells.append(detection[method]["AUROC %"] if method in detection else "–")
        lines.append(f"| {' | '.join(cells)} |")
    notes = " ".join(found["classification"]["notes"][:2])
    return "\n".join([OLD, "", *lines, "", notes, "", *_claims(found)])


OLD = (
    "First edition, old protocol: its faults and the runs that replace it are in "
    "[docs/protocol.md](docs/protocol.md)."
)


def _claims(found: dict[str, dict[str, Any]]) -> list[str]:
    """Counts of decisions, the two editions apart."""
    lines = []
    for edition, second in (("first", False), ("second", True)):
        some = [o for name, o in found.items() if item(name).second_edition == second]
        decisions = Counter(v["decision"] for outcome in some for v in outcome["verdicts"])
        counts = ", ".join(f"{name}: {decisions[name]}" for name in DECISIONS)
        if some:
            lines.append(f"Claims of the {edition} edition, the paper's and ours — {counts}.")
    return lines


def _by_method(outcome: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The first row of each method, by the names of the columns; of equal names the first."""
    rows: dict[str, dict[str, str]] = {}
    for cells in outcome["rows"]:
        row: dict[str, str] = {}
        for column, cell in zip(outcome["columns"], cells, strict=True):
            row.setdefault(column, cell)
        rows.setdefault(row["method"], row)
    return rows
