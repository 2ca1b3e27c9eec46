"""Results → tables: means with standard errors, mean ranks, verdicts against a rival."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tournament import stats
from tournament.methods import METHODS, START
from tournament.scores import LOWER_IS_BETTER

Results = dict[str, dict[str, dict[int, dict[str, Any]]]]  # task → method → seed → record
ORDER = (*METHODS, START.name)


def read(folder: Path) -> Results:
    """All records of a league's folder."""
    results: Results = {}
    for file in sorted(folder.glob("*/*.json")):
        record = json.loads(file.read_text())
        methods = results.setdefault(file.parent.name, {})
        methods.setdefault(record["method"], {})[record["seed"]] = record
    return results


def values(records: dict[int, dict[str, Any]], measure: str) -> dict[int, float]:
    """A measure by seed, of the runs that have it."""
    return {
        seed: record["measures"][measure]
        for seed, record in sorted(records.items())
        if measure in record["measures"]
    }


def cell(records: dict[int, dict[str, Any]], measure: str) -> str:
    """Mean ± standard error, and the number of diverged runs if there are any."""
    scores = list(values(records, measure).values())
    lost = sum(record["diverged"] for record in records.values())
    note = f" ({lost} diverged)" if lost else ""
    if len(scores) < 2:
        return (f"{scores[0]:.4f}" if scores else "–") + note
    error = np.std(scores, ddof=1) / np.sqrt(len(scores))
    return f"{np.mean(scores):.4f} ± {error:.4f}" + note


def names(results: Results) -> list[str]:
    """Methods that any task has, in their fixed order."""
    seen = {name for task in results.values() for name in task}
    return [name for name in ORDER if name in seen]


def means(results: Results, measure: str) -> str:
    """Markdown: a row for each method, a column for each task."""
    rows = [
        [name, *(cell(task.get(name, {}), measure) for task in results.values())]
        for name in names(results)
    ]
    return markdown(["method", *results], rows)


def rank_table(results: Results, measure: str, methods: Sequence[str]) -> str:
    """Markdown: mean rank and bootstrap interval, over the tasks that have all these methods."""
    tasks, ranks = ranked(results, measure, methods)
    rows = [[n, f"{m:.2f}", f"{low:.2f} to {high:.2f}"] for n, (m, low, high) in ranks.items()]
    return markdown(["method", f"mean rank of {tasks} tasks", "95 %"], rows) if rows else ""


def ranked(
    results: Results, measure: str, methods: Sequence[str]
) -> tuple[int, dict[str, tuple[float, float, float]]]:
    """Number of tasks that have all these methods, and (mean rank, low, high), the best first."""
    tasks = [
        {name: float(np.mean(list(values(task[name], measure).values()))) for name in methods}
        for task in results.values()
        if all(values(task.get(name, {}), measure) for name in methods)
    ]
    if not tasks:
        return 0, {}
    ranks = stats.mean_ranks(tasks, LOWER_IS_BETTER[measure.removesuffix("-scaled")])
    return len(tasks), dict(sorted(ranks.items(), key=lambda item: item[1]))


class Judged(NamedTuple):
    """Ours against one rival on one task, Holm's correction over all of a table."""

    task: str
    rival: str
    difference: stats.Difference
    p: float
    verdict: str


def judged(results: Results, ours: str, rivals: Sequence[str], measure: str) -> list[Judged]:
    """Ours against every rival on every task, Holm over all of them."""
    pairs = list(_pairs(results, ours, rivals, measure))
    name = measure.removesuffix("-scaled")
    margin, lower = stats.MARGINS.get(name, 0.0), LOWER_IS_BETTER[name]
    adjusted = stats.holm([difference.p for _, _, difference in pairs]) if pairs else []
    return [
        Judged(task, rival, difference, float(p), stats.verdict(difference, p, margin, lower))
        for (task, rival, difference), p in zip(pairs, adjusted, strict=True)
    ]


def verdicts(results: Results, ours: str, rivals: Sequence[str], measure: str) -> str:
    """Markdown: ours against every rival on every task, Holm over all of them."""
    rows = [
        [
            one.task,
            one.rival,
            f"{one.difference.mean:+.4f}",
            f"{one.difference.low:+.4f} to {one.difference.high:+.4f}",
            f"{one.p:.3g}",
            one.verdict,
        ]
        for one in judged(results, ours, rivals, measure)
    ]
    head = ["task", "rival", f"{measure}, ours − theirs", "95 %", "Holm p", ours]
    return markdown(head, rows) if rows else ""


def _pairs(
    results: Results, ours: str, rivals: Sequence[str], measure: str
) -> Iterable[tuple[str, str, stats.Difference]]:
    for task, methods in results.items():
        for rival in rivals:
            mine, theirs = (values(methods.get(name, {}), measure) for name in (ours, rival))
            seeds = sorted(set(mine) & set(theirs))
            if len(seeds) > 1:
                yield (
                    task,
                    rival,
                    stats.paired([mine[s] for s in seeds], [theirs[s] for s in seeds]),
                )


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
