"""Appendix: the five step-size schedules."""

from __future__ import annotations

from entropy_mcmc_reproduction.ablations import SCORES, note, row, scores, variant
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.text import compared

KINDS = ("constant", "linear", "exponential", "step", "cyclical")


def _label(kind: str) -> str:
    return "emcmc" if kind == "cyclical" else f"emcmc-{kind}"


def jobs(size: str, place: Place) -> list[Job]:
    """EMCMC with every schedule of lr; samples are due at the same steps."""
    made = []
    for kind in KINDS:
        changes = None if kind == "cyclical" else {"schedule": {"kind": kind}}
        made += variant(size, place, "emcmc", _label(kind), changes=changes)
    return made


def show(results: Results, size: str) -> Outcome:
    """Cyclical against the best of the others."""
    rows = [row(results, kind, _label(kind)) for kind in KINDS]
    made = []
    mine = scores(results, "emcmc", "test", "both", "accuracy")
    for kind in KINDS[:-1]:
        other = scores(results, _label(kind), "test", "both", "accuracy")
        if other and len(other) == len(mine):
            claim = f"the cyclical schedule is more accurate than {kind}"
            made.append(compared(claim, mine, other, lower=False, percent=True))
    return Outcome(["schedule of lr", *SCORES], rows, made, notes=[note(size)])


ITEM = Item("step-size schedules", "appendix, schedule table", jobs, show)
