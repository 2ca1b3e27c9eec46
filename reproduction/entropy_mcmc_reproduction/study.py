"""A study: runs of the tournament side by side, as data.

Ablations (`ablation_table.py`) and the comparisons of methods on pictures (`picture_table.py`) are
studies; `study_items.py` makes items of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from entropy_mcmc_reproduction.claims import Claim
from tournament.trials import Search

# Tasks that have a larger one in their place at the paper's scale, where pictures are augmented.
AT_PAPER_SCALE = {
    "digits": "cifar10-paper",
    "digits-bn": "cifar10-paper",
    "digits-frn": "cifar10-paper-frn",
    "cifar": "cifar10-paper",
    "cifar100-paper": "cifar100-paper",
}
PAPER_SEEDS = 3


@dataclass(frozen=True)
class Variant:
    """One row of a table.

    Attributes:
        label: Name of its results; variants of the same name are the same runs.
        text: In the table.
        changes: Settings that differ from the recipe's.
        method: Of the tournament.
        task: Of the tournament.
        method_changes: Fields of the method that differ.
        paper: The paper's accuracy in per cent, on CIFAR-10; None if it has none.
        seeds: How many judge it, if not as many as the study has.
    """

    label: str
    text: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    method: str = "EMCMC"
    task: str = "digits"
    method_changes: Mapping[str, Any] = field(default_factory=dict)
    paper: float | None = None
    seeds: int | None = None


@dataclass(frozen=True)
class Study:
    """One table.

    Attributes:
        title: What it shows.
        where: Its place in the paper.
        column: What its rows are.
        variants: Its rows.
        claims: With labels of variants; each is made in every measure of `claimed`.
        group: Folder of its results.
        seeds: How many judge it.
        note: What must be said beside it.
        measures: Columns.
        claimed: Measures that have verdicts.
        papers: What the paper has for a claim, by (measure, ours, theirs).
        smoke_task: Task of the smoke scale instead of its own; empty keeps them.
        search: How every variant is tuned; None takes the recipe's settings with its changes.
        paper_only: Only at the paper's scale.
        says: What the paper says, in one sentence; empty if nothing.
    """

    title: str
    where: str
    column: str
    variants: Sequence[Variant]
    claims: Sequence[Claim]
    group: str = "ablations"
    seeds: int = 20
    note: str = ""
    measures: tuple[str, ...] = ("nll", "ece", "accuracy")
    claimed: tuple[str, ...] = ("nll", "accuracy")
    papers: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    smoke_task: str = ""
    search: Search | None = None
    paper_only: bool = False
    says: str = ""

    def paper_of(self, measure: str, ours: str, theirs: str) -> str:
        """What the paper has for a claim: given, or the two accuracies; empty without."""
        known = {v.label: v.paper for v in self.variants}
        pair = known.get(ours), known.get(theirs)
        both = "" if None in pair else f"accuracy {pair[0]:.2f} against {pair[1]:.2f} %"
        return self.papers.get((measure, ours, theirs), both)


def against_all(text: str, ours: str, variants: Sequence[Variant]) -> list[Claim]:
    """`ours` is better than every other variant; the paper says so of those that it has."""
    return [
        Claim(
            text.format(v.text),
            ours,
            v.label,
            source="ours" if v.paper is None else "paper",
            short=f"than {v.text}",
        )
        for v in variants
        if v.label != ours
    ]
