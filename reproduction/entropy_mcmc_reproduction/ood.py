"""Table 2: detection of out-of-distribution pictures by predictive entropy."""

from __future__ import annotations

from entropy_mcmc_reproduction import cifar
from entropy_mcmc_reproduction.cifar import of, rival, values
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.methods import ENTRIES
from entropy_mcmc_reproduction.scale import scale
from entropy_mcmc_reproduction.text import compared, number

COLUMNS = ["data", "OOD set", "method", "AUROC %", "AUPR % (OOD positive)", "FPR95 %"]


def show(results: Results, size: str) -> Outcome:
    """One row per method and out-of-distribution set."""
    rows, pictures = [], 0
    for group in cifar.groups(size):
        for name in scale(size).ood:
            for method in cifar.finished(results, group):
                found = of(results, method, group)
                pictures = found[0]["ood"][name]["pictures"]
                cells = [
                    number(values(found, "ood", name, key), 2, 100)
                    for key in ("auroc", "aupr", "fpr95")
                ]
                rows.append([cifar.data_name(group, size), name, ENTRIES[method].label, *cells])
    made = []
    for name in scale(size).ood:
        other = rival(results, "ood", name, "auroc", lower=False)
        if other is not None:
            claim = f"EMCMC detects {name} better than {ENTRIES[other].label}, the best other"
            pair = [values(of(results, m), "ood", name, "auroc") for m in ("emcmc", other)]
            made.append(compared(claim, *pair, lower=False, percent=True))
    note = (
        f"{pictures} out-of-distribution pictures; they are normalised like the training set. The "
        "AUPR depends on how many OOD pictures there are and cannot be compared with the paper's."
    )
    return Outcome(COLUMNS, rows, made, notes=[cifar.budget_note(size), note])


ITEM = Item("out-of-distribution detection", "Table 2", cifar.jobs, show)
