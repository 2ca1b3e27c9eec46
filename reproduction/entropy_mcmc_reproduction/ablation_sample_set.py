"""Appendix: samples of θ, of θ_a, or of both."""

from __future__ import annotations

from entropy_mcmc_reproduction import cifar
from entropy_mcmc_reproduction.ablations import WHO
from entropy_mcmc_reproduction.cifar import of, values
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.text import compared, number


def jobs(size: str, place: Place) -> list[Job]:
    """The main runs of EMCMC: no others are needed."""
    return [j for j in cifar.jobs(size, place) if j.name.startswith("cifar10/emcmc-")]


def show(results: Results, size: str) -> Outcome:
    """Three sets of samples of the same chains."""
    found = of(results, "emcmc")
    keys = (("accuracy", 2, 100.0), ("nll", 3, 1.0), ("ece", 2, 100.0))
    rows = [
        [name, *(number(values(found, "test", who, k), d, f) for k, d, f in keys)]
        for who, name in WHO.items()
        if found
    ]
    made = [
        compared(
            f"both together are more accurate than {WHO[who]} alone",
            values(found, "test", "both", "accuracy"),
            values(found, "test", who, "accuracy"),
            lower=False,
            percent=True,
        )
        for who in ("theta", "guide")
        if found
    ]
    note = "Both together are twice as many samples as either alone."
    columns = ["samples", "accuracy %", "NLL", "ECE %"]
    return Outcome(columns, rows, made, notes=[cifar.budget_note(size), note])


ITEM = Item("composition of the sample set", "appendix, sample-set table", jobs, show)
