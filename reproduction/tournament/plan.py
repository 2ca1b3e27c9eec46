"""Forecast of the whole tournament: runs and minutes, before anything is run."""

from __future__ import annotations

from collections.abc import Sequence

from tournament import own, trials
from tournament.methods import Method, methods_of, trajectories
from tournament.settings import Settings
from tournament.table import markdown
from tournament.tasks import TASKS, Task

WORKERS = 2


def cost(settings: Settings) -> float:
    """Forecast seconds of a run on one thread."""
    task = TASKS[settings.task]
    return task.seconds * settings.passes / task.passes


def own_runs(task: Task) -> list[Settings]:
    """Distinct runs of the league without trials."""
    planned = [
        settings
        for method in methods_of(task)
        for seed in range(task.seeds)
        for settings in trajectories(method, task, seed, own.knobs(method, task))
    ]
    return list(dict.fromkeys(planned))


def trial_runs(task: Task) -> list[Settings]:
    """Distinct trials, with any four candidates as finalists."""
    planned = []
    for method in methods_of(task):
        candidates = trials.candidates(method, own.knobs(method, task))
        if len(candidates) > 1:
            planned += _stages(method, task, candidates)
    return list(dict.fromkeys(planned))


def _stages(method: Method, task: Task, candidates: list[dict[str, float]]) -> list[Settings]:
    stages = ((trials.SHARE, candidates), (1.0, candidates[: trials.FINALISTS]))
    return [
        settings
        for share, knobs in stages
        for k in knobs
        for settings in trajectories(method, task, trials.SEED, k, share)
    ]


def minutes(runs: Sequence[Settings]) -> float:
    """Forecast minutes of wall time with all workers busy, AdamW starts included."""
    starts = {(settings.task, settings.seed) for settings in runs if TASKS[settings.task].start}
    spent = [TASKS[name].seconds * TASKS[name].start / TASKS[name].passes for name, _ in starts]
    # Each worker makes a start of its own.
    return (sum(map(cost, runs)) / WORKERS + sum(spent)) / 60


def table(tasks: Sequence[Task]) -> str:
    """Markdown: runs and minutes of both leagues, task by task, and in all."""
    rows, total = [], 0.0
    for task in tasks:
        first, tried = own_runs(task), trial_runs(task) if task.tried else []
        # Judged runs of the second league: at most as many again, with the chosen settings.
        spent = [minutes(first), minutes(tried), minutes(first) if task.tried else 0.0]
        total += sum(spent)
        shown = [f"{value:.0f}" for value in spent]
        rows.append([task.name, task.half, str(len(first)), shown[0], str(len(tried)), *shown[1:]])
    head = ["task", "half", "own: runs", "minutes", "trials: runs", "minutes", "judged again"]
    return markdown(head, rows) + f"\nTogether {total / 60:.1f} hours on {WORKERS} cores.\n"
