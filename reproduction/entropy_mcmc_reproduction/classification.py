"""Table 1a: accuracy and NLL of every method."""

from __future__ import annotations

from entropy_mcmc_reproduction import cifar
from entropy_mcmc_reproduction.cifar import of, values
from entropy_mcmc_reproduction.items import Item, Outcome, Results, Verdict
from entropy_mcmc_reproduction.methods import ENTRIES
from entropy_mcmc_reproduction.scale import scale
from entropy_mcmc_reproduction.text import compared, number

COLUMNS = [
    "data",
    "method",
    "samples",
    "accuracy %",
    "NLL",
    "ECE %",
    "training NLL",
    "last θ: accuracy %",
    "NLL",
]


def show(results: Results, size: str) -> Outcome:
    """One row per data set and method."""
    rows = [
        _row(results, group, method, size)
        for group in cifar.groups(size)
        for method in cifar.finished(results, group)
    ]
    notes = [cifar.budget_note(size), *_tuning_note(size)]
    if size != "paper":
        notes.append(
            "CIFAR-100: not run here (only 1,117 of its pictures are to be had); "
            "`--scale paper` has its configs."
        )
    return Outcome(COLUMNS, rows, verdicts(results), notes=notes)


def _tuning_note(size: str) -> list[str]:
    chosen = scale(size)
    if not chosen.trials:
        return []
    return [  # the headline of the README shows it, after the budget
        f"The hyper-parameters of every method are the best of {chosen.trials} trials by the NLL "
        f"of {chosen.validation_rows:,} held-out training pictures at {chosen.search_part:g} of "
        "the length. These short trials end before some methods overfit, so the step size chosen "
        "for them may be too large for the full length: see the training NLL."
    ]


def _row(results: Results, group: str, method: str, size: str) -> list[str]:
    found = of(results, method, group)
    return [
        cifar.data_name(group, size),
        ENTRIES[method].label,
        str(found[0]["test"]["samples"]),
        number(values(found, "test", "both", "accuracy"), 2, 100),
        number(values(found, "test", "both", "nll")),
        number(values(found, "test", "both", "ece"), 2, 100),
        number(values(found, "train", "both", "nll")),
        number(values(found, "test", "last_theta", "accuracy"), 2, 100),
        number(values(found, "test", "last_theta", "nll")),
    ]


def verdicts(results: Results) -> list[Verdict]:
    """EMCMC against every other method: the paper's, then what a user might pick."""
    made = []
    for path, lower, what in (("accuracy", False, "accuracy"), ("nll", True, "NLL")):
        for method, entry in ENTRIES.items():
            if method == "emcmc" or len(of(results, method)) != len(of(results, "emcmc")):
                continue
            source = "" if entry.in_paper else "(beyond the paper) "
            claim = f"{source}EMCMC has a better {what} than {entry.label}"
            pair = [values(of(results, m), "test", "both", path) for m in ("emcmc", method)]
            made.append(compared(claim, *pair, lower=lower, percent=not lower))
    return made


ITEM = Item("classification of pictures", "Table 1a", cifar.jobs, show)
