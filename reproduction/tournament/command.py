"""The command line: plan, run, render."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from tournament import auto, extra, leagues, page, plan, rivals, sweep, work
from tournament.settings import Settings
from tournament.store import Store, write_json
from tournament.tasks import PAPER, TASKS, Task

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "tournament"
EXTRA = {
    "ingredients": extra.ingredient_runs,
    "budget": extra.budget_runs,
    "sweep": sweep.runs,
    "rivals": rivals.runs,
}
WRITERS = {"sweep": sweep.write, "auto": auto.write, "rivals": rivals.write}


def main(text: str, arguments: Sequence[str] | None = None) -> None:
    """Parse and dispatch."""
    options = parser(text).parse_args(arguments)
    if options.part == "plan":
        print(plan.table([task for task in TASKS.values() if task.half != PAPER]))
    elif options.part == "render":
        page.write(ROOT, RESULTS)
    else:
        run(options)


def parser(text: str) -> argparse.ArgumentParser:
    """Options of the command."""
    found = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("part", choices=("plan", "run", "render", "auto", *EXTRA))
    found.add_argument("--league", choices=leagues.LEAGUES, default="own")
    found.add_argument("--half", choices=("development", "confirmation"), default=None)
    found.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=None)
    found.add_argument("--seeds", type=int, default=None, help="fewer seeds, for a pilot")
    found.add_argument("--workers", type=int, default=2)
    found.add_argument("--worker", type=int, default=None, help=argparse.SUPPRESS)
    found.add_argument("--store", type=Path, default=None)
    found.add_argument("--results", type=Path, default=RESULTS)
    return found


def chosen(options: argparse.Namespace) -> list[Task]:
    """The tasks meant; a half must be named, so that confirmation never runs by chance."""
    if options.tasks:
        tasks = [TASKS[name] for name in options.tasks]
        searched = options.part in WRITERS
        if searched and any(task.half == "confirmation" for task in tasks):
            raise SystemExit("a search is for development tasks; confirmation tasks are run once")
        return tasks
    if options.half is None:
        raise SystemExit("name --half development, --half confirmation, or --tasks")
    return [task for task in TASKS.values() if task.half == options.half]


def store_of(options: argparse.Namespace) -> Store:
    """The store named by --store, else by $EMCMC_RUNS, else in the user's cache."""
    default = os.environ.get("EMCMC_RUNS", "~/.cache/emcmc-tournament")
    return Store((options.store or Path(default)).expanduser())


def run(options: argparse.Namespace) -> None:
    """Make what is missing, by workers; then score what there is."""
    tasks, store = chosen(options), store_of(options)
    if options.worker is not None:
        import torch

        torch.set_num_threads(1)
        work.work(lambda: missing(options, tasks, store), store, options.worker * 1_000_003)
        return
    work.spawn(again(options, tasks, store), options.workers)
    for task in tasks:
        score(options, task, store)


def missing(options: argparse.Namespace, tasks: list[Task], store: Store) -> list[Settings]:
    """Runs that the command still needs."""
    if options.part == "run":
        return leagues.missing(options.league, tasks, store, options.seeds)
    if options.part == "auto":
        return auto.missing(tasks, store, options.seeds)
    runs = [EXTRA[options.part](task).values() for task in tasks]
    return store.missing(one for part in runs for _, chains in part for one in chains)


def score(options: argparse.Namespace, task: Task, store: Store) -> None:
    """Write the scores of what is finished."""
    if options.part in WRITERS:
        WRITERS[options.part](task, store, options.results)
        return
    if options.part in EXTRA:
        name = f"{options.part}-{task.name}"
        extra.write(name, EXTRA[options.part](task), store, options.results)
        return
    count = leagues.score(options.league, task, store, options.results)
    print(f"{task.name}: {count} results", flush=True)
    found = extra.networks(options.league, task, store)
    write_json(options.results / f"networks-{options.league}-{task.name}.json", dict(found))


def again(options: argparse.Namespace, tasks: Sequence[Task], store: Store) -> list[str]:
    """Arguments of a worker."""
    names = [task.name for task in tasks]
    seeds = ["--seeds", str(options.seeds)] if options.seeds else []
    return [
        options.part,
        *("--league", options.league),
        *("--store", str(store.folder)),
        *seeds,
        *("--tasks", *names),
    ]
