"""The two leagues: which settings a method has, and which runs are still missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tournament import own, trials
from tournament.methods import Knobs, Method, answers, methods_of, slug, trajectories
from tournament.scores import measures
from tournament.settings import Settings
from tournament.store import Store, write_json
from tournament.tasks import PAPER, Task

LEAGUES = ("own", "trials")


def knobs_of(
    league: str, method: Method, task: Task, store: Store
) -> tuple[Knobs | None, list[Settings]]:
    """The method's settings in a league, or None and the runs that decide them."""
    base = own.knobs(method, task)
    if league == "own":
        return base, []
    return trials.chosen(method, task, base, store)


def missing(
    league: str, tasks: list[Task], store: Store, seeds: int | None = None
) -> list[Settings]:
    """All runs that can be made now; ask again after they are made, until none is left.

    Runs of one seed stand together, so that a worker reads the data and trains the AdamW network
    that they start from once.
    """
    wanted: list[Settings] = []
    for task in tasks_of(league, tasks):
        chosen_knobs = [
            (method, *knobs_of(league, method, task, store)) for method in methods_of(task)
        ]
        wanted += [settings for _, _, first in chosen_knobs for settings in first]
        for seed in range(min(task.seeds, seeds or task.seeds)):
            for method, knobs, _ in chosen_knobs:
                wanted += [] if knobs is None else trajectories(method, task, seed, knobs)
    return store.missing(wanted)


def tasks_of(league: str, tasks: list[Task]) -> list[Task]:
    """The tasks of a league: the expensive ones have no trials, those of the paper no league."""
    return [task for task in tasks if task.half != PAPER and (league == "own" or task.tried)]


def score(league: str, task: Task, store: Store, results: Path) -> int:
    """Write one JSON for each finished (method, seed) of a task; return how many there are."""
    count = 0
    for method in methods_of(task):
        knobs, _ = knobs_of(league, method, task, store)
        for seed in range(task.seeds) if knobs is not None else ():
            runs = trajectories(method, task, seed, knobs or {})
            if store.missing(runs):
                continue
            record = scored(method, runs, store) | {"knobs": dict(knobs or {}), "seed": seed}
            write_json(score_file(results / league, task.name, method, seed), record)
            count += 1
    return count


def score_file(folder: Path, task: str, method: Method, seed: int) -> Path:
    """Where the scores of a method's run are, in the folder of a league."""
    return folder / task / f"{slug(method.name)}-{seed}.json"


def scored(method: Method, runs: list[Settings], store: Store) -> dict[str, Any]:
    """Measures, cost and time of a method's finished run."""
    answered = answers(method, runs, store)
    records = [store.read(settings).record for settings in runs]
    return {
        "method": method.name,
        "diverged": answered is None,
        "measures": {} if answered is None else measures(answered),
        "cost": sum(record["cost"] for record in records),
        "seconds": sum(record["seconds"] for record in records),
        "train_loss": records[0]["train_loss"],
        "runs": [settings.key for settings in runs],
    }
