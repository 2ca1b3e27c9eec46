"""Replicas y = 1, 2, 4 and SAM at equal gradients, as averages and as one network.

    python benchmarks/replicas.py plan
    python benchmarks/replicas.py run --tasks cifar fashion-mlp [--seeds 5]
    python benchmarks/replicas.py render

Tasks, splits, batches and scores are the tournament's, settings those of `entropy_mcmc.recipes`;
the recipe's η is multiplied by y, since y replicas move the guide y times as fast. `run` makes what
is missing in results/replicas, one file for each (task, method, seed): stop it and start it again
as you like. Scored are the average over all replicas' samples, the last θ, and the guide as one
network; beside them the largest eigenvalue of the Hessian and the local learning coefficient of the
guide (of SAM: of its network). The ensemble, EMA and EMCMC ×4 of the same tasks and seeds are in
results/tournament.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "reproduction"))

import numpy as np
import torch
import torch.nn.functional as F

from entropy_mcmc import SAM, EntropyMCMC, flatness, schedules
from tournament import own, readouts, scores, trajectory
from tournament.settings import Settings
from tournament.store import write_json
from tournament.tasks import TASKS, Task

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "replicas"
METHODS = ("y = 1", "y = 2", "y = 4", "SAM")
SAMPLES, RHO = 8, 0.05
FLATNESS_ROWS = 256
FLATNESS_COST = 0.6  # of λ_max and LLC, as a part of a run: counted in gradients
MEASURES = ("nll", "ece", "accuracy", "auroc")


def run_cell(task: Task, method: str, seed: int) -> dict[str, Any]:
    """Scores by readout, and the flatness of the one network, of one method and seed."""
    if method == "SAM":
        outputs, model = train_sam(task, seed)
    else:
        outputs, model = train_replicas(task, seed, int(method.split()[-1]))
    split = trajectory.data_of(task.name, seed)
    y = [part.numpy() for part in (split.validation.y, split.test.y)]
    sizes = [len(split.validation.x), len(split.test.x), *map(len, split.ood)]
    measured = {
        name: scores.measures(scores.divided(values, sizes, y)) for name, values in outputs.items()
    }
    return {"scores": measured, "flatness": flatness_of(model, split.train, seed)}


def gradients_of(task: Task) -> int:
    """Mini-batch gradients of the whole budget."""
    return int(task.passes * task.train) // task.batch


def train_replicas(task: Task, seed: int, y: int) -> tuple[dict[str, np.ndarray], torch.nn.Module]:
    """Outputs by readout of y replicas, and the guide at the end as a network."""
    split, recipe = trajectory.data_of(task.name, seed), own.recipe(task)
    settings = Settings(task.name, seed, "emcmc", task.passes, recipe.lr)
    model = trajectory.network(settings)
    options = {**recipe.sampler_options(), "eta": y * recipe.eta}
    sampler = EntropyMCMC(model.parameters(), **options, replicas=y, seed=seed)
    total = gradients_of(task) // y * y
    cycle = schedules.Cyclical(sampler, total, 1, recipe.burn_in, samples_per_cycle=0)
    due = sample_steps(total, y, recipe.burn_in)
    samples, single = [], copy.deepcopy(model)
    for step in range(total):
        x, target = trajectory.batch(split.train, task.batch, settings, step)
        sampler.zero_grad()
        trajectory.loss_of(model(x), target, task.regression).backward()
        sampler.step()
        cycle.step()
        if step in due:
            for number in range(y):
                with sampler.replica(number):
                    samples.append(outputs_of(model, split))
    with sampler.guide():
        single.load_state_dict(model.state_dict())
    guide = outputs_of(single, split)
    return {"samples": np.stack(samples), "last": samples[-1][None], "guide": guide[None]}, single


def sample_steps(total: int, y: int, burn_in: float) -> set[int]:
    """Steps that end a round and after which all replicas are kept: 8/y, evenly spaced, the last.

    >>> sorted(sample_steps(80, 4, 0.5))
    [59, 79]
    """
    count = max(1, SAMPLES // y)
    first = int(burn_in * total)
    ends = [first + (i + 1) * (total - first) // count for i in range(count)]
    return {end // y * y - 1 for end in ends}


def train_sam(task: Task, seed: int) -> tuple[dict[str, np.ndarray], torch.nn.Module]:
    """SAM with half of the steps, since each takes two gradients; SGD's lr of the tournament."""
    split, recipe = trajectory.data_of(task.name, seed), own.recipe(task)
    settings = Settings(task.name, seed, "sgd", task.passes, recipe.lr / 2)
    model = trajectory.network(settings)
    sampler = SAM(
        model.parameters(),
        recipe.lr / 2,
        rho=RHO,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
    )
    total = gradients_of(task) // 2
    cycle = schedules.Cyclical(sampler, total, 1, 0.5, samples_per_cycle=0)
    for step in range(total):
        x, target = trajectory.batch(split.train, task.batch, settings, step)

        def closure(x: Any = x, target: Any = target) -> Any:
            sampler.zero_grad()
            loss = trajectory.loss_of(model(x), target, task.regression)
            loss.backward()
            return loss

        sampler.step(closure)
        cycle.step()
    return {"last": outputs_of(model, split)[None]}, model


