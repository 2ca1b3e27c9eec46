"""Table 1b and the figure by type: accuracy on corrupted pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc_reproduction import cifar
from entropy_mcmc_reproduction.cifar import ANALYSED, of
from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.methods import ENTRIES
from entropy_mcmc_reproduction.scale import scale
from entropy_mcmc_reproduction.text import compared, number


def show(results: Results, size: str) -> Outcome:
    """Mean accuracy over the types, by severity."""
    levels = [str(level) for level in scale(size).corruptions["levels"]]
    methods = [m for m in ANALYSED if of(results, m)]
    rows = [
        [ENTRIES[m].label, *(number(mean_accuracy(of(results, m), s), 2, 100) for s in levels)]
        for m in methods
    ]
    made = []
    for other in ("sgd", "sgld"):
        if "emcmc" in methods and len(of(results, other)) == len(of(results, "emcmc")):
            for level in levels:
                claim = f"EMCMC is more accurate than {ENTRIES[other].label} at severity {level}"
                pair = [mean_accuracy(of(results, m), level) for m in ("emcmc", other)]
                made.append(compared(claim, *pair, lower=False, percent=True))
    note = (
        f"The corruptions are our own implementation of the published ones, on the first "
        f"{scale(size).corruptions['rows']} test pictures: differences between methods are paired, "
        "the level of a row depends on these pictures."
    )
    figures = {"corruption-by-type": lambda path: draw(results, methods, levels, path)}
    return Outcome(
        ["accuracy % at severity", *levels],
        rows,
        made,
        figures if methods else {},
        [cifar.budget_note(size), note],
    )


def mean_accuracy(found: list[dict[str, Any]], level: str) -> list[float]:
    """Mean over the types at one severity, for each seed."""
    return [
        float(np.mean([by[level]["accuracy"] for by in result["corruptions"].values()]))
        for result in found
    ]


def draw(results: Results, methods: list[str], levels: list[str], path: Path) -> None:
    """One small panel per corruption type."""
    types = list(of(results, methods[0])[0]["corruptions"])
    figure, axes = panels(len(types), columns=5, width=2.1, height=1.7, share=True)
    for axis, name in zip(axes, types, strict=True):
        for method in methods:
            by = [r["corruptions"][name] for r in of(results, method)]
            mean = [100 * np.mean([seed[s]["accuracy"] for seed in by]) for s in levels]
            axis.plot(levels, mean, color=PALETTE[method], label=ENTRIES[method].label, lw=1.4)
        axis.set_title(name.replace("_", " "), fontsize=8)
    axes[0].legend(fontsize=6, frameon=False)
    figure.supxlabel("severity", fontsize=9)
    figure.supylabel("accuracy %", fontsize=9)
    save(figure, path)


ITEM = Item("corrupted pictures", "Table 1b and the appendix figure", cifar.jobs, show)
