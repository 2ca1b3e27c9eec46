"""Does `tune` with 16 trials find settings as good as the tournament's best? Resumable.

    python benchmarks/tune_check.py                    # both tasks, all cores, then the page
    python benchmarks/tune_check.py --tasks digits --seeds 3 --workers 1
    python benchmarks/tune_check.py --render           # results/tune → docs/tuning.md only

For each task: `tune` (EMCMC, 16 trials) on the rows of a seed that judges nothing; then the chosen
settings, and the recipe as it is, with the tournament's seeds, splits and test rows. Results go to
results/tune, with the best methods of one chain beside them: of the tournament's league of 16
trials where results/tournament has it, else of the one without trials.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "reproduction"))

import numpy as np

from entropy_mcmc import metrics, sample, tune
from entropy_mcmc.tuning import Tuned
from tournament import table
from tournament.methods import METHODS
from tournament.stats import paired
from tournament.store import write_json
from tournament.tasks import TASKS, Task
from tournament.trials import SEED, TRIALS

ROOT = Path(__file__).parents[1]
RESULTS, TOURNAMENT = ROOT / "results" / "tune", ROOT / "results" / "tournament"
PAGE = ROOT / "docs" / "tuning.md"
BEGIN, END = "<!-- written by benchmarks/tune_check.py -->", "<!-- end -->"
CHECKED = ("digits", "breast-cancer")
MARGIN = 0.01  # nats


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if not options.render:
        for name in options.tasks:
            check(TASKS[name], options)
    render()


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = os.environ.get("EMCMC_RUNS", "~/.cache/emcmc-tournament")
    options.add_argument("--tasks", nargs="+", choices=CHECKED, default=CHECKED)
    options.add_argument("--seeds", type=int, default=None, help="fewer seeds, for a pilot")
    options.add_argument("--workers", type=int, default=None)
    options.add_argument("--store", type=Path, default=Path(default).expanduser() / "tune")
    options.add_argument("--render", action="store_true")
    return options


def check(task: Task, options: argparse.Namespace) -> None:
    """Tune, judge, and write the numbers of one task."""
    budget = {"epochs": round(task.passes), "batch_size": task.batch}
    tuned = searched(task, budget, options)
    seeds = range(min(task.seeds, options.seeds or task.seeds))
    store = options.store / task.name
    judged = {
        name: {seed: test_nll(task, seed, store / name, settings) for seed in seeds}
        for name, settings in (("tuned", tuned.options), ("recipe", {"method": "emcmc", **budget}))
    }
    outcome = tuned.outcome
    record = {
        "task": task.name,
        "trials": TRIALS,
        "chosen": outcome.best.number,
        "point": dict(outcome.best.point),
        "validation_nll": outcome.best.nll,
        "recipe_validation_nll": outcome.recipe.nll,
        "test_nll": judged,
        "tournament": best_of(task.name),
    }
    write_json(RESULTS / f"{task.name}.json", record)


def searched(task: Task, budget: dict[str, int], options: argparse.Namespace) -> Tuned:
    """The search, on the rows of the seed that the tournament's own trials have."""
    split = task.rows(SEED)
    tuning = tune(
        task.network,
        {"train": pair(split.train), "validation": pair(split.validation)},
        trials=TRIALS,
        tune_dir=options.store / task.name / "search",
        workers=options.workers,
        progress=True,
        seed=SEED,
        **budget,
    )
    print(f"{task.name}\n{tuning}\n", flush=True)
    return tuning


def test_nll(task: Task, seed: int, folder: Path, settings: dict[str, Any]) -> float:
    """NLL on the test rows of a posterior made with these settings."""
    split = task.rows(seed)
    options = {**settings, "seed": seed, "threads": 1}
    run_dir = folder / str(seed)
    posterior = sample(task.network, pair(split.train), run_dir=run_dir, **options)
    return metrics.nll(posterior.predict_proba(split.test.x), split.test.y)


def pair(rows: Any) -> tuple[Any, Any]:
    """Inputs and targets."""
    return rows.x, rows.y


def best_of(task: str) -> dict[str, dict[int, float]]:
    """Test NLL by seed of the tournament's EMCMC and of its best method, both of one chain.

    Of the league with 16 trials; where the task was not run in it, of the one without.
    """
    leagues = (table.read(TOURNAMENT / league).get(task) for league in ("trials", "own"))
    methods = next(filter(None, leagues), {})
    single = {
        name: table.values(records, "nll")
        for name, records in methods.items()
        if name in METHODS and METHODS[name].chains == 1
    }
    finite = {name: nll for name, nll in single.items() if nll}
    if not finite:
        return {}
    best = min(finite, key=lambda name: float(np.mean(list(finite[name].values()))))
    return {name: finite[name] for name in dict.fromkeys((best, "EMCMC")) if name in finite}


def render() -> None:
    """Put the table of all results into the page."""
    records = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{page(records)}\n{END}{after}")


def page(records: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row for each task and rival."""
    rows = [row for record in records for row in rows_of(record)]
    if not rows:
        return "No results yet.\n"
    head = ["task", "rival", "rival's NLL", "tuned", "tuned − rival", "95 %", "within 0.01"]
    return table.markdown(head, rows)


def rows_of(record: dict[str, Any]) -> list[list[str]]:
    """The tuned settings against the recipe and against the tournament's best."""
    ours = {int(seed): value for seed, value in record["test_nll"]["tuned"].items()}
    rivals = {"recipe": record["test_nll"]["recipe"], **record["tournament"]}
    rows = []
    for name, values in rivals.items():
        theirs = {int(seed): value for seed, value in values.items()}
        seeds = sorted(set(ours) & set(theirs))
        if len(seeds) < 2:
            continue
        mine, other = [ours[s] for s in seeds], [theirs[s] for s in seeds]
        difference = paired(mine, other)
        rows.append(
            [
                record["task"],
                name if name == "recipe" else f"tournament's {name}",
                f"{np.mean(other):.4f}",
                f"{np.mean(mine):.4f}",
                f"{difference.mean:+.4f}",
                f"{difference.low:+.4f} to {difference.high:+.4f}",
                "yes" if difference.mean <= MARGIN else "no",
            ]
        )
    return rows


if __name__ == "__main__":
    main()
