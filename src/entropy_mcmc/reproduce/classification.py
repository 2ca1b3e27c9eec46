"""Table 1a: accuracy and NLL of every method."""

from __future__ import annotations

from entropy_mcmc.reproduce import cifar
from entropy_mcmc.reproduce.cifar import of, rival, values
from entropy_mcmc.reproduce.items import Item, Outcome, Results, Verdict
from entropy_mcmc.reproduce.methods import ENTRIES
from entropy_mcmc.reproduce.text import compared, number

COLUMNS = ["data", "method", "samples", "accuracy %", "NLL", "ECE %", "last θ: accuracy %", "NLL"]


def show(results: Results, size: str) -> Outcome:
    """One row per data set and method."""
    rows = [
        _row(results, group, method, size)
        for group in cifar.groups(size)
        for method in cifar.finished(results, group)
    ]
    notes = [cifar.budget_note(size)]
    if size != "paper":
        notes.append(
            "CIFAR-100: not run here (only 1,117 of its pictures are to be had); "
            "`--scale paper` has its configs."
        )
    return Outcome(COLUMNS, rows, verdicts(results), notes=notes)


def _row(results: Results, group: str, method: str, size: str) -> list[str]:
    found = of(results, method, group)
    return [
        cifar.data_name(group, size),
        ENTRIES[method].label,
        str(found[0]["test"]["samples"]),
        number(values(found, "test", "both", "accuracy"), 2, 100),
        number(values(found, "test", "both", "nll")),
        number(values(found, "test", "both", "ece"), 2, 100),
        number(values(found, "test", "last_theta", "accuracy"), 2, 100),
        number(values(found, "test", "last_theta", "nll")),
    ]


def verdicts(results: Results) -> list[Verdict]:
    """EMCMC against the best other method of the paper, and against what a user might pick."""
    made = []
    for path, lower, what in (("accuracy", False, "accuracy"), ("nll", True, "NLL")):
        other = rival(results, "test", "both", path, lower=lower)
        for method in [other, "snapshots", "swa", "ensemble", "ivon"]:
            if method is None or len(of(results, method)) != len(of(results, "emcmc")):
                continue
            source = "paper" if method == other else "ours"
            claim = f"EMCMC has a better {what} than {ENTRIES[method].label} ({source})"
            pair = [values(of(results, m), "test", "both", path) for m in ("emcmc", method)]
            made.append(compared(claim, *pair, lower=lower))
    return made


ITEM = Item("classification of pictures", "Table 1a", cifar.jobs, show)
