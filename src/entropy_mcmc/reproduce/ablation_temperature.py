"""Appendix: temperatures from 1 to 1e-6 for SGLD and EMCMC."""

from __future__ import annotations

from entropy_mcmc.reproduce.ablations import note, scores, variant
from entropy_mcmc.reproduce.items import Item, Outcome, Results
from entropy_mcmc.reproduce.jobs import Job, Place
from entropy_mcmc.reproduce.text import compared, number

TEMPERATURES = ("1", "1e-1", "1e-2", "1e-3", "1e-4", "1e-5", "1e-6")
SMOKE = ("1", "1e-6")


def temperatures(size: str) -> tuple[str, ...]:
    """Those of a scale."""
    return SMOKE if size == "smoke" else TEMPERATURES


def jobs(size: str, place: Place) -> list[Job]:
    """Both methods at every temperature."""
    return [
        made
        for method in ("sgld", "emcmc")
        for t in temperatures(size)
        for made in variant(
            size, place, method, f"{method}-T{t}", numbers={"temperature": float(t)}
        )
    ]


def show(results: Results, size: str) -> Outcome:
    """Accuracy and NLL by temperature."""
    levels = temperatures(size)
    rows = []
    for method, label in (("sgld", "SGLD"), ("emcmc", "EMCMC")):
        for key, name, digits, factor in (
            ("accuracy", "accuracy %", 2, 100.0),
            ("nll", "NLL", 3, 1.0),
        ):
            found = [scores(results, f"{method}-T{t}", "test", "both", key) for t in levels]
            cells = [number(f, digits, factor) if f else "–" for f in found]
            rows.append([f"{label}, {name}", *cells])
    made = []
    for t in levels:
        pair = [scores(results, f"{m}-T{t}", "test", "both", "accuracy") for m in ("emcmc", "sgld")]
        if pair[0] and len(pair[0]) == len(pair[1]):
            made.append(
                compared(
                    f"EMCMC is more accurate than SGLD at T = {t}", *pair, lower=False, percent=True
                )
            )
    hot, cold = (scores(results, f"emcmc-T{t}", "test", "both", "accuracy") for t in _ends(levels))
    if hot and len(hot) == len(cold):
        claim = f"EMCMC is more accurate at T = {levels[-1]} than at T = 1"
        made.append(compared(claim, cold, hot, lower=False, percent=True))
    return Outcome(["T", *levels], rows, made, notes=[note(size)])


def _ends(levels: tuple[str, ...]) -> tuple[str, str]:
    return levels[0], levels[-1]


ITEM = Item("temperature", "appendix, temperature table", jobs, show)
