"""Replicas y = 1, 2, 4 against four chains, the ensemble, EMA and SAM, at equal gradients.

    python benchmarks/replicas.py plan
    python benchmarks/replicas.py run --tasks fashion-mlp cifar [--seeds 0 1 2] [--methods NAME ...]
    python benchmarks/replicas.py flatness --tasks fashion-mlp cifar [--seeds ...] [--methods ...]
        [--networks theta guide ema]
    python benchmarks/replicas.py render

Tasks, splits, batches, settings, budgets and scores are the tournament's; y = 1 is its EMCMC. `run`
trains and scores "y = 2" and "y = 4": one file in results/replicas for each (task, method, seed).
Scores of the others are those of the tournament and of `emcmc reproduce`. `flatness` measures the
largest eigenvalue of the Hessian and the learning coefficient of the networks of all of them; the
store of runs ($EMCMC_RUNS) has them, and those that are missing are made. Both make what is missing
and can be stopped and started again, also as several processes side by side. `render` writes
docs/replicas.md.
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
from replicated.page import page, read
from torch import nn

from tournament import command, scores, trajectory
from tournament.store import Store, claimed, write_json
from tournament.tasks import TASKS, Task

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "replicas"
TOURNAMENT = ROOT / "results" / "tournament" / "own"
ITEMS = ROOT / "results" / "laptop" / "runs"
PAGE = ROOT / "docs" / "replicas.md"
SCORED: dict[str, Callable[[Task, int], train.Trained]] = {
    "y = 4": lambda task, seed: train.replicas(task, seed, 4),
    "y = 2": lambda task, seed: train.replicas(task, seed, 2),
    "y = 4, coupled always": lambda task, seed: train.replicas(task, seed, 4, "always"),
}
NETWORKS = ("SAM", "SGD", "EMCMC", "ensemble 4", "EMCMC ×4")
METHODS = ("y = 4", "y = 2", *NETWORKS, "y = 4, coupled always")
FLATNESS_COST = 0.3  # of λ_max and LLC of one network, as a part of a run


def score(task: Task, method: str, seed: int, store: Store, file: Path) -> None:
    """Train replicas: their scores by readout to the file, their networks to the store."""
    trained = SCORED[method](task, seed)
    split = trajectory.data_of(task.name, seed)
    y = [part.numpy() for part in (split.validation.y, split.test.y)]
    sizes = [len(split.validation.x), len(split.test.x), *map(len, split.ood)]
    measured = {
        name: scores.measures(scores.divided(values, sizes, y))
        for name, values in trained.outputs.items()
    }
    train.keep(trained.networks, weights_of(store, task.name, file))
    write(file, task.name, method, seed, measured, {})


def flatten(
    task: Task, method: str, seed: int, store: Store, file: Path, chosen: list[str]
) -> None:
    """Measure the flatness of a method's chosen networks; each is written as it comes."""
    record = read(file) or {"scores": {}, "flatness": {}}
    missing = [n for n in wanted(method) if n in chosen and n not in record["flatness"]]
    networks = networks_of(task, method, seed, store, file) if missing else {}
    for name in missing:
        split = trajectory.data_of(task.name, seed)
        record["flatness"][name] = flat.measured(networks[name], split.train, seed, task.name)
        write(file, task.name, method, seed, record["scores"], record["flatness"])


def networks_of(
    task: Task, method: str, seed: int, store: Store, file: Path
) -> dict[str, nn.Module]:
    """A method's networks by name, from the store; those that are missing are made and kept."""
    if method not in SCORED:
        return train.networks(task, method, seed, store)
    weights = weights_of(store, task.name, file)
    if not weights.exists():
        train.keep(SCORED[method](task, seed).networks, weights)
    return train.kept(task, seed, weights)


def wanted(method: str) -> tuple[str, ...]:
    """Names of a method's networks."""
    return train.WANTED.get(method, ("theta", "guide") if method in SCORED else ("theta",))


def weights_of(store: Store, task: str, file: Path) -> Path:
    """Where the networks of a cell of replicas are."""
    return store.folder / f"replicas-{task}-{file.stem}.npz"


def write(file: Path, task: str, method: str, seed: int, measured: Any, flatness: Any) -> None:
    """One cell."""
    about = {"task": task, "method": method, "seed": seed}
    write_json(file, {**about, "scores": measured, "flatness": flatness})


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
    """Make the scores or the flatness that is missing."""
    torch.set_num_threads(1)
    store = command.store_of(options)
    for name in options.tasks:
        for seed in options.seeds:
            for method in options.methods:
                file = file_of(options.results, name, method, seed)
                with claimed(store.folder, f"replicas-{name}-{file.stem}") as mine:
                    if not mine:
                        continue
                    before = read(file)
                    if options.part == "flatness":
                        flatten(TASKS[name], method, seed, store, file, options.networks)
                    elif method in SCORED and before is None:
                        score(TASKS[name], method, seed, store, file)
                    if read(file) != before:
                        print(file.relative_to(options.results), flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Parse and dispatch."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("plan", "run", "flatness", "render"))
    names = tuple(TASKS)
    parser.add_argument("--tasks", nargs="+", choices=names, default=["fashion-mlp", "cifar"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--networks", nargs="+", choices=flat.NETWORKS, default=list(flat.NETWORKS))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--store", type=Path, default=None, help="of runs; else $EMCMC_RUNS")
    options = parser.parse_args(arguments)
    if options.part == "plan":
        print(plan(options.tasks, len(options.seeds), options.methods))
    elif options.part in ("run", "flatness"):
        run(options)
    else:
        PAGE.write_text(page(options.results, (TOURNAMENT, ITEMS)))


if __name__ == "__main__":
    main()
