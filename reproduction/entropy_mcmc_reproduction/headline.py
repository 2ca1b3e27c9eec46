"""The reproduction's part of the README, from the outcomes of items: never typed by hand."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.posterior.atomic_files import atomic
from entropy_mcmc_reproduction.items import Verdict, item
from entropy_mcmc_reproduction.page import DECISIONS, first, outcomes
from entropy_mcmc_reproduction.picture_table import BETTER, PICTURES
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS, NOT_RUN, UNDECIDED
from tournament.table import markdown

MARKS = ("<!-- headline: emcmc reproduce --headline README.md -->", "<!-- end of headline -->")
TABLES = ("cifar", "fashion-mlp", "fashion-cnn")  # of pictures, folded
REGRESSION = "regression"
WORDS = {
    HOLDS: "better than {}",
    ALIKE: "alike within the margin: {}",
    FAILS: "worse than {}",
    UNDECIDED: "not decided: {}",
    NOT_RUN: "not run: {}",
}
THAN = "better log-likelihood than "
BESIDE = (
    "The published networks had no such noise model. Beside our own networks with the same noise, "
    "gradients and number of trials, EMCMC's mean log-likelihood is, against"
)
SMALL = " (by less than the margin)"


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
    return f"{head}{MARKS[0]}\n{part(outcomes(results, size))}\n{MARKS[1]}{tail}"


def part(found: dict[str, dict[str, Any]]) -> str:
    """What was decided on each set of pictures and tables, the folded tables, and the claims.

    >>> print(part({}))
    No result has been committed yet.
    """
    lines = [(name, decided(found[name])) for name in PICTURES if name in found]
    if REGRESSION in found:
        lines.append((REGRESSION, targets(found[REGRESSION])))
    if not lines:
        return "No result has been committed yet."
    tables = "\n\n".join(_table(name, found[name]) for name in TABLES if name in found)
    folded = f"<details><summary>Tables</summary>\n\n{tables}\n\n</details>"
    return "\n".join(
        [
            *(_filled(f"- {item(name).title}: {text}") for name, text in lines),
            "",
            folded,
            "",
            _claims(found),
        ]
    )


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, subsequent_indent="  ")


def targets(outcome: dict[str, Any]) -> str:
    """Verdicts on what was aimed at, then on rivals of our own, in words."""
    made = [Verdict(**each) for each in outcome["verdicts"]]
    aimed = [f"{v.claim}: **{v.decision}** ({v.measured})" for v in made if v.source == "target"]
    rivals = [
        f"{v.claim.partition(THAN)[2]}: {v.measured}" for v in made if THAN in v.claim and v.parties
    ]
    beside = f" {BESIDE} {'; '.join(rivals)}." if rivals else ""
    return f"{'; '.join(aimed)}.{beside}"


def decided(outcome: dict[str, Any]) -> str:
    """Which rivals have a worse, the same or a better NLL, in words."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for verdict in (Verdict(**each) for each in outcome["verdicts"]):
        if verdict.measure == "nll":
            ours, rival = verdict.claim.split(BETTER)
            below = SMALL if verdict.small else ""
            kinds.setdefault(ours, {}).setdefault(verdict.decision, []).append(rival + below)
    sentences = []
    for ours, rivals in kinds.items():
        parts = [
            said.format(", ".join(rivals[kind])) for kind, said in WORDS.items() if kind in rivals
        ]
        sentences.append(f"**{ours}** {'; '.join(parts)}.")
    done, wanted = outcome["runs"], outcome["wanted_runs"]
    if done < wanted:
        sentences.append(f"Interim: {done} of {wanted} runs.")
    return " ".join(sentences)


def _table(name: str, outcome: dict[str, Any]) -> str:
    # GitHub, where the README is read, has other anchors than the docs.
    about = re.sub(r"\]\(([\w./-]+)(#[\w-]+)?\)", r"](docs/\1)", outcome["notes"][0])
    rows = markdown(outcome["columns"], outcome["rows"])
    return f"**{item(name).title}.** {about}\n\n{rows.rstrip()}"


def _claims(found: dict[str, dict[str, Any]]) -> str:
    """Counts of the decisions on the paper's own claims."""
    papers = [v for outcome in found.values() for v in first(outcome) if v.source == "paper"]
    decisions = Counter(verdict.decision for verdict in papers)
    counts = ", ".join(f"{name}: {decisions[name]}" for name in DECISIONS)
    return textwrap.fill(
        f"The paper's own claims, by their first measure: {counts}. "
        "[Which ones, on one screen](docs/reproduction.md).",
        120,
    )
