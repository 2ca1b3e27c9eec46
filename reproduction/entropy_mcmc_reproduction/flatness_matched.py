"""Flatness at equal training NLL: checkpoints along each run, matched within a seed.

A network that fits its training set better has smaller gradients and a smaller Hessian whatever its
basin, so that the last networks of two methods say nothing. Here all methods of a seed are looked
at where they have the same training NLL.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entropy_mcmc import EntropyMCMC, flatness
from entropy_mcmc.flatness.learning_coefficient import LocalSampling, estimate
from entropy_mcmc_reproduction import flatness_view
from entropy_mcmc_reproduction.flatness_view import GUIDE, METHODS, job_name
from entropy_mcmc_reproduction.items import Item
from entropy_mcmc_reproduction.jobs import Job, Place
from tournament import methods, own, schedule, trajectory
from tournament.data import Data, Rows
from tournament.readouts import vector
from tournament.settings import Settings
from tournament.tasks import TASKS

_COMMON = {"task": "digits", "methods": list(METHODS)}
_LLC = {"localisation": 300.0, "chains": 2, "steps": 1000, "batch_size": 128}
_FULL = {"share": 1.0, "checkpoints": 96, "rows": 500, "probes": 16, "llc": _LLC}
# In so few steps SAM, which makes half of them, does not come to the level of the others.
_SMOKE: dict[str, Any] = {"methods": ["SGD", "SGHMC", "EMCMC"], "share": 0.05, "checkpoints": 16}
_SMOKE |= {"rows": 32, "probes": 2}
_SMOKE |= {"llc": {**_LLC, "steps": 8, "batch_size": 32, "lr": 1e-4}}
_SIZES: dict[str, tuple[int, dict[str, Any]]] = {
    "smoke": (2, _SMOKE),
    "laptop": (10, _FULL),
    "paper": (10, _FULL),
}


@dataclass(frozen=True)
class Checkpoint:
    """Weights after a number of steps, and their mean NLL on the training rows."""

    weights: Tensor
    step: int
    train_nll: float


def jobs(scale: str, place: Place) -> list[Job]:
    """One job for each seed: its runs, their match, and the measures of the matched networks."""
    seeds, sizes = _SIZES[scale]
    return [
        Job(job_name(seed), "flatness_matched:compute", {**_COMMON, **sizes, "seed": seed})
        for seed in range(seeds)
    ]


def compute(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Measures of every role at the level that all roles of this seed reach."""
    runs, aim, chosen = matched_runs(settings)
    split = trajectory.data_of(settings["task"], settings["seed"])
    model = TASKS[settings["task"]].network().to(trajectory.device())
    roles = {}
    for role, at in chosen.items():
        nn.utils.vector_to_parameters(at.weights.clone(), model.parameters())
        roles[role] = {
            "step": at.step,
            "train_nll": at.train_nll,
            "last_train_nll": runs[role][-1].train_nll,
            "measures": measured(model, split, settings),
        }
    return {"level": aim, "roles": roles}


def matched_runs(
    settings: Mapping[str, Any],
) -> tuple[dict[str, list[Checkpoint]], float, dict[str, Checkpoint]]:
    """Checkpoints by role, the level that all roles reach, and each role's nearest to it."""
    runs: dict[str, list[Checkpoint]] = {}
    for name in settings["methods"]:
        runs |= checkpoints(name, settings)
    curves = {role: [c.train_nll for c in kept] for role, kept in runs.items()}
    aim = level(curves)
    return runs, aim, {role: runs[role][nearest(curve, aim)] for role, curve in curves.items()}


def checkpoints(name: str, settings: Mapping[str, Any]) -> dict[str, list[Checkpoint]]:
    """States along a method's run by role; of a method with noise those while it is on.

    Before, such a method is plain SGD, and its guide the network itself.
    """
    task, method = TASKS[settings["task"]], methods.by_name(name)
    knobs = own.knobs(method, task)
    (made,) = methods.trajectories(method, task, settings["seed"], knobs, settings["share"])
    split, model = trajectory.data_of(task.name, made.seed), trajectory.network(made)
    gradients = schedule.steps_of(made.passes, len(split.train.x), task.batch)
    steps = max(1, gradients // made.gradients_per_step)
    kept: dict[str, list[Checkpoint]] = {}
    for step, optimizer, _ in trajectory.followed(made, task, split, model, steps):
        if not is_kept(made, step, steps, settings["checkpoints"]):
            continue
        kept.setdefault(name, []).append(_now(model, split.train, step))
        if isinstance(optimizer, EntropyMCMC):
            with optimizer.guide():
                kept.setdefault(GUIDE, []).append(_now(model, split.train, step))
    return kept


def is_kept(made: Settings, step: int, steps: int, count: int) -> bool:
    """Whether the state after this step is one of `count`, evenly spaced, the last among them."""
    due = (step + 1) * count // steps > step * count // steps
    return due and (not made.temperature or schedule.is_noisy(made, step, steps))


def _now(model: nn.Module, rows: Rows, step: int) -> Checkpoint:
    return Checkpoint(vector(model), step + 1, nll(model, rows))


@torch.no_grad()
def nll(model: nn.Module, rows: Rows) -> float:
    """Mean NLL in evaluation mode."""
    training = model.training
    model.eval()
    value = float(F.cross_entropy(model(rows.x), rows.y))
    model.train(training)
    return value


def level(curves: Mapping[str, Sequence[float]]) -> float:
    """The lowest training NLL that every role reaches.

    >>> level({"a": [2.0, 0.5, 0.1], "b": [1.0, 0.3]})
    0.3
    """
    return max(min(curve) for curve in curves.values())


def nearest(curve: Sequence[float], aim: float) -> int:
    """Place of the NLL whose ratio to the aim is nearest to 1.

    >>> nearest([2.0, 0.5, 0.2, 0.1], 0.3)
    2
    """
    return min(range(len(curve)), key=lambda i: abs(math.log(curve[i] / aim)))


def measured(model: nn.Module, split: Data, settings: Mapping[str, Any]) -> dict[str, float]:
    """Test NLL, then logarithms of λ_max, both traces and, if it can be trusted, the LLC."""
    model.eval()
    train = (split.train.x, split.train.y)
    few = flatness.subset(train, settings["rows"])
    values = {"nll": nll(model, split.test)}
    values.update(_logarithms(dict(_curvatures(model, few, settings["probes"]))))
    sampling = LocalSampling(**settings["llc"], seed=settings["seed"])
    coefficient = estimate(model, F.cross_entropy, train, sampling)
    if coefficient.trustworthy:
        values.update(_logarithms({"llc": coefficient.value}))
    return values


def _curvatures(
    model: nn.Module, data: tuple[Tensor, Tensor], probes: int
) -> Iterator[tuple[str, float]]:
    loss = F.cross_entropy
    yield "lambda_max", float(flatness.top_eigenvalues(model, loss, data, 1, tolerance=1e-2)[0])
    yield "trace", flatness.hessian_trace(model, loss, data, probes=probes).value
    yield "fisher", float(flatness.fisher_diagonal(model, loss, data).variance.sum())


def _logarithms(values: Mapping[str, float]) -> dict[str, float]:
    """Logarithms of what is positive; the rest is left out."""
    return {name: math.log(value) for name, value in values.items() if value > 0}


ITEM = Item(
    "Flatness at equal training NLL, digits",
    "Fig. 4, by another measure",
    jobs,
    flatness_view.show,
    says="EMCMC finds flatter basins than SGD",
)
