"""The parts of docs/tournament.md beside the leagues.

Ingredients, budgets, different networks, and the search of the reproduction's rivals.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tournament import rivals
from tournament.stats import paired
from tournament.table import markdown

Groups = dict[tuple[str | int, ...], list[float]]


def sections(results: Path, pictures: Path) -> str:
    """Markdown of all that there is."""
    parts = [networks(results), ingredients(results), budgets(results, pictures)]
    return "\n".join(part for part in (*parts, searched(results)) if part)


def searched(results: Path) -> str:
    """A table: what the search of the rivals' settings chose, if all its tasks are finished."""
    if not all((results / f"rivals-{task}.json").exists() for task in rivals.SEARCHED):
        return ""
    words = (
        "The reproduction has five methods more. Their authors' settings are for longer runs, so "
        "each was searched on a grid around them, on development tasks, by validation NLL with "
        "two seeds that judge nothing ([protocol](protocol.md#regimes)). Last columns: mean change "
        "of NLL against the authors' settings. Command: `python benchmarks/recipes.py rivals "
        f"--tasks {' '.join(rivals.SEARCHED)}`.\n\n"
    )
    head = ["rival", "its authors' setting", "chosen", *rivals.SEARCHED]
    return f"## Settings of the reproduction's rivals\n\n{words}" + markdown(
        head, rivals.table(results)
    )


def rows(file: Path, measure: str = "nll") -> Groups:
    """Values of a measure over seeds, by key without the seed; diverged runs are left out."""
    found: Groups = defaultdict(list)
    for row in json.loads(file.read_text())["rows"]:
        if measure in row["measures"]:
            found[tuple(row["key"][:-1])].append(row["measures"][measure])
    return dict(found)


def shown(values: list[float]) -> str:
    """Mean ± standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.4f} ± {error:.4f}"


def named(results: Path, part: str) -> dict[str, Path]:
    """Files of a part, by what follows its name."""
    return {file.stem.removeprefix(part): file for file in sorted(results.glob(f"{part}*.json"))}


def ingredients(results: Path) -> str:
    """A table: NLL of EMCMC with one thing changed minus that of EMCMC, paired over seeds."""
    files = {
        task: {**by_seed(file), **replicas(results.parent / "replicas" / task)}
        for task, file in named(results, "ingredients-").items()
    }
    if not files:
        return ""
    names = list(dict.fromkeys(name for groups in files.values() for name in groups))
    full = ["EMCMC", *(shown(list(groups["EMCMC"].values())) for groups in files.values())]
    lines = [
        [name, *(changed(groups.get(name, {}), groups["EMCMC"]) for groups in files.values())]
        for name in names
        if name != "EMCMC"
    ]
    words = (
        "NLL of EMCMC by its recipe, then with one thing changed: the difference to the first row, "
        "paired over seeds, with its 95 % interval. Above 0 what was taken away helps (the "
        "prior: against a weight decay copied from a large data set), below 0 what was put in "
        "does: four chains or replicas, with the same number of gradients as one chain. Bold "
        "where the interval excludes 0, without a correction for their number.\n\n"
    )
    return f"## What each ingredient gives\n\n{words}" + markdown(["", *files], [full, *lines])


def replicas(folder: Path, measure: str = "nll") -> dict[str, dict[int, float]]:
    """The same of four replicas at equal gradients, by benchmarks/replicas.py."""
    cells = [json.loads(file.read_text()) for file in sorted(folder.glob("y4-[0-9]*.json"))]
    found = {cell["seed"]: cell["scores"]["samples"][measure] for cell in cells}
    return {"four replicas": found} if found else {}


def by_seed(file: Path, measure: str = "nll") -> dict[str, dict[int, float]]:
    """A measure by name and seed; diverged runs are left out."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in json.loads(file.read_text())["rows"]:
        if measure in row["measures"]:
            name, seed = row["key"]
            found[name][seed] = row["measures"][measure]
    return dict(found)


def changed(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """Mean of paired differences and its 95 % interval."""
    seeds = sorted(set(ours) & set(theirs))
    if len(seeds) < 2:
        return "–"
    d = paired([ours[s] for s in seeds], [theirs[s] for s in seeds])
    text = f"{d.mean:+.4f} ({d.low:+.4f} to {d.high:+.4f})"
    return f"**{text}**" if d.low > 0 or d.high < 0 else text


def networks(results: Path) -> str:
    """A table: effectively different networks of every method that averages several."""
    files: dict[str, Any] = {
        name: json.loads(file.read_text()) for name, file in named(results, "networks-").items()
    }
    files = {name: content for name, content in files.items() if content}
    if not files:
        return ""
    methods = list(dict.fromkeys(m for content in files.values() for m in content))
    lines = [
        [m, *("{:.1f} ({:.1f} to {:.1f})".format(*c[m]) if m in c else "–" for c in files.values())]
        for m in methods
    ]
    return "## Effectively different networks\n\n" + markdown(["method", *files], lines)


def budgets(results: Path, pictures: Path) -> str:
    """One picture: NLL against passes, a panel for each task."""
    files = {task: rows(file) for task, file in named(results, "budget-").items()}
    if not files:
        return ""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(files), figsize=(4.5 * len(files), 3.6), squeeze=False)
    for axis, (task, groups) in zip(axes[0], files.items(), strict=True):
        for method in dict.fromkeys(key[0] for key in groups):
            points = sorted((int(key[1]), v) for key, v in groups.items() if key[0] == method)
            passes, means = [p for p, _ in points], [float(np.mean(v)) for _, v in points]
            errors = [float(np.std(v) / np.sqrt(len(v))) for _, v in points]
            axis.errorbar(passes, means, errors, marker="o", label=str(method))
        axis.set(xscale="log", yscale="log", xlabel="passes", ylabel="NLL", title=task)
        budgets = sorted({int(key[1]) for key in groups})
        axis.set_xticks(budgets, [str(passes) for passes in budgets])
        axis.minorticks_off()
        low, high = axis.get_ylim()
        ticks = [round(float(tick), 3) for tick in np.geomspace(low, high, 6)[1:-1]]
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0][0].legend()
    figure.tight_layout()
    pictures.mkdir(parents=True, exist_ok=True)
    figure.savefig(pictures / "tournament-budget.png", dpi=110)
    plt.close(figure)
    return "## At which budget what?\n\n![NLL against passes](pictures/tournament-budget.png)\n"
