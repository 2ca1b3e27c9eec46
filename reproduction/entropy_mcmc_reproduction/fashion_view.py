"""Table, figure and verdicts of Fashion-MNIST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Outcome, Results, Verdict
from entropy_mcmc_reproduction.methods import ENTRIES
from entropy_mcmc_reproduction.text import compared, mean_error, number

METHODS = ("sgd", "snapshots", "ensemble", "sgld", "emcmc")
SCORES = {"accuracy": "accuracy %", "nll": "NLL", "ece": "ECE %"}


def job_name(method: str, seed: int) -> str:
    """Name of the job of a method and seed."""
    return f"fashion/{method}-{seed}"


def show(results: Results, scale: str) -> Outcome:
    """A row for each method."""
    found = {m: _seeds(results, m) for m in METHODS}
    found = {method: seeds for method, seeds in found.items() if seeds}
    if not found:
        return Outcome([], [], [])
    others = list(next(iter(found.values()))[0]["ood"])
    columns = ["method", "samples", *SCORES.values(), *(f"AUROC % {s}" for s in others)]
    rows = [_row(method, seeds, others) for method, seeds in found.items()]
    return Outcome(
        columns,
        rows,
        _verdicts(found, others),
        {"fashion": lambda path: draw(path, found, others)},
        _notes(found) if scale != "smoke" else [],
    )


def _seeds(results: Results, method: str) -> list[dict[str, Any]]:
    names = [name for name in results if name.rpartition("-")[0] == f"fashion/{method}"]
    return [results[name] for name in sorted(names, key=lambda n: int(n.rpartition("-")[2]))]


def _scores(seeds: list[dict[str, Any]], score: str) -> list[float]:
    return [seed["test"]["both"][score] for seed in seeds]


def _auroc(seeds: list[dict[str, Any]], other: str) -> list[float]:
    return [seed["ood"][other]["auroc"] for seed in seeds]


def _row(method: str, seeds: list[dict[str, Any]], others: list[str]) -> list[str]:
    return [
        ENTRIES[method].label,
        str(seeds[0]["test"]["samples"]),
        number(_scores(seeds, "accuracy"), 2, 100),
        number(_scores(seeds, "nll"), 4),
        number(_scores(seeds, "ece"), 2, 100),
        *(number(_auroc(seeds, other), 2, 100) for other in others),
    ]


def _notes(found: dict[str, Any]) -> list[str]:
    trials = len(found[next(iter(found))][0]["chosen"]["validation_nll"])
    numbers = "; ".join(
        f"{ENTRIES[m].label} "
        + ", ".join(f"{k} {v:.3g}" for k, v in seeds[0]["chosen"]["numbers"].items())
        for m, seeds in found.items()
    )
    return [
        "± standard error over seeds. All 60,000 training pictures, a CNN of 8 and 16 channels, "
        "batch 256, no augmentation, 16 passes over the data for every method: the cyclical ones "
        "share 8 of SGD as a warm start, the four members of the ensemble have 4 each. OOD "
        "pictures are told by predictive entropy, and are the positives.",
        f"Hyper-parameters of every method: the best of {trials} trials of a quarter of the "
        f"length, by the NLL of 5,000 held-out training pictures ({numbers}).",
    ]


def _verdicts(found: dict[str, Any], others: list[str]) -> list[Verdict]:
    made = []
    for other in ("sgld", "sgd", "snapshots", "ensemble"):
        if not {other, "emcmc"} <= set(found) or len(found[other]) != len(found["emcmc"]):
            continue
        pair = found["emcmc"], found[other]
        label = ENTRIES[other].label
        claim = f"(beyond the paper) EMCMC has a better {{}} than {label}"
        nll = [_scores(seeds, "nll") for seeds in pair]
        made.append(compared(claim.format("NLL"), *nll, lower=True))
        mean = [np.mean([_auroc(seeds, s) for s in others], 0).tolist() for seeds in pair]
        what = "mean OOD AUROC"
        made.append(compared(claim.format(what), *mean, lower=False, percent=True))
    return made


def draw(path: Path, found: dict[str, Any], others: list[str]) -> None:
    """Every score of every method with its standard error."""
    scores = [(label, name, None) for name, label in SCORES.items()]
    wanted = [*scores, *((f"AUROC % {s}", s, s) for s in others)]
    figure, axes = panels(len(wanted), 3, 3.4, 2.0)
    for axis, (title, name, other) in zip(axes, wanted, strict=True):
        for place, (method, seeds) in enumerate(found.items()):
            values = _auroc(seeds, name) if other else _scores(seeds, name)
            factor = 1 if name == "nll" else 100
            mean, error = mean_error([factor * v for v in values])
            axis.errorbar(mean, place, xerr=error, fmt="o", ms=5, color=PALETTE[method])
        axis.set_title(title, fontsize=10)
        axis.set_yticks(range(len(found)), [ENTRIES[m].label for m in found])
        axis.set_ylim(len(found) - 0.5, -0.5)
    save(figure, path)
