"""The README's part of the benchmark, between two marks."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tabular import sizes, targets
from tabular.catalogue import TABLES
from tabular.comparison import ROOT, UNTUNED, Comparison, Record, pooled, records

README = ROOT / "README.md"
BEGIN = "<!-- tables: made by benchmarks/tables_page.py -->"
END = "<!-- end of tables -->"
INTRODUCTION = (
    "On public tables that nothing was tuned on, 10 random splits each, every method with its "
    "defaults ([all tables, tuned rivals and sklearn-contrib-bde](docs/tabular.md))."
)
WORDS = {"classification": "Classification", "regression": "Regression"}
SECOND = {"classification": "ece", "regression": "crps"}
VERDICTS = {"better": "decided better than", "open": "not decided against", "worse": "worse than"}


def ranks_line(task: str, compared: Comparison) -> str:
    """Mean ranks of all methods in NLL and one more score, and what the tests say."""
    parts = []
    for score in ("nll", SECOND[task]):
        found = compared.ranks(score)
        order = np.argsort(found, kind="stable")
        named = ", ".join(f"{compared.names[i]} {found[i]:.2f}" for i in order)
        parts.append(f"mean rank in {score.upper()}: {named}")
    verdicts = compared.verdicts("nll")
    said = []
    for word, text in VERDICTS.items():
        names = [name for name, verdict in verdicts.items() if verdict == word]
        said += [f"{text} {', '.join(names)}"] if names else []
    head = f"- **{WORDS[task]}**, {len(compared.tables)} tables: {'; '.join(parts)}."
    return f"{head} In NLL entropy-mcmc is {'; '.join(said)} (Wilcoxon, Holm)."


def best_counts(compared: Comparison) -> str:
    """On how many tables each method has the lowest NLL."""
    counts = np.bincount(compared.means("nll").argmin(axis=1), minlength=len(compared.names))
    order = np.argsort(-counts, kind="stable")
    named = ", ".join(f"{compared.names[i]} {counts[i]}" for i in order if counts[i])
    return f"Lowest NLL, number of tables: {named}."


def scope(tables: dict[str, list[Record]]) -> str:
    """Which of the confirmation tables have enough splits to count."""
    counted = [
        record
        for task, own in tables.items()
        for record in Comparison.of(own, UNTUNED[task], targets.SPLITS).tables
    ]
    planned = sum(table.half == "confirmation" for table in TABLES.values())
    most = max((record["rows"] for record in counted), default=0)
    if len(counted) == planned:
        least = min(record["rows"] for record in counted)
        return f"All {planned} confirmation tables count, of {least} to {most:,} rows."
    return (
        f"So far {len(counted)} of {planned} confirmation tables have their splits and count, the "
        f"largest of {most:,} rows."
    )


def boosting_line(tables: dict[str, list[Record]]) -> str:
    """When boosted trees are to be preferred."""
    counted = [
        sizes.duel(record)
        for task, own in tables.items()
        for record in Comparison.of(own, UNTUNED[task], targets.SPLITS).tables
    ]
    return sizes.advice(counted) if counted else "Against boosted trees: not run yet."


def missed(found: list[targets.Target]) -> str:
    """The targets that were missed or not run, by name."""
    lines = [f"{t.asked} ({t.outcome})" for t in found if not t.met]
    met = sum(bool(t.met) for t in found)
    said = f"{met} of {len(found)} targets are met"
    return f"{said}; not met: {'; '.join(lines)}." if lines else f"{said}."


def block(read: Callable[[str, str], list[Record]] = records) -> str:
    """The part, with its marks."""
    tables = {task: read(task, "confirmation") for task in UNTUNED}
    lines = [f"{INTRODUCTION} {scope(tables)}", ""]
    for task, own in tables.items():
        compared = Comparison.of(own, UNTUNED[task], targets.SPLITS)
        if not compared:
            lines.append(f"- **{WORDS[task]}**: not run yet.")
            continue
        text = f"{ranks_line(task, compared)} {best_counts(compared)}"
        if task == "regression":
            text += f" 95 % intervals hold {100 * pooled(compared.tables, 'coverage'):.1f} %."
        lines.append(text)
    lines.append(f"- {boosting_line(tables)}")
    found = targets.confirmation_targets(*tables.values()) + targets.known_targets()
    lines += [f"- {missed(found)}", "", "![Mean ranks](docs/pictures/tables-ranks.png)"]
    return "\n".join([BEGIN, *wrapped(lines), END])


def wrapped(lines: list[str], width: int = 120) -> list[str]:
    """Lines of at most `width` characters; those of a list are indented."""
    parts: list[str] = []
    for line in lines:
        indent = "  " if line.startswith("- ") else ""
        filled = textwrap.TextWrapper(width, subsequent_indent=indent, break_on_hyphens=False)
        filled.break_long_words = False
        parts += filled.wrap(line) or [""]
    return parts


def put(text: str, part: str) -> str:
    """The README with its part replaced."""
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"the README has no part between {BEGIN} and {END}")
    return before + part + after


def write(path: Path = README) -> None:
    """Write the part into the README."""
    path.write_text(put(path.read_text(), block()))
