"""Appendix, confidence calibration: misclassification AUROC and ECE."""

from __future__ import annotations

from entropy_mcmc_reproduction import cifar
from entropy_mcmc_reproduction.cifar import of, values
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.methods import ENTRIES
from entropy_mcmc_reproduction.text import compared, number

COLUMNS = ["data", "method", "misclassification AUROC %", "ECE % (15 bins)", "ECE % (equal mass)"]
KEYS = (("misclassification_auroc", 2), ("ece", 2), ("ece_equal_mass", 2))


def show(results: Results, size: str) -> Outcome:
    """One row per method; lower ECE and higher AUROC are better."""
    rows = [
        [
            cifar.data_name(group, size),
            ENTRIES[method].label,
            *(
                number(values(of(results, method, group), "test", "both", key), digits, 100)
                for key, digits in KEYS
            ),
        ]
        for group in cifar.groups(size)
        for method in cifar.finished(results, group)
    ]
    made = []
    for other in ("sgd", "sgld"):
        if of(results, "emcmc") and len(of(results, other)) == len(of(results, "emcmc")):
            claim = f"EMCMC is better calibrated (ECE) than {ENTRIES[other].label}"
            pair = [values(of(results, m), "test", "both", "ece") for m in ("emcmc", other)]
            made.append(compared(claim, *pair, lower=True, percent=True))
    return Outcome(COLUMNS, rows, made, notes=[cifar.budget_note(size)])


ITEM = Item("confidence calibration", "appendix, calibration table", cifar.jobs, show)
