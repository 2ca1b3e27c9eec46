"""Appendix: how much of each cycle is plain SGD."""

from __future__ import annotations

from entropy_mcmc_reproduction.ablations import SCORES, note, row, scores, variant
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.scale import scale
from entropy_mcmc_reproduction.text import compared

# The paper's 0, 10, 20, 30, 40 and 47 of 50 epochs.
PARTS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.94)
SMOKE = (0.0, 0.5)


def parts(size: str) -> tuple[float, ...]:
    """Those of a scale; the scale's own is the run that all ablations share."""
    return SMOKE if size == "smoke" else PARTS


def _label(part: float, size: str) -> str:
    return "emcmc" if part == scale(size).burn_in else f"emcmc-burn{part:g}"


def jobs(size: str, place: Place) -> list[Job]:
    """EMCMC with every burn-in."""
    made: list[Job] = []
    for part in parts(size):
        changes = None if part == scale(size).burn_in else {"schedule": {"burn_in": part}}
        made += variant(size, place, "emcmc", _label(part, size), changes=changes)
    return made


def show(results: Results, size: str) -> Outcome:
    """Scores by burn-in; the paper finds 40 of 50 epochs best."""
    rows = [row(results, f"{part:g} of a cycle", _label(part, size)) for part in parts(size)]
    made = []
    mine = scores(results, _label(scale(size).burn_in, size), "test", "both", "accuracy")
    for part in parts(size):
        other = scores(results, _label(part, size), "test", "both", "accuracy")
        if part != scale(size).burn_in and other and len(other) == len(mine):
            claim = f"a burn-in of {scale(size).burn_in:g} is more accurate than {part:g}"
            made.append(compared(claim, mine, other, lower=False, percent=True))
    return Outcome(["burn-in", *SCORES], rows, made, notes=[note(size), NOTE])


NOTE = "The samples of a cycle are evenly spaced over its noisy part, which the burn-in shortens."
ITEM = Item("SGD burn-in", "appendix, burn-in table", jobs, show)
