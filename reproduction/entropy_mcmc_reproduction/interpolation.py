"""Fig. 5 and appendix: loss and error towards random directions, and from θ to its guide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc_reproduction import cifar
from entropy_mcmc_reproduction.cifar import of
from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Item, Outcome, Results, Verdict
from entropy_mcmc_reproduction.spectrum import states
from entropy_mcmc_reproduction.text import FAILS, HOLDS, UNDECIDED, compared, number

BARRIER = 0.02  # in NLL; less counts as none
COLOURS = {"SGD": "sgd", "SGLD": "sgld", "EMCMC": "emcmc", "EMCMC guide": "guide"}


def show(results: Results, size: str) -> Outcome:
    """Rise of the training NLL with the distance, and the figure's three panels."""
    found = states(results)
    if not found:
        return Outcome([], [], [], notes=[cifar.budget_note(size)])
    distances = next(iter(found.values()))[0]["interpolation"]["distances"]
    rows = [
        [name, *(number([_at(s, k) for s in seeds], 3) for k in range(len(distances)))]
        for name, seeds in found.items()
    ]
    made = []
    for other in ("SGD", "SGLD"):
        if "EMCMC" in found and len(found.get(other, ())) == len(found["EMCMC"]):
            pair = [[_at(s, -1) - _at(s, 0) for s in found[name]] for name in ("EMCMC", other)]
            claim = f"around EMCMC's θ the NLL rises less than around {other}'s"
            made.append(compared(claim, *pair, lower=True))
    if "EMCMC guide" in found:
        pair = [[_at(s, -1) - _at(s, 0) for s in found[name]] for name in ("EMCMC guide", "EMCMC")]
        claim = "around the guide the NLL rises less than around θ"
        made.append(compared(claim, *pair, lower=True))
        pair = [[_at(s, 0, "error") for s in found[name]] for name in ("EMCMC guide", "EMCMC")]
        claim = "the guide has a lower test error than θ"
        made.append(compared(claim, *pair, lower=True, percent=True))
    between = [r["flatness"]["between"] for r in of(results, "emcmc")]
    if between:
        barrier = [max(b["loss"][0]) - max(b["loss"][0][0], b["loss"][0][-1]) for b in between]
        claim = "θ and θ_a lie in the same basin: no barrier above the worse end"
        held = HOLDS if max(barrier) <= BARRIER else FAILS
        held = held if len(barrier) > 1 else UNDECIDED
        made.append(Verdict(claim, f"largest barrier {max(barrier):.3g} in NLL", held))
    figures = {"interpolation": lambda path: draw(found, between, path)}
    columns = ["training NLL at distance", *(f"{d:g}" for d in distances)]
    return Outcome(columns, rows, made, figures, [cifar.budget_note(size), NOTE])


NOTE = (
    "Random directions keep the batch-norm statistics of the starting point; on the line from θ to "
    f"its guide they are estimated anew at every point. A barrier up to {BARRIER} counts as none."
)


def _at(state: dict[str, Any], index: int, key: str = "loss") -> float:
    return float(np.mean([line[index] for line in state["interpolation"][key]]))


def draw(found: dict[str, list[dict[str, Any]]], between: list[dict[str, Any]], path: Path) -> None:
    """Training NLL and test error towards random directions; both from θ to θ_a."""
    figure, axes = panels(3, columns=3)
    for name, seeds in found.items():
        colour = PALETTE[COLOURS[name]]
        for axis, key in zip(axes, ("loss", "error"), strict=False):
            lines = np.concatenate([s["interpolation"][key] for s in seeds])
            distances, mean, std = (
                seeds[0]["interpolation"]["distances"],
                lines.mean(0),
                lines.std(0),
            )
            axis.plot(distances, mean, color=colour, label=name, marker=".", lw=1.4)
            axis.fill_between(distances, mean - std, mean + std, color=colour, alpha=0.15, lw=0)
    for axis, label in zip(axes, ("training NLL", "test error"), strict=False):
        axis.set_xlabel("distance from the sample", fontsize=8)
        axis.set_ylabel(label, fontsize=8)
    axes[0].legend(fontsize=7, frameon=False, loc="upper left")
    for line in between:
        fractions = np.asarray(line["distances"]) / line["distances"][-1]
        axes[2].plot(fractions, line["loss"][0], color=PALETTE["emcmc"], lw=1.2)
        axes[2].plot(fractions, line["error"][0], color=PALETTE["emcmc"], lw=1.2, ls="--")
    axes[2].set_xlabel("from θ (0) to θ_a (1)", fontsize=8)
    axes[2].set_ylabel("training NLL (solid), test error (dashed)", fontsize=8)
    save(figure, path)


ITEM = Item("interpolation in parameter space", "Fig. 5 and appendix", cifar.jobs, show)
