"""Appendix: batch norm with borrowed or own statistics, and filter response normalisation."""

from __future__ import annotations

from entropy_mcmc_reproduction.ablations import SCORES, note, row, scores, variant
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.scale import scale
from entropy_mcmc_reproduction.text import compared, number


def jobs(size: str, place: Place) -> list[Job]:
    """Batch norm (the run all ablations share) and FRN."""
    changes = {"model": {"options": {"name": scale(size).model, "norm": "frn"}}}
    other = variant(size, place, "emcmc", "emcmc-frn", changes=changes)
    return variant(size, place, "emcmc", "emcmc") + other


def show(results: Results, size: str) -> Outcome:
    """Own statistics for the guide against those of its θ, and against FRN."""
    rows = [row(results, "BN, one pass over the data for every sample", "emcmc")]
    mine = scores(results, "emcmc", "test", "both", "accuracy")
    made = []
    if mine:
        borrowed = {k: scores(results, "emcmc", "borrowed", k) for k in ("accuracy", "nll", "ece")}
        cells = [
            number(borrowed["accuracy"], 2, 100),
            number(borrowed["nll"]),
            number(borrowed["ece"], 2, 100),
        ]
        rows.insert(0, ["BN, the guide uses the statistics of its θ", *cells])
        claim = "one more forward pass is more accurate than batch norm without it"
        made.append(compared(claim, mine, borrowed["accuracy"], lower=False, percent=True))
    rows.append(row(results, "FRN", "emcmc-frn"))
    other = scores(results, "emcmc-frn", "test", "both", "accuracy")
    if other and len(other) == len(mine):
        made.append(
            compared("batch norm is more accurate than FRN", mine, other, lower=False, percent=True)
        )
    return Outcome(["normalisation", *SCORES], rows, made, notes=[note(size), NOTE])


NOTE = (
    "Step size, η and T were chosen with batch norm, and FRN runs with the same ones: part of its "
    "distance may be theirs."
)
ITEM = Item("normalisation layers", "appendix, normalisation table", jobs, show)
