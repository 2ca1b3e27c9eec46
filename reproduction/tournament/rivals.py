"""Settings of the reproduction's rivals: a grid around their authors' values.

On development tasks, by validation NLL, with seeds that judge nothing else. Of every task the
authors' values are the unit: the setting with the lowest mean logarithm of NLL over theirs wins,
over tasks and seeds, if it is better than theirs by more than `TIE`. `own.RIVALS` has what won; a
test compares the two. Where a setting that won diverges on a longer task, its lr is searched there
once more (`AGAIN`, `own.LONGER`).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tournament import own, trials
from tournament.methods import Method, by_name, trajectories
from tournament.settings import Settings
from tournament.store import Store, write_json
from tournament.tasks import Task

SEARCHED = ("digits", "digits-bn", "fashion-mlp")
SEEDS = (90, 91)
TIE = 0.005  # in logarithms: less than two seeds can tell
GRID: dict[str, dict[str, tuple[float, ...]]] = {
    "SAM": {"rho": (0.02, 0.05, 0.1, 0.2)},
    "bSAM": {"lr": (0.5, 1.0, 2.0), "temperature": (1.0, 0.1, 0.02, 0.005), "scale": (1.0, 0.1)},
    "IVON": {"lr": (0.2, 0.6, 2.0), "temperature": (1.0, 0.1, 0.02, 0.005), "scale": (0.5, 0.1)},
    "Entropy-SGD": {"lr": (0.2, 0.4, 0.8), "inner_steps": (3, 5, 10)},
    "Entropy-SGLD": {"lr": (0.2, 0.4, 0.8), "inner_steps": (3, 5, 10)},
}
# Every first value but these: with SGLD's lr in the inner chain.
AUTHORS = {
    "SAM": {"rho": 0.05},
    "Entropy-SGD": {"lr": 0.4, "inner_steps": 5},
    "Entropy-SGLD": {"lr": 0.4, "inner_steps": 5},
}
# Task → rival, and its lr: with all pictures a run is more than twice as long as the longest of
# SEARCHED.
AGAIN: dict[str, dict[str, tuple[float, ...]]] = {
    "fashion-mlp-60k": {"bSAM": (1.0, 0.5, 0.25, 0.125, 0.0625)}
}

Values = tuple[tuple[str, float], ...]


def grid(name: str) -> list[dict[str, float]]:
    """All settings of a rival, its authors' first."""
    names = list(GRID[name])
    made = [
        dict(zip(names, values, strict=True)) for values in itertools.product(*GRID[name].values())
    ]
    return sorted(made, key=lambda values: values != authors(name))


def authors(name: str) -> dict[str, float]:
    """The setting that the rival's authors have."""
    return {knob: values[0] for knob, values in GRID[name].items()} | AUTHORS.get(name, {})


def runs(task: Task) -> dict[tuple[str, Values, int], tuple[Method, list[Settings]]]:
    """Runs by (rival, its values, seed)."""
    made = {}
    again = AGAIN.get(task.name)
    for name in again or GRID:
        method = by_name(name)
        for values in [{"lr": lr} for lr in again[name]] if again else grid(name):
            knobs = {**own.knobs(method, task), **values}
            for seed in SEEDS:
                key = (name, tuple(values.items()), seed)
                made[key] = (method, trajectories(method, task, seed, knobs))
    return made


def write(task: Task, store: Store, to: Path) -> None:
    """Validation NLL of every finished run of a task, as JSON."""
    rows = [
        {
            "rival": name,
            "values": dict(values),
            "seed": seed,
            "nll": _finite(trials.validation_nll(method, chains, store)),
        }
        for (name, values, seed), (method, chains) in runs(task).items()
        if not store.missing(chains)
    ]
    write_json(to / f"rivals-{task.name}.json", {"rows": rows})


def _finite(nll: float) -> float | None:
    return nll if math.isfinite(nll) else None  # JSON has no infinity: None is a diverged run


def chosen(folder: Path) -> dict[str, dict[str, float]]:
    """The setting of every rival that the search chose, from its committed results."""
    rows = [row for task in SEARCHED for row in _rows(folder, task)]
    return {name: _best(rows, name) for name in GRID}


def chosen_again(folder: Path) -> dict[str, dict[str, float]]:
    """Task → rival → the lr with the lowest mean NLL; one that diverged once is out."""
    return {
        task: {
            name: min(lrs, key=_mean_nll(_rows(folder, task), name)) for name, lrs in each.items()
        }
        for task, each in AGAIN.items()
    }


def _mean_nll(rows: Sequence[Mapping[str, Any]], name: str) -> Callable[[float], float]:
    def mean(lr: float) -> float:
        found = list(_by_run(rows, name, {"lr": lr}).values())
        return math.inf if None in found or not found else float(np.mean(found))

    return mean


def _best(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    best = min(grid(name), key=lambda values: score(rows, name, values))
    return best if score(rows, name, best) < -TIE else authors(name)


def _rows(folder: Path, task: str) -> list[dict[str, Any]]:
    found = json.loads((folder / f"rivals-{task}.json").read_text())["rows"]
    return [{**row, "task": task} for row in found]


def score(rows: Sequence[Mapping[str, Any]], name: str, values: Mapping[str, float]) -> float:
    """Mean logarithm of NLL over that of the authors' setting; infinite if a run is lost."""
    ours, theirs = (_by_run(rows, name, setting) for setting in (values, authors(name)))
    if not theirs.keys() <= ours.keys() or None in ours.values():
        return math.inf
    return float(np.mean([np.log(ours[run] / (theirs[run] or math.inf)) for run in theirs]))


def _by_run(
    rows: Sequence[Mapping[str, Any]], name: str, values: Mapping[str, float]
) -> dict[tuple[str, int], Any]:
    return {
        (row["task"], row["seed"]): row["nll"]
        for row in rows
        if row["rival"] == name and row["values"] == values
    }


def table(folder: Path) -> list[list[str]]:
    """Rival, authors' setting, chosen setting, and the gain in NLL on each task."""
    lines = []
    for name, values in chosen(folder).items():
        gains = [
            f"{100 * math.expm1(score(_rows(folder, task), name, values)):+.1f} %"
            for task in SEARCHED
        ]
        lines.append([name, _shown(authors(name)), _shown(values), *gains])
    return lines


def _shown(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items())
