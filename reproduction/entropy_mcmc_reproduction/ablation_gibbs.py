"""Appendix: joint Euler updates, the exact pair, and Gibbs-like updates of the guide."""

from __future__ import annotations

from entropy_mcmc_reproduction.ablations import SCORES, note, row, scores, variant
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.text import compared

RULES = {"euler": "emcmc", "exact": "emcmc-exact", "gibbs": "emcmc-gibbs"}


def jobs(size: str, place: Place) -> list[Job]:
    """The three rules."""
    made = []
    for rule, label in RULES.items():
        changes = None if rule == "euler" else {"sampler": {"guide_update": rule}}
        made += variant(size, place, "emcmc", label, changes=changes)
    return made


def show(results: Results, size: str) -> Outcome:
    """Joint against Gibbs-like."""
    rows = [row(results, rule, label) for rule, label in RULES.items()]
    made = []
    for key, name, lower in (("accuracy", "accuracy", False), ("nll", "NLL", True)):
        pair = [scores(results, RULES[r], "test", "both", key) for r in ("euler", "gibbs")]
        if pair[0] and len(pair[0]) == len(pair[1]):
            claim = f"joint updates give a better {name} than Gibbs-like ones"
            made.append(compared(claim, *pair, lower=lower, percent=key == "accuracy"))
    return Outcome(["update of the guide", *SCORES], rows, made, notes=[note(size), NOTE])


NOTE = (
    "Gibbs with one SGLD step is exactly SGLD with noise variance T(2α + α²/η): the guide then "
    "feeds nothing back (docs/what-it-does.md)."
)
ITEM = Item("joint against Gibbs-like updates", "appendix", jobs, show)
