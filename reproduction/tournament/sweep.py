"""One setting changed at a time, around the recipe: what the values of `recipes.py` rest on.

For development tasks only; `command.py` refuses others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tournament import own
from tournament.methods import METHODS, Method, answers, trajectories
from tournament.scores import measures
from tournament.settings import Settings
from tournament.store import Store, write_json
from tournament.table import markdown
from tournament.tasks import Task

SEEDS = 3
FACTORS = {  # times the recipe's value
    "lr": (0.5, 2.0),
    "prior_variance": (0.3, 3.0),
    "temperature": (0.0, 5.0, 20.0),
    "horizon": (0.2, 5.0),
}
VALUES: Mapping[str, tuple[Any, ...]] = {"noise_from": (0.25, 0.75), "coupled": ("always",)}
SWEPT = ("SGD", "SGHMC", "EMCMC", "ensemble 4", "EMCMC ×4")
READOUTS = {"SGD": ("last", "samples", "ema"), "EMCMC": ("samples", "last", "guide")}
SHOWN = ("validation-nll", "nll", "nll-scaled", "ece", "auroc")

Variant = tuple[str, str, Any]  # method, setting, its value


def variants(method: Method, task: Task) -> dict[Variant, dict[str, Any]]:
    """Settings of a method by what differs from its recipe."""
    base: dict[str, Any] = own.knobs(method, task)
    settings_of: dict[Variant, dict[str, Any]] = {(method.name, "recipe", ""): base}
    for name in (name for name in FACTORS if base.get(name)):
        values = [float(f"{base[name] * factor:.4g}") for factor in FACTORS[name]]
        settings_of |= {(method.name, name, value): {**base, name: value} for value in values}
    for name in (name for name in VALUES if name in base):
        settings_of |= {(method.name, name, value): {**base, name: value} for value in VALUES[name]}
    return settings_of


def runs(task: Task) -> dict[tuple[Variant, int], tuple[Method, list[Settings]]]:
    """Runs by (variant, seed)."""
    return {
        (variant, seed): (METHODS[name], trajectories(METHODS[name], task, seed, knobs))
        for name in SWEPT
        for variant, knobs in variants(METHODS[name], task).items()
        for seed in range(min(SEEDS, task.seeds))
    }


def write(task: Task, store: Store, to: Path) -> None:
    """Means over seeds of every finished variant and readout, as JSON and on the screen."""
    scores: dict[tuple[Variant, str], list[Mapping[str, float]]] = {}
    for (variant, _), (method, chains) in runs(task).items():
        if store.missing(chains):
            continue
        for readout in READOUTS.get(method.name, (method.readout,)):
            answered = answers(replace(method, readout=readout), chains, store)
            scores.setdefault((variant, readout), []).append(
                {} if answered is None else measures(answered)
            )
    rows = [{"variant": list(v), "readout": r, **mean(s)} for (v, r), s in scores.items()]
    write_json(to / f"sweep-{task.name}.json", {"rows": rows})
    print(shown(task.name, rows), flush=True)


def mean(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over seeds of each measure; none if one of them diverged."""
    if not all(scores):
        return {"seeds": len(scores)}
    averaged = {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}
    return {**averaged, "seeds": len(scores)}


def shown(task: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A table, one line for each variant and readout."""
    lines = [
        [
            *map(str, row["variant"]),
            row["readout"],
            *(f"{row[name]:.4f}" if name in row else "–" for name in SHOWN),
        ]
        for row in rows
    ]
    return f"{task}\n" + markdown(["method", "setting", "value", "readout", *SHOWN], lines)
