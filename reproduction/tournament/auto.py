"""Chains by what the first one shows: more short chains if it fits its data, else a longer one.

The first chain has a quarter of the budget. Training it further can gain at most what is left of
its training loss; averaging it with other chains can gain a part of the gap between held-out and
training loss. So: three more chains where the gap is the larger of the two, else one chain that
goes on from it with the rest of the budget. Chains from one trained network share its basin, so
tasks that start there have one chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax

from tournament import own
from tournament.methods import METHODS, Method, answers, trajectories
from tournament.scores import measures
from tournament.settings import Settings
from tournament.store import Store, Stored, write_json
from tournament.tasks import Task

RATIO = 2.0  # held-out loss / training loss from which on the gap is the larger
NAME = "EMCMC auto"
LONG, SHORT = METHODS["EMCMC"], METHODS["EMCMC ×4"]


class Plan(NamedTuple):
    """What a method with its own choice of chains does on one seed."""

    method: Method
    runs: list[Settings]
    training: float | None = None
    held_out: float | None = None


def fits(training: float, held_out: float) -> bool:
    """Whether the gap to held-out data is larger than what is left of the training loss.

    >>> fits(0.02, 0.05), fits(0.03, 0.05)
    (True, False)
    """
    return held_out > RATIO * training


def held_out_loss(run: Stored, regression: bool) -> float:
    """Mean loss of the last network on the validation rows."""
    y = run.outputs["validation_y"]
    last = run.outputs["last"][0][: len(y)].astype(np.float64)
    if regression:
        return float(0.5 * np.square(last[:, 0] - y).mean())
    return float(-log_softmax(last, axis=-1)[np.arange(len(y)), y].mean())


def plan(task: Task, seed: int, store: Store) -> Plan | list[Settings]:
    """Method and runs of one seed; or, before the first chain is there, that chain."""
    if task.start:
        return Plan(LONG, trajectories(LONG, task, seed, own.knobs(LONG, task)))
    short = trajectories(SHORT, task, seed, own.knobs(SHORT, task))
    if not store.has(short[0]):
        return short[:1]
    first = store.read(short[0])
    if first.diverged:
        return Plan(SHORT, short)
    training, held_out = first.record["train_loss"], held_out_loss(first, task.regression)
    if fits(training, held_out):
        return Plan(SHORT, short, training, held_out)
    return Plan(LONG, [continued(task, short[0])], training, held_out)


def continued(task: Task, first: Settings) -> Settings:
    """A chain that goes on from the first with the rest of the budget, along a cosine of its own.

    It counts as the second chain, which has other batches and other noise.
    """
    rest = task.passes - first.passes
    knobs = own.knobs(LONG, task, rest)
    return Settings(task.name, first.seed, "emcmc", rest, chain=1, after=first, **knobs)


def missing(tasks: Sequence[Task], store: Store, seeds: int | None = None) -> list[Settings]:
    """Runs that can be made now."""
    wanted: list[Settings] = []
    for task in tasks:
        for seed in range(min(task.seeds, seeds or task.seeds)):
            found = plan(task, seed, store)
            wanted += found.runs if isinstance(found, Plan) else found
    return store.missing(wanted)


def write(task: Task, store: Store, to: Path) -> None:
    """One JSON for each finished seed."""
    for seed in range(task.seeds):
        found = plan(task, seed, store)
        if isinstance(found, Plan) and not store.missing(found.runs):
            write_json(to / "auto" / task.name / f"{seed}.json", record(seed, found, store))


def record(seed: int, found: Plan, store: Store) -> dict[str, Any]:
    """Measures, what was chosen, and why."""
    outputs = answers(found.method, found.runs, store)
    stored = [store.read(settings).record for settings in found.runs]
    return {
        "method": NAME,
        "seed": seed,
        "diverged": outputs is None,
        "measures": {} if outputs is None else measures(outputs),
        "chains": found.method.chains,
        "training": found.training,
        "held_out": found.held_out,
        "cost": sum(one["cost"] for one in stored),
        "runs": [settings.key for settings in found.runs],
    }
