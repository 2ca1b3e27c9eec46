"""Items (tables and figures) and the list of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import ConfigError
from entropy_mcmc_reproduction.jobs import Job, Place, diverged, read

SCALES = ("smoke", "laptop", "paper")
Results = Mapping[str, dict[str, Any]]
Draw = Callable[[Path], None]
DECIDED = ("holds", "does not hold")
SOURCES = {"paper": "", "ours": "(beyond the paper) ", "target": "(target) "}


@dataclass(frozen=True)
class Verdict:
    """A claim beside what was measured.

    Attributes:
        claim: In words.
        measured: In words.
        decision: One of those in `text`.
        measure: Its unit; empty if it has none.
        effect: Gain with its 95 % interval, positive in favour of the claim.
        paper: What the paper has for it.
        source: Who claims it: "paper", "ours" (beyond the paper) or "target" (set beforehand).
        limit: What limits the verdict; empty if nothing beyond what the item says.
        margin: Within which two methods are alike; None if it has none.
        parties: Labels of the results that it compares.
        short: What it is about beside the item's other claims, in a word or two.
    """

    claim: str
    measured: str
    decision: str
    measure: str = ""
    effect: list[float] | None = None
    paper: str = ""
    source: str = "paper"
    limit: str = ""
    margin: float | None = None
    parties: list[str] = field(default_factory=list)
    short: str = ""

    @property
    def told(self) -> str:
        """The claim, and whose it is."""
        return SOURCES[self.source] + self.claim

    @property
    def small(self) -> bool:
        """Whether a difference is decided and lies within the margin all the same."""
        if self.effect is None or self.margin is None or self.decision not in DECIDED:
            return False
        return max(map(abs, self.effect)) < self.margin

    @property
    def decided(self) -> str:
        """The decision in bold; one of a difference below the margin says so."""
        return f"**{self.decision}**" + (", by less than the margin" if self.small else "")


@dataclass(frozen=True)
class Outcome:
    """Outcome of an item: a table, figures (name → function that draws to a path), verdicts."""

    columns: list[str]
    rows: list[list[str]]
    verdicts: list[Verdict]
    figures: dict[str, Draw] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Item:
    """One table or figure.

    Attributes:
        title: What it shows.
        where: Its place in the paper.
        jobs: (scale name, place) → the jobs it needs.
        show: (results by job name, scale name) → the outcome.
        unavailable: scale name → why it cannot run here, or None.
        says: What the paper says, in one sentence; empty if nothing.
    """

    title: str
    where: str
    jobs: Callable[[str, Place], list[Job]]
    show: Callable[[Results, str], Outcome]
    unavailable: Callable[[str, Place], str | None] = lambda scale, place: None
    says: str = ""


# Item → its module in this package, which has one ITEM or makes items by name.
MODULES = {
    "smoothing": "smoothing",
    "synthetic": "synthetic",
    "logistic": "logistic",
    "cifar": "study_items",
    "cifar100": "study_items",
    "fashion-mlp": "study_items",
    "fashion-cnn": "study_items",
    "cifar-augmented": "study_items",
    "fashion-mlp-tuned": "study_items",
    "cifar-tuned": "study_items",
    "fashion-mlp-60k": "study_items",
    "fashion-cnn-60k": "study_items",
    "regression": "regression",
    "flatness": "flatness_matched",
    "neighbourhood": "neighbourhood",
    "corruption": "corruption",
    "imagenet": "imagenet",
    "warm-up": "study_items",
    "temperature": "study_items",
    "gibbs": "study_items",
    "eta": "study_items",
    "schedule": "study_items",
    "sample-set": "study_items",
    "normalisation": "study_items",
    "burn-in": "study_items",
}


def item(name: str) -> Item:
    """The item of this name."""
    if name not in MODULES:
        raise ConfigError(f"item must be one of {', '.join(MODULES)}, got {name!r}")
    module = importlib.import_module(f"entropy_mcmc_reproduction.{MODULES[name]}")
    found: Item = module.ITEM if hasattr(module, "ITEM") else module.item(name)
    return found


def results(jobs: list[Job], place: Place) -> dict[str, dict[str, Any]]:
    """Results of finished jobs by name; missing and diverged ones are left out."""
    found = {job.name: read(place, job) for job in jobs}
    return {n: result for n, result in found.items() if result is not None and not diverged(result)}
