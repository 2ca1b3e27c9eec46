"""Fig. 4: the spectrum of the diagonal Fisher information at the last sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc_reproduction import cifar
from entropy_mcmc_reproduction.cifar import ANALYSED, of
from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.methods import ENTRIES
from entropy_mcmc_reproduction.text import compared, significant

COLUMNS = ["state", "train NLL", "mean Fisher", "largest eigenvalue", "trace", "SAM sharpness"]
KEYS = ("loss", "fisher_mean", "top_eigenvalue", "trace", "sharpness")


def states(results: Results) -> dict[str, list[dict[str, Any]]]:
    """Flatness of the last θ of each method, and of EMCMC's guide, by seed."""
    found = {ENTRIES[m].label: _role(results, m, "theta") for m in ANALYSED if of(results, m)}
    if of(results, "emcmc"):
        found = {**found, "EMCMC guide": _role(results, "emcmc", "guide")}
    return found


def _role(results: Results, method: str, role: str) -> list[dict[str, Any]]:
    return [result["flatness"][role] for result in of(results, method)]


def show(results: Results, size: str) -> Outcome:
    """Table of flatness, histogram of the Fisher diagonal."""
    found = states(results)
    rows = [
        [name, *(significant([s[key] for s in seeds]) for key in KEYS)]
        for name, seeds in found.items()
    ]
    made = []
    for mine in ("EMCMC", "EMCMC guide"):
        for other in ("SGD", "SGLD"):
            if mine in found and len(found.get(other, ())) == len(found[mine]):
                for key, what in (("fisher_mean", "mean Fisher"), ("top_eigenvalue", "λ_max")):
                    pair = [[s[key] for s in found[name]] for name in (mine, other)]
                    claim = f"{mine} is flatter than {other}: smaller {what}"
                    made.append(compared(claim, *pair, lower=True))
    note = (
        "The Fisher diagonal is the paper's stand-in for the Hessian's spectrum; it also measures "
        "how well the training set is fitted, so compare it beside the training NLL."
    )
    figures = {"spectrum": lambda path: draw(found, path)} if found else {}
    return Outcome(COLUMNS, rows, made, figures, [cifar.budget_note(size), note])


def draw(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Histograms on a logarithmic axis, summed over seeds."""
    figure, axes = panels(len(found), columns=4, share=True)
    colours = {"SGD": "sgd", "SGLD": "sgld", "EMCMC": "emcmc", "EMCMC guide": "guide"}
    for axis, (name, seeds) in zip(axes, found.items(), strict=True):
        counts = np.sum([s["fisher_counts"] for s in seeds], axis=0)
        axis.stairs(counts, seeds[0]["fisher_log10_edges"], fill=True, color=PALETTE[colours[name]])
        mean = np.mean([s["fisher_mean"] for s in seeds])
        axis.axvline(np.log10(mean), color="black", lw=1, ls="--")
        axis.set_title(f"{name}: mean {mean:.2g}", fontsize=9)
        axis.set_xlabel("log10 of the diagonal Fisher", fontsize=8)
    edges = np.asarray(next(iter(found.values()))[0]["fisher_log10_edges"])
    used = np.sum([s["fisher_counts"] for seeds in found.values() for s in seeds], axis=0) > 0
    axes[0].set_xlim(edges[:-1][used].min(), edges[1:][used].max())
    axes[0].set_ylabel("parameters", fontsize=8)
    save(figure, path)


ITEM = Item("spectrum of the Fisher information", "Fig. 4", cifar.jobs, show)
