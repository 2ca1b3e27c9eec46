"""Replicas y = 1, 2, 4 against four chains, the ensemble, EMA and SAM, at equal gradients.

    python benchmarks/replicas.py plan
    python benchmarks/replicas.py run --tasks fashion-mlp cifar [--seeds 5] [--methods NAME ...]
    python benchmarks/replicas.py render

Tasks, splits, batches, settings, budgets and scores are the tournament's; y = 1 is its EMCMC. `run`
makes what is missing in results/replicas, one file for each (task, method, seed), seed by seed;
stop it and start it again as you like. "y = 2", "y = 4" and "SAM" are trained and scored here.
Scores of SGD, EMA, EMCMC, the ensemble and EMCMC ×4 are those of results/tournament: `run` only
trains their networks again for the largest eigenvalue of the Hessian and the learning coefficient.
`render` writes docs/replicas.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "reproduction"))

import torch
from replicated import flat, train
from replicated.page import page

from tournament import scores, trajectory
from tournament.store import write_json
from tournament.tasks import TASKS, Task

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "replicas"
TOURNAMENT = ROOT / "results" / "tournament" / "own"
PAGE = ROOT / "docs" / "replicas.md"
SCORED: dict[str, Callable[[Task, int], train.Trained]] = {
    "y = 4": lambda task, seed: train.replicas(task, seed, 4),
    "SAM": train.sam,
    "y = 2": lambda task, seed: train.replicas(task, seed, 2),
    "y = 4, coupled always": lambda task, seed: train.replicas(task, seed, 4, "always"),
}
NETWORKS = ("SGD", "EMCMC", "ensemble 4", "EMCMC ×4")
METHODS = ("y = 4", "SAM", "y = 2", *NETWORKS, "y = 4, coupled always")
FLATNESS_COST = 0.3  # of λ_max and LLC of one network, as a part of a run


def run_cell(task: Task, method: str, seed: int) -> dict[str, Any]:
    """Scores by readout, where they are not the tournament's, and flatness by network."""
    split = trajectory.data_of(task.name, seed)
    if method in NETWORKS:
        measured, networks = {}, train.networks(task, method, seed)
    else:
        trained = SCORED[method](task, seed)
        networks = trained.networks
        y = [part.numpy() for part in (split.validation.y, split.test.y)]
        sizes = [len(split.validation.x), len(split.test.x), *map(len, split.ood)]
        measured = {
            name: scores.measures(scores.divided(values, sizes, y))
            for name, values in trained.outputs.items()
        }
    flatness = {name: flat.measured(net, split.train, seed) for name, net in networks.items()}
    return {"scores": measured, "flatness": flatness}


def file_of(folder: Path, task: str, method: str, seed: int) -> Path:
    """The file of a cell."""
    plain = method.replace(" = ", "").replace(",", "").replace(" ", "-").replace("×", "x")
    return folder / task / f"{plain}-{seed}.json"


def plan(names: list[str], seeds: int, methods: list[str]) -> str:
    """Forecast in CPU-minutes: the tournament's seconds of a run and the flatness of each cell."""
    lines = []
    for name in names:
        runs = sum(0.25 if "4" in method and "y" not in method else 1 for method in methods)
        seconds = TASKS[name].seconds * (runs + FLATNESS_COST * (len(methods) + 4))
        lines.append(f"{name}: {len(methods)} methods × {seeds} seeds, about ")
        lines[-1] += f"{seconds * seeds / 60:.0f} minutes"
    return "\n".join(lines)


def run(options: argparse.Namespace) -> None:
    """Make the cells that are missing."""
    torch.set_num_threads(1)
    for name in options.tasks:
        for seed in range(options.seeds):
            for method in options.methods:
                file = file_of(options.results, name, method, seed)
                if file.exists():
                    continue
                cell = run_cell(TASKS[name], method, seed)
                write_json(file, {"task": name, "method": method, "seed": seed, **cell})
                print(file.relative_to(options.results), flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Parse and dispatch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("plan", "run", "render"))
    names = tuple(TASKS)
    parser.add_argument("--tasks", nargs="+", choices=names, default=["fashion-mlp", "cifar"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.part == "plan":
        print(plan(options.tasks, options.seeds, options.methods))
    elif options.part == "run":
        run(options)
    else:
        PAGE.write_text(page(options.results, TOURNAMENT, flat.LOCALISATION))


if __name__ == "__main__":
    main()
