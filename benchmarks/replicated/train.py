"""Training by y replicas at the tournament's settings, and networks of the tournament's runs.

Data, network, batches, lr, prior, temperature, noise and budget are the tournament's: the course of
a run is its `schedule`, and its settings are those of EMCMC by `own.knobs`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entropy_mcmc import EntropyMCMC
from tournament import methods, own, readouts, schedule, trajectory
from tournament.optimizers import build
from tournament.settings import Settings
from tournament.store import Store
from tournament.tasks import Task

SAMPLES = 8  # networks kept, as of EMCMC
WANTED = {"SGD": ("theta", "ema"), "EMCMC": ("theta", "guide")}  # networks by method; else θ


@dataclass
class Trained:
    """Outputs by readout (networks, rows, outputs), and networks by name."""

    outputs: dict[str, np.ndarray]
    networks: dict[str, nn.Module]


def settings_of(task: Task, name: str, seed: int) -> Settings:
    """The tournament's settings of the first chain of a method."""
    method = methods.by_name(name)
    return methods.trajectories(method, task, seed, own.knobs(method, task))[0]


def lengths(settings: Settings, task: Task, model: nn.Module) -> tuple[int, int]:
    """Gradients that the budget pays for, and rows of its batch-norm refresh."""
    norm = readouts.has_batchnorm(model)
    rows = task.train
    refreshed = schedule.refresh_rows(settings.passes, task.passes, rows) if norm else 0
    return schedule.steps_of(settings.passes, rows, task.batch, refreshed), refreshed


def replicas(task: Task, seed: int, y: int, coupled: str = "noisy") -> Trained:
    """Train y replicas with EMCMC's settings; η is the same, since rounds are y times fewer.

    With coupled="noisy" burn-in is SGD of one network, and the replicas start from it.
    """
    settings = replace(settings_of(task, "EMCMC", seed), coupled=coupled)
    split, model = trajectory.data_of(task.name, seed), trajectory.network(settings)
    steps, refreshed = lengths(settings, task, model)
    sampler = build(settings, task, model.parameters(), task.train, steps, replicas=y)
    assert isinstance(sampler, EntropyMCMC)
    due, samples = sample_steps(steps, y, settings.noise_from), []
    rows = max(2, refreshed // SAMPLES)
    for step in range(max(due) + 1):
        trajectory.drive(sampler, settings, step, steps)
        trajectory.learn(model, sampler, *batch(split, task, settings, step), task)
        if step in due:
            for number in range(y):
                with sampler.replica(number):
                    samples.append(outputs_of(model, split, rows))
    theta = refreshed_copy(model, split, rows)
    with sampler.guide():
        guide = refreshed_copy(model, split, rows)
    shown = {"samples": np.stack(samples), "last": samples[-y][None]}
    shown["guide"] = readouts.ask(guide, split)[None]
    return Trained(shown, {"theta": theta, "guide": guide})


def sample_steps(steps: int, y: int, noise_from: float) -> list[int]:
    """Steps that end a round and after which all replicas are kept: 8/y, evenly spaced.

    >>> sample_steps(80, 4, 0.5)
    [59, 79]
    """
    count, first = max(1, SAMPLES // y), int(noise_from * steps)
    ends = [first + i * (steps - first) // count for i in range(1, count + 1)]
    return [end // y * y - 1 for end in ends]


def networks(task: Task, name: str, seed: int, store: Store) -> dict[str, nn.Module]:
    """Last networks of the first chain of a method of the tournament: of its run in the store.

    "SGD" also has its moving average, "EMCMC" its guide. A run that is missing is made, one that a
    store kept without weights made again.
    """
    settings = settings_of(task, name, seed)
    split, model = trajectory.data_of(task.name, seed), trajectory.network(settings)
    _, refreshed = lengths(settings, task, model)
    store.make_all([settings])
    weights = store.read(settings).weights or trajectory.run(settings).weights
    made = {}
    for network in WANTED.get(name, ("theta",)):
        values = torch.from_numpy(weights[network])
        nn.utils.vector_to_parameters(values.clone(), model.parameters())
        rows = refreshed // SAMPLES if network == "guide" else refreshed
        made[network] = refreshed_copy(model, split, rows)
    return made


def keep(networks: Mapping[str, nn.Module], file: Path) -> None:
    """Store networks, with the statistics of batch norm."""
    arrays = {
        f"{name}/{key}": value.numpy()
        for name, network in networks.items()
        for key, value in network.state_dict().items()
    }
    part = file.with_suffix(".part.npz")
    np.savez(part, **arrays)
    part.replace(file)


def kept(task: Task, seed: int, file: Path) -> dict[str, nn.Module]:
    """Networks that `keep` stored; none if there is no such file."""
    if not file.exists():
        return {}
    states: dict[str, dict[str, Tensor]] = {}
    with np.load(file, allow_pickle=False) as arrays:
        for path in arrays.files:
            name, _, key = path.partition("/")
            states.setdefault(name, {})[key] = torch.from_numpy(arrays[path])
    networks = {}
    for name, state in states.items():
        networks[name] = trajectory.network(settings_of(task, "EMCMC", seed))
        networks[name].load_state_dict(state)
    return networks


def batch(split: Any, task: Task, settings: Settings, step: int) -> tuple[Tensor, Tensor]:
    """Rows of a step."""
    return trajectory.batch(split.train, task.batch, settings, step)


def refreshed_copy(model: nn.Module, split: Any, rows: int) -> nn.Module:
    """A copy with batch-norm statistics of training rows."""
    shown = copy.deepcopy(model)
    with torch.no_grad():
        readouts.refresh(shown, split.train.x[: max(2, rows)])
    return shown


def outputs_of(model: nn.Module, split: Any, rows: int) -> np.ndarray:
    """Outputs of such a copy."""
    return readouts.ask(refreshed_copy(model, split, rows), split)
