"""Table, figure and verdicts of the logistic regression."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from entropy_mcmc_reproduction.claims import Claim, verdicts
from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Outcome, Results
from entropy_mcmc_reproduction.text import number

LABELS = {
    "emcmc": "EMCMC",
    "sgld": "SGLD",
    "entropy-sgd": "Entropy-SGD",
    "entropy-sgld": "Entropy-SGLD",
    "sgd": "SGD",
}
OURS = "emcmc"
COLUMNS = (
    *("method", "training NLL, mean over the run", "at its end", "test NLL", "test accuracy %"),
    *("fastest setting", "best predicting setting"),
)
FASTER = "EMCMC learns faster than {}, per gradient"
AS_FAST = "EMCMC learns as fast as {}, per gradient"
WITHIN = "as fast means within the margin; judged so after the result was seen, as better before"
PAPERS = {  # by measure and rival
    ("train_nll", "sgld"): "alike",
    ("train_nll", "entropy-sgd"): "faster",
    ("train_nll", "entropy-sgld"): "faster",
    ("accuracy", "sgld"): "higher",
}


def job_name(method: str) -> str:
    """Name of the job of a method."""
    return f"logistic/{method}"


def show(results: Results, scale: str) -> Outcome:
    """A row for each method, then the claims: NLL, accuracy, speed."""
    found = {m: results[job_name(m)] for m in LABELS if job_name(m) in results}
    if not found:
        return Outcome([], [], [])
    rows = [_row(LABELS[m], result) for m, result in found.items()]
    made = verdicts(claims(), by_seed(found))
    figures = {"logistic": lambda path: draw(path, found)}
    return Outcome(list(COLUMNS), rows, made, figures, _notes(found))


def by_seed(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A result for each method and seed, as claims read them."""
    return {
        f"{job_name(method)}-{seed}": {
            "measures": {name: values[seed] for name, values in result["measures"].items()}
        }
        for method, result in found.items()
        for seed in range(len(result["measures"]["nll"]))
    }


def claims() -> list[Claim]:
    """EMCMC against every rival, in every measure; SGD is a control, the paper has the others."""
    made = []
    for measure, text in (
        ("nll", "EMCMC predicts better than {}"),
        ("accuracy", "EMCMC has a higher test accuracy than {}"),
        ("train_nll", FASTER),
    ):
        for rival in [m for m in LABELS if m != OURS]:
            alike = (measure, rival) == ("train_nll", "sgld")
            made.append(
                Claim(
                    (AS_FAST if alike else text).format(LABELS[rival]),
                    job_name(OURS),
                    job_name(rival),
                    measure,
                    PAPERS.get((measure, rival), ""),
                    source="paper" if (measure, rival) in PAPERS else "ours",
                    alike=alike,
                    limit=WITHIN if alike else "",
                    short=f"{'as' if alike else 'than'} {LABELS[rival]}",
                )
            )
    return made


def _row(label: str, result: Mapping[str, Any]) -> list[str]:
    measures = result["measures"]
    return [
        label,
        number(measures["train_nll"], 4),
        number(measures["last_train_nll"], 4),
        number(measures["nll"], 4),
        number(measures["accuracy"], 2, 100),
        *(_setting(result, name) for name in ("speed", "prediction")),
    ]


def _setting(result: Mapping[str, Any], name: str) -> str:
    place, length = result["picks"][name]
    numbers = ", ".join(f"{k} {v:.3g}" for k, v in result["trials"][place].items())
    return f"{numbers}, stopped at half" if length < 1 else numbers


def _notes(found: Mapping[str, Any]) -> list[str]:
    result = found[next(iter(found))]
    trials, seeds = len(result["trials"]), len(result["measures"]["nll"])
    return [
        f"{result['rows']:,} training rows, {seeds} seeds ± standard error, T = 1, noise from the "
        f"first step, constant lr, {result['gradients'][-1]:,} gradients on batches of 128 for "
        f"every method; a step of the nested methods takes 5 of them. Settings of every method: "
        f"the best of {trials} trials at the full budget, by validation rows of the training set "
        "and other seeds: one by the mean NLL of the current θ over the run (speed), one by the "
        "NLL of the averaged prediction, stopped at half or the end. Test rows are used once. "
        "Predictions are averages over the second half of what is run (EMCMC: θ and θ_a).",
        "The same mini-batches for all methods make small differences visible: a difference below "
        "the margin (0.01 nats, half a point) can be decided, and is then no less small.",
        f"Picks at the end of a range: {edges(found)}.",
    ]


def edges(found: Mapping[str, Any]) -> str:
    """How many of the picked numbers are the smallest or largest that was tried."""
    hits = [
        trials[place][name] in (min(t[name] for t in trials), max(t[name] for t in trials))
        for result in found.values()
        for trials in [result["trials"]]
        for place, _ in result["picks"].values()
        for name in trials[0]
    ]
    return f"{sum(hits)} of {len(hits)}"


def draw(path: Path, found: Mapping[str, Any]) -> None:
    """Training NLL and test accuracy of the current θ by gradient, each at its fastest setting."""
    figure, axes = panels(2, 2, 4.6, 3.2)
    for axis, key, factor in zip(axes, ("train_nll", "accuracy"), (1, 100), strict=True):
        for method, result in found.items():
            _band(axis, result, key, factor, LABELS[method], PALETTE[method])
            if f"guide_{key}" in result["curves"]:
                label = f"{LABELS[method]}, guide"
                _band(axis, result, f"guide_{key}", factor, label, PALETTE["guide"])
    # The first steps come from NLL log 2: the axes show where the curves differ.
    ends = [np.asarray(r["curves"]["train_nll"]["mean"][1:]) for r in found.values()]
    axes[0].set(yscale="log", ylabel="training NLL", xlabel="gradients")
    marks = (0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
    axes[0].set_yticks(marks, [f"{mark:g}" for mark in marks])
    axes[0].minorticks_off()
    axes[0].set_ylim(0.9 * min(e.min() for e in ends), 3 * max(e[-1] for e in ends))
    low = min(100 * np.median(r["curves"]["accuracy"]["mean"]) for r in found.values())
    axes[1].set(ylabel="test accuracy %", xlabel="gradients", ylim=(low - 2.0, min(100, low + 2.0)))
    axes[1].legend(frameon=False, fontsize=7, loc="lower right")
    save(figure, path)


def _band(axis: Any, result: Any, key: str, factor: int, label: str, colour: str) -> None:
    mean, error = (factor * np.asarray(result["curves"][key][part]) for part in ("mean", "error"))
    axis.plot(result["gradients"], mean, color=colour, label=label, lw=1.3)
    low, high = mean - error, mean + error
    axis.fill_between(result["gradients"], low, high, color=colour, alpha=0.25, lw=0)
