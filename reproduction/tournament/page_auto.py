"""The part of docs/tournament.md on chains that are chosen by what the first one shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tournament import stats, table
from tournament.auto import NAME, RATIO
from tournament.tasks import TASKS

FIXED = "EMCMC ×4 from scratch, EMCMC from a trained network"
RIVALS = ("EMCMC", "EMCMC ×4")


def section(folder: Path, methods: Sequence[str]) -> str:
    """What it chose, and what came of it; empty if it was not run."""
    found, own = table.read(folder / "auto"), table.read(folder / "own")
    if not found:
        return ""
    rows = [row(task, found[task][NAME], own[task]) for task in found]
    head = [
        "task",
        "seeds",
        "four chains on",
        "held-out / training loss",
        NAME,
        *(f"− {rival}" for rival in RIVALS),
    ]
    text = [
        "## Chains by what the first one shows: tried on development tasks, not adopted\n",
        "The first chain has a quarter of the budget. If its held-out loss is more than "
        f"{RATIO:g} times its training loss, three more chains follow; else one chain goes on from "
        "it with the rest of the budget. Differences are paired over seeds, with 95 % intervals. "
        "Command: `python benchmarks/recipes.py auto`.\n",
        table.markdown(head, rows),
        ranks(found, own, methods),
        "Not adopted: the ratio does not tell `concrete`, where one chain is better, from "
        "`digits`, where four are. The fixed choice of the second line, which looks at nothing, "
        "ranks alike within the intervals. `fashion-mlp` was not run.\n",
    ]
    return "\n".join(text)


def row(task: str, records: dict[int, dict[str, Any]], own: dict[str, Any]) -> list[str]:
    """One task: choices, NLL, and differences to both fixed forms."""
    nll = table.values(records, "nll")
    ratios = [one["held_out"] / one["training"] for one in records.values()]
    several = sum(one["chains"] > 1 for one in records.values())
    differences = []
    for rival in RIVALS:
        theirs = table.values(own[rival], "nll")
        seeds = sorted(set(nll) & set(theirs))
        d = stats.paired([nll[s] for s in seeds], [theirs[s] for s in seeds])
        differences.append(f"{d.mean:+.4f} ({d.low:+.4f} to {d.high:+.4f})")
    seen = f"{min(ratios):.1f} to {max(ratios):.1f}"
    return [task, str(len(nll)), str(several), seen, table.cell(records, "nll"), *differences]


def ranks(found: table.Results, own: table.Results, methods: Sequence[str]) -> str:
    """Mean ranks on all development tasks: by the rule, and by a fixed choice that needs none.

    Tasks that start from a trained network have one chain by both. Means are over the seeds that
    the rule was run with.
    """
    lines = []
    for name, chosen in ((f"{NAME}, by the rule", True), (FIXED, False)):
        tasks = [means(task, found, own, methods, chosen) for task in own if _counts(task, found)]
        ranked = stats.mean_ranks(tasks, lower_is_better=True)
        mean, low, high = ranked["ours"]
        best = min((n for n in ranked if n != "ours"), key=lambda n: ranked[n][0])
        lines.append(
            f"- {name}: mean rank {mean:.1f} ({low:.1f} to {high:.1f}) among {len(ranked)} on "
            f"{len(tasks)} tasks; the best of the others is {best} with {ranked[best][0]:.1f}."
        )
    return "\n".join(lines) + "\n"


def _counts(task: str, found: table.Results) -> bool:
    return task in found or (TASKS[task].half == "development" and TASKS[task].start > 0)


def means(
    task: str, found: table.Results, own: table.Results, methods: Sequence[str], chosen: bool
) -> dict[str, float]:
    """Mean NLL of every method over the same seeds; "ours" is the one that is judged."""
    records = found.get(task, {}).get(NAME)
    seeds = set(records or own[task]["EMCMC"])
    fixed = own[task]["EMCMC" if TASKS[task].start else "EMCMC ×4"]
    ours = records if records and chosen else fixed
    sources = {**{name: own[task][name] for name in methods}, "ours": ours}
    return {
        name: float(np.mean([v for s, v in table.values(source, "nll").items() if s in seeds]))
        for name, source in sources.items()
    }
