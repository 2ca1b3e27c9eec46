"""Jobs whose runs are the tournament's: same tasks, same settings, same store.

A run that the tournament has made already is read, not made again: point `EMCMC_RUNS` at its store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from entropy_mcmc_reproduction.jobs import Job, Place
from tournament import own, trials
from tournament.methods import Knobs, Method, answers, trajectories
from tournament.scores import measures
from tournament.settings import Settings
from tournament.store import Store
from tournament.tasks import TASKS, Task
from tournament.trials import Search

PAUSE = 2.0  # seconds between two looks for a run that another process is making


def job(
    name: str,
    method: Method,
    task: str,
    seed: int,
    changes: Mapping[str, Any] | None = None,
    share: float = 1.0,
) -> Job:
    """A method by its recipe on a task of the tournament, with changes; `share` of the budget."""
    knobs = {**own.knobs(method, TASKS[task]), **(changes or {})}
    settings = {
        "task": task,
        "seed": seed,
        "method": {**asdict(method), "open": []},
        "knobs": knobs,
        "share": share,
    }
    return Job(f"{name}-{seed}", "stored_runs:measure", settings)


def tuned_job(name: str, method: Method, task: str, seed: int, search: Search) -> Job:
    """A method with the settings that its trials choose; the seeds share the trials."""
    settings = {
        "task": task,
        "seed": seed,
        "method": {**asdict(method), "open": list(method.open)},
        "search": {**asdict(search), "lengths": list(search.lengths)},
    }
    return Job(f"{name}-{seed}", "stored_runs:tuned", settings)


def measure(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Make what the store lacks, and measure it."""
    method = Method(**{**settings["method"], "open": ()})
    return _measured(method, settings, settings["knobs"], settings["share"], store_of(place))


def tuned(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Make the trials that the store lacks, then measure the settings that they choose."""
    method = Method(**{**settings["method"], "open": tuple(settings["method"]["open"])})
    search = Search(**{**settings["search"], "lengths": tuple(settings["search"]["lengths"])})
    task, store = TASKS[settings["task"]], store_of(place)
    base = own.knobs(method, task)
    while (found := trials.chosen(method, task, base, store, search))[0] is None:
        for run in found[1]:
            _made(run, store)
    knobs: Knobs = found[0]
    return {**_measured(method, settings, knobs, search.budget, store), "knobs": dict(knobs)}


def _measured(
    method: Method,
    settings: Mapping[str, Any],
    knobs: Mapping[str, Any],
    share: float,
    store: Store,
) -> dict[str, Any]:
    task: Task = TASKS[settings["task"]]
    runs = trajectories(method, task, settings["seed"], knobs, share)
    for run in runs:
        _made(run, store)
    scores = answers(method, runs, store)
    if scores is None:
        return {"diverged": "a weight or an output stopped being finite"}
    records = [store.read(run).record for run in runs]
    return {
        "measures": measures(scores),
        "cost": sum(record["cost"] for record in records),
        "train_loss": records[0]["train_loss"],
        "runs": [run.key for run in runs],
    }


def _made(run: Settings, store: Store) -> None:
    while not store.has(run) and not store.make(run):
        time.sleep(PAUSE)


def store_of(place: Place) -> Store:
    """The tournament's store, or one in the work folder."""
    return Store(Path(os.environ.get("EMCMC_RUNS") or place.work / "store").expanduser())