def outputs_of(model: torch.nn.Module, split: Any) -> np.ndarray:
    """Outputs of a copy, with batch-norm statistics of training rows."""
    shown = copy.deepcopy(model)
    readouts.refresh(shown, split.train.x[:1000])
    return readouts.ask(shown, split)


def flatness_of(model: torch.nn.Module, train: Any, seed: int) -> dict[str, Any]:
    """λ_max and the local learning coefficient on some training rows."""
    shown = copy.deepcopy(model)
    readouts.refresh(shown, train.x[:1000])
    some = (train.x[:FLATNESS_ROWS], train.y[:FLATNESS_ROWS])
    top = flatness.top_eigenvalues(shown, F.cross_entropy, some, k=1, seed=seed)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        llc = flatness.local_learning_coefficient(
            shown, F.cross_entropy, some, chains=2, steps=100, seed=seed
        )
    return {
        "largest_eigenvalue": float(top[0]),
        "learning_coefficient": float(llc.value),
        "learning_coefficient_error": float(llc.standard_error),
        "notes": [str(note.message) for note in notes],
    }


def file_of(folder: Path, task: str, method: str, seed: int) -> Path:
    return folder / f"{task}-{method.replace(' ', '')}-{seed}.json"


def plan(names: list[str], seeds: int) -> str:
    """Forecast in CPU-minutes: the tournament's seconds of a run and the flatness of each cell."""
    lines = []
    for name in names:
        minutes = (1 + FLATNESS_COST) * TASKS[name].seconds / 60 * len(METHODS) * seeds
        lines.append(f"{name}: {len(METHODS)} methods × {seeds} seeds, about {minutes:.0f} minutes")
    return "\n".join(lines)


def run(options: argparse.Namespace) -> None:
    """Make the cells that are missing."""
    torch.set_num_threads(1)
    for name in options.tasks:
        for seed in range(options.seeds):
            for method in METHODS:
                file = file_of(options.results, name, method, seed)
                if file.exists():
                    continue
                cell = run_cell(TASKS[name], method, seed)
                file.parent.mkdir(parents=True, exist_ok=True)
                write_json(file, {"task": name, "method": method, "seed": seed, **cell})
                print(file.name, flush=True)


def render(folder: Path) -> str:
    """Tables of means over seeds, with standard errors."""
    cells = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    lines = []
    for name in dict.fromkeys(cell["task"] for cell in cells):
        lines += [f"## {name}", "", "| method, network | " + " | ".join(MEASURES)]
        lines[-1] += " | λ_max | LLC | seeds |"
        lines.append("|---|" + "---|" * (len(MEASURES) + 3))
        for method in METHODS:
            own_cells = [c for c in cells if c["task"] == name and c["method"] == method]
            for readout in ("samples", "last", "guide"):
                have = [c for c in own_cells if readout in c["scores"]]
                if have:
                    lines.append(_row(f"{method}, {readout}", readout, have))
        lines.append("")
    return "\n".join(lines)


def _row(label: str, readout: str, cells: list[dict[str, Any]]) -> str:
    columns = [_mean([c["scores"][readout].get(m) for c in cells]) for m in MEASURES]
    shown = readout == "guide" or "SAM" in label
    for key in ("largest_eigenvalue", "learning_coefficient"):
        columns.append(_mean([c["flatness"][key] for c in cells]) if shown else "–")
    return f"| {label} | {' | '.join(columns)} | {len(cells)} |"


def _mean(values: list[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "–"
    error = np.std(numbers, ddof=1) / len(numbers) ** 0.5 if len(numbers) > 1 else float("nan")
    return f"{np.mean(numbers):.4g} ± {error:.2g}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("plan", "run", "render"))
    parser.add_argument(
        "--tasks", nargs="+", choices=tuple(TASKS), default=["cifar", "fashion-mlp"]
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.part == "plan":
        print(plan(options.tasks, options.seeds))
    elif options.part == "run":
        run(options)
    else:
        print(render(options.results))


if __name__ == "__main__":
    main()
