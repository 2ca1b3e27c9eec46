"""Table 1b and its figure by type: predictions of corrupted pictures, by docs/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from entropy_mcmc import metrics
from entropy_mcmc_reproduction import stored_runs
from entropy_mcmc_reproduction.claims import Claim, verdicts
from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.paper_values import CORRUPTED, against
from entropy_mcmc_reproduction.seeds import by_seed
from entropy_mcmc_reproduction.text import number
from tournament import methods
from tournament.data import CORRUPTIONS
from tournament.methods import slug
from tournament.scores import averaged
from tournament.tasks import TASKS

METHODS = ("SGD", "SGLD", "SGHMC", "ensemble 4", "EMCMC")
COLOURS = {"SGD": "sgd", "SGLD": "sgld", "SGHMC": "sghmc", "ensemble 4": "ensemble"}
TASK_OF = {"smoke": "digits-corrupted", "laptop": "fashion-cnn-corrupted"}
TASK_OF["paper"] = "cifar10-paper-corrupted"
SEEDS, SHARE = {"smoke": 2, "laptop": 5, "paper": 3}, {"smoke": 0.05}
LEVELS = sorted({level for _, level in CORRUPTIONS})
MEASURES = ("nll", "ece", "accuracy")
PAPER = {name: float(np.mean(levels)) for name, levels in CORRUPTED.items()}  # accuracy
Array = npt.NDArray[Any]


def jobs(size: str, place: Place) -> list[Job]:
    """Every method with every seed."""
    share = SHARE.get(size, 1.0)
    return [
        stored_runs.job(
            f"corruption/{slug(name)}",
            methods.by_name(name),
            TASK_OF[size],
            seed,
            {"augmented": True} if size == "paper" else None,
            share,
            measure="corruption:measure",
        )
        for seed in range(SEEDS[size])
        for name in METHODS
    ]


def unavailable(size: str, place: Place) -> str | None:
    """The smoke scale has embedded pictures."""
    return None if size == "smoke" or place.data else "it needs data: set EMCMC_DATA"


def measure(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Scores by type and severity, and their means over all of them."""
    answers = stored_runs.answered(settings, place)
    if answers is None:
        return {"diverged": "a weight or an output stopped being finite"}
    parts = [averaged(part) for part in answers.ood]
    targets = answers.test_y[: len(parts[0])]
    by = [scores(part, targets) for part in parts]
    found: dict[str, dict[str, Any]] = {}
    for (kind, level), values in zip(CORRUPTIONS, by, strict=True):
        found.setdefault(kind, {})[str(level)] = values
    return {
        "measures": {name: float(np.mean([each[name] for each in by])) for name in MEASURES},
        "clean": scores(averaged(answers.test), answers.test_y),
        "by": found,
    }


def scores(probs: Array, targets: Array) -> dict[str, float]:
    """Of one set of pictures."""
    return {name: float(getattr(metrics, name)(probs, targets)) for name in MEASURES}


def show(results: Results, size: str) -> Outcome:
    """Accuracy by severity and means over all, then the claims, NLL first."""
    shown = [name for name in METHODS if _of(results, name)]
    rows = [_row(name, _of(results, name)) for name in shown]
    claims = [
        Claim(
            f"EMCMC is better than {rival}, on average over corruptions",
            *_pair(rival),
            measure,
            against(measure, PAPER, rival) if measure == "accuracy" else "",
            source="paper" if rival in PAPER else "ours",
            short=f"than {rival}",
        )
        for measure in MEASURES
        for rival in METHODS
        if rival != "EMCMC"
    ]
    columns = ["method", "seeds", "clean", *(f"severity {level}" for level in LEVELS)]
    columns += ["mean NLL", "mean ECE %", "mean accuracy %"]
    figures = {"corruption": lambda path: draw(results, shown, path)} if shown else {}
    return Outcome(columns, rows, verdicts(claims, results), figures, _notes(size))


def _of(results: Results, name: str) -> list[dict[str, Any]]:
    return list(by_seed(results, f"corruption/{slug(name)}").values())


def _pair(rival: str) -> tuple[str, str]:
    return f"corruption/{slug('EMCMC')}", f"corruption/{slug(rival)}"


def _row(name: str, seeds: list[dict[str, Any]]) -> list[str]:
    clean = number([s["clean"]["accuracy"] for s in seeds], 2, 100)
    levels = [number([accuracy(s["by"], level) for s in seeds], 2, 100) for level in LEVELS]
    means = [
        number([s["measures"][measure] for s in seeds], digits, factor)
        for measure, digits, factor in (("nll", 4, 1), ("ece", 2, 100), ("accuracy", 2, 100))
    ]
    return [name, str(len(seeds)), clean, *levels, *means]


def accuracy(by: Mapping[str, Mapping[str, Any]], level: int) -> float:
    """Mean over the types at one severity."""
    return float(np.mean([levels[str(level)]["accuracy"] for levels in by.values()]))


def _notes(size: str) -> list[str]:
    task = TASKS[TASK_OF[size]]
    return [
        f"`{task.name}`: {task.train:,} training rows, {SHARE.get(size, 1.0) * task.passes:g} "
        "passes for every row of the table, each method by its recipe. Columns of severities are "
        "accuracies in per cent, means over 15 types of corruption; the last three are means over "
        "types and severities.",
        "The corruptions are this library's own code with the published constants, on the first "
        "test pictures, the same for all methods.",
    ]


def draw(results: Results, shown: list[str], path: Path) -> None:
    """One small panel for each type: accuracy by severity."""
    kinds = list(dict.fromkeys(kind for kind, _ in CORRUPTIONS))
    figure, axes = panels(len(kinds), columns=5, width=2.1, height=1.7, share=True)
    for axis, kind in zip(axes, kinds, strict=True):
        for name in shown:
            seeds = _of(results, name)
            means = [
                100 * np.mean([s["by"][kind][str(level)]["accuracy"] for s in seeds])
                for level in LEVELS
            ]
            axis.plot(LEVELS, means, color=PALETTE[COLOURS.get(name, "emcmc")], label=name, lw=1.3)
        axis.set_title(kind.replace("_", " "), fontsize=8)
        axis.set_xticks(LEVELS)
    axes[0].legend(fontsize=5.5, frameon=False)
    figure.supxlabel("severity", fontsize=9)
    figure.supylabel("accuracy %", fontsize=9)
    save(figure, path)


ITEM = Item(
    "Corrupted pictures",
    "Table 1b and the appendix figure",
    jobs,
    show,
    unavailable,
    "EMCMC predicts corrupted pictures better than SGD and SGLD",
)
