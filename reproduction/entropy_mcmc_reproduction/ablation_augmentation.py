"""Appendix: with and without random crops and flips."""

from __future__ import annotations

from entropy_mcmc_reproduction.ablations import SCORES, note, row, scores, variant
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.scale import scale
from entropy_mcmc_reproduction.text import compared


def _label(method: str, augmented: bool, size: str) -> str:
    return method if augmented == scale(size).augmented else f"{method}-augmented-{augmented}"


def jobs(size: str, place: Place) -> list[Job]:
    """Both methods, both ways."""
    made = []
    for method in ("sgld", "emcmc"):
        made += variant(size, place, method, method)
        other = not scale(size).augmented
        changes = {"data": {"augmented": other}}
        made += variant(size, place, method, _label(method, other, size), changes=changes)
    return made


def show(results: Results, size: str) -> Outcome:
    """EMCMC against SGLD both ways."""
    rows, made = [], []
    for augmented in (False, True):
        way = "augmented" if augmented else "not augmented"
        names = [_label(m, augmented, size) for m in ("emcmc", "sgld")]
        rows += [
            row(results, f"{way}, {title}", name)
            for title, name in zip(("EMCMC", "SGLD"), names, strict=True)
        ]
        pair = [scores(results, name, "test", "both", "accuracy") for name in names]
        if pair[0] and len(pair[0]) == len(pair[1]):
            made.append(
                compared(
                    f"EMCMC is more accurate than SGLD, {way}", *pair, lower=False, percent=True
                )
            )
    return Outcome(["data", *SCORES], rows, made, notes=[note(size)])


ITEM = Item("data augmentation", "appendix, augmentation table", jobs, show)
