"""Jobs whose runs are the tournament's: same tasks, same settings, same store.

A run that the tournament has made already is read, not made again: point `EMCMC_RUNS` at its store.
Without the store, its committed scores are read, which name the settings of their runs by a hash.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from entropy_mcmc_reproduction.jobs import Job, Place
from tournament import leagues, methods, own, trials
from tournament.methods import Knobs, Method, trajectories
from tournament.scores import Answers
from tournament.settings import Settings
from tournament.store import Store
from tournament.tasks import TASKS, Task
from tournament.trials import Search


def job(
    name: str,
    method: Method,
    task: str,
    seed: int,
    changes: Mapping[str, Any] | None = None,
    share: float = 1.0,
    measure: str = "stored_runs:measure",
) -> Job:
    """A method by its recipe on a task of the tournament, with changes; `share` of the budget.

    `measure` makes its runs and measures them.
    """
    knobs = {**own.knobs(method, TASKS[task]), **(changes or {})}
    settings = {
        "task": task,
        "seed": seed,
        "method": {**asdict(method), "open": []},
        "knobs": knobs,
        "share": share,
    }
    return Job(f"{name}-{seed}", measure, settings)


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
    return _measured(settings, place)


def answered(settings: Mapping[str, Any], place: Place) -> Answers | None:
    """Outputs of a job's networks, made if the store lacks them; None if a chain diverged."""
    store = store_of(place)
    runs = _runs(settings, store)
    store.make_all(runs.wanted)
    return methods.answers(runs.method, runs.wanted, store)


def tuned(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Make the trials that the store lacks, then measure the settings that they choose."""
    result = _measured(settings, place)
    return {**result, "knobs": dict(_runs(settings, store_of(place)).knobs or {})}


def is_made(job: Job, place: Place) -> bool:
    """Whether a job needs no training: the store has all its runs, or they have been scored."""
    if not job.task.startswith("stored_runs:"):
        return False
    store = store_of(place)
    runs = _runs(job.settings, store)
    if runs.knobs is None:
        return False
    return not store.missing(runs.wanted) or scores_of(runs, job.settings, place) is not None


class Runs(NamedTuple):
    """The runs of a job: of its trials while these have not chosen its settings, then its own."""

    method: Method
    knobs: Knobs | None
    wanted: list[Settings]


def _runs(settings: Mapping[str, Any], store: Store) -> Runs:
    method = Method(**{**settings["method"], "open": tuple(settings["method"]["open"])})
    task: Task = TASKS[settings["task"]]
    if "knobs" in settings:
        knobs, share = settings["knobs"], settings["share"]
    else:
        search = Search(**{**settings["search"], "lengths": tuple(settings["search"]["lengths"])})
        share = search.budget
        knobs, trial_runs = trials.chosen(method, task, own.knobs(method, task), store, search)
        if knobs is None:
            return Runs(method, None, trial_runs)
    return Runs(method, knobs, trajectories(method, task, settings["seed"], knobs, share))


def _measured(settings: Mapping[str, Any], place: Place) -> dict[str, Any]:
    store = store_of(place)
    runs = _runs(settings, store)
    while runs.knobs is None:
        store.make_all(runs.wanted)
        runs = _runs(settings, store)
    known = scores_of(runs, settings, place) if store.missing(runs.wanted) else None
    if known is None:
        store.make_all(runs.wanted)
        known = leagues.scored(runs.method, runs.wanted, store)
    if known["diverged"]:
        return {"diverged": "a weight or an output stopped being finite"}
    return {name: known[name] for name in ("measures", "cost", "seconds", "train_loss", "runs")}


def scores_of(runs: Runs, settings: Mapping[str, Any], place: Place) -> dict[str, Any] | None:
    """What the tournament has committed of these runs, read off in the same way; else None."""
    method = methods.METHODS.get(runs.method.name)
    if method is None or replace(method, open=()) != replace(runs.method, open=()):
        return None
    folder = place.results.parent / "tournament" / "own"
    file = leagues.score_file(folder, settings["task"], method, settings["seed"])
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found if found["runs"] == [run.key for run in runs.wanted] else None


def store_of(place: Place) -> Store:
    """The tournament's store, or one in the work folder."""
    return Store(Path(os.environ.get("EMCMC_RUNS") or place.work / "store").expanduser())
