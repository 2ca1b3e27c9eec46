"""Table, figure and verdicts of the logistic regression."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Outcome, Results, Verdict
from entropy_mcmc_reproduction.text import compared, number

METHODS = {
    "emcmc": "EMCMC",
    "sgld": "SGLD",
    "entropy-sgd": "Entropy-SGD",
    "entropy-sgld": "Entropy-SGLD",
}


def job_name(method: str) -> str:
    """Name of the job of a method."""
    return f"logistic/{method}"


def show(results: Results, scale: str) -> Outcome:
    """A row for each method: what it reached, per gradient and per iteration."""
    found = {m: results[job_name(m)] for m in METHODS if job_name(m) in results}
    if not found:
        return Outcome([], [], [])
    columns = [
        *("method", "mean train NLL by gradient", "by iteration", "last train NLL"),
        *("last test accuracy %", "averaged test accuracy %", "averaged test NLL", "step sizes"),
    ]
    rows = [_row(METHODS[m], r) for m, r in found.items()]
    return Outcome(
        columns,
        rows,
        _verdicts(found) if len(found) == len(METHODS) else [],
        {"logistic": lambda path: draw(path, found)},
        _notes(next(iter(found.values()))),
    )


def _notes(result: dict[str, Any]) -> list[str]:
    trials, seeds = len(result["trials"]), len(result["average_accuracy"])
    return [
        f"{result['rows']} training rows, {seeds} seeds ± standard error, T = 1, prior N(0, I), "
        f"batch 128, {result['gradients'][-1]} gradients for every method; a step of the nested "
        "methods takes 5 gradients. The step sizes (and η) of every method are the best of "
        f"{trials} trials by the mean training NLL over the run, one other seed; no test row was "
        "used. Mean train NLL: the area under the curve of the current θ, over the whole budget "
        "or over as many iterations as the nested methods make with it. Averaged: the predictive "
        "average over the second half of the run (EMCMC: θ and θ_a)."
    ]


def _row(label: str, result: dict[str, Any]) -> list[str]:
    numbers = ", ".join(f"{k} {v:.3g}" for k, v in result["numbers"].items())
    return [
        label,
        number(result["mean_nll_by_gradient"], 4),
        number(result["mean_nll_by_iteration"], 4),
        number(result["last"]["train_nll"], 4),
        number(result["last"]["accuracy"], 2, 100),
        number(result["average_accuracy"], 2, 100),
        number(result["average_nll"], 4),
        numbers,
    ]


def _verdicts(found: dict[str, Any]) -> list[Verdict]:
    ours = found["emcmc"]
    made = []
    for other in ("entropy-sgd", "entropy-sgld"):
        for unit in ("gradient", "iteration"):
            key = f"mean_nll_by_{unit}"
            claim = f"EMCMC converges faster than {METHODS[other]} (training NLL per {unit})"
            made.append(compared(claim, ours[key], found[other][key], lower=True))
    made.append(_similar(ours, found["sgld"]))
    averaged = [r["average_accuracy"] for r in (ours, found["sgld"])]
    last = [r["last"]["accuracy"] for r in (ours, found["sgld"])]
    for what, pair in (("averaged", averaged), ("last sample", last)):
        claim = f"EMCMC has a higher test accuracy than SGLD ({what})"
        made.append(compared(claim, *pair, lower=False, percent=True))
    return made


def _similar(ours: dict[str, Any], sgld: dict[str, Any]) -> Verdict:
    means = [float(np.mean(r["mean_nll_by_gradient"])) for r in (ours, sgld)]
    ratio = means[0] / means[1]
    measured = f"mean training NLL of EMCMC is {ratio:.3f} of SGLD's; similar means within 10 %"
    decision = "holds" if abs(ratio - 1) <= 0.1 else "does not hold"
    return Verdict("EMCMC and SGLD share similar convergence rates", measured, decision)


def draw(path: Path, found: dict[str, Any]) -> None:
    """Training NLL and test accuracy, per gradient and per iteration."""
    figure, flat = panels(4, 2, 4.2, 2.9)
    axes = np.reshape(np.array(flat), (2, 2))
    for method, result in found.items():
        for column, unit in enumerate(("gradients", "iterations")):
            for row, key in enumerate(("train_nll", "accuracy")):
                curve, factor = result["curves"][key], 100 if row else 1
                _band(
                    axes[row, column], result[unit], curve, factor, METHODS[method], PALETTE[method]
                )
    # The first steps overshoot; the end is what the curves are compared by.
    ends = max(np.mean(f["last"]["train_nll"]) for f in found.values())
    last = max(f["iterations"][-1] for m, f in found.items() if m.startswith("entropy"))
    for column, unit in enumerate(("gradients", "iterations")):
        axes[0, column].set(yscale="log", ylabel="training NLL")
        axes[0, column].set_ylim(top=3 * ends)
        axes[1, column].set(xlabel=unit, ylabel="test accuracy %")
        low = min(100 * np.median(r["curves"]["accuracy"]["mean"]) for r in found.values())
        axes[1, column].set_ylim(low - 2.5, min(100.0, low + 2.0))
        if unit == "iterations":
            for axis in axes[:, column]:
                axis.set_xlim(0, last)
    axes[0, 0].legend(frameon=False, fontsize=8)
    save(figure, path)


def _band(axis: Any, times: Any, curve: Any, factor: int, label: str, colour: str) -> None:
    mean, error = (factor * np.asarray(curve[key]) for key in ("mean", "error"))
    axis.plot(times, mean, color=colour, label=label, lw=1.4)
    axis.fill_between(times, mean - error, mean + error, color=colour, alpha=0.25, lw=0)
