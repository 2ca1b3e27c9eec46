"""The page docs/replicas.md: the verdict, tables of means over seeds, and paired differences."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from replicated import verdicts
from replicated.flat import EFFORT, Effort
from replicated.verdicts import Values

INTRO = """\
# Replicas at equal gradients

y networks that share a guide have a target that prefers flat basins ([beyond the
paper](beyond.md)). Does it pay? Here y = 1, 2 and 4 replicas are compared with four independent
chains, an ensemble, SAM and a moving average of weights, all with the same number of gradients and
the settings of the [tournament](tournament.md): y = 1 is its EMCMC. During burn-in one network
learns by SGD; the replicas start from it and share the gradients that are left. Eight networks are
kept, whatever y.
"""
RULE = """\
Decided by NLL on test rows: paired differences over the seeds that both have, Student's t, p < 0.05
after Holm's correction over the comparisons of the task; that something is at most {margin:g} nats
worse is the bound of a one-sided 95 % interval. Fewer than {enough} seeds decide nothing. In
brackets: NLL minus that of the rival, negative if replicas are better.
"""
METHOD = """\
NLL, ECE and accuracy are on test rows, AUROC is that of telling rows of other data sets by their
predictive entropy. λ_max is the largest eigenvalue of the Hessian on {usual.hessian_rows} training
rows; LLC is the [local learning coefficient](flatness.md) on all training rows (γ =
{usual.localisation:g} in units of each tensor's size; {usual.chains} chains of {usual.steps}
steps). For an average they are those of one of its networks. Each number is a mean over seeds with
its standard error. On `cifar`, where a gradient costs a hundred times as much, λ_max has
{cifar.hessian_rows} rows, and LLC {cifar.steps} steps and γ = {cifar.localisation:g}. (With γ =
{usual.localisation:g} and so few steps the first seed's estimates had standard errors of 2 to 3; γ
was raised for all methods alike before the other seeds were measured.)

(n‡): for n of the seeds the estimate of LLC is not trustworthy by its own checks: its chains have
not mixed (R-hat above 1.05), or it is negative. LLC is meant for a minimum of the training loss. A
network that was drawn with noise, or held by its guide, is none: where the estimate is negative,
the training loss falls away from it. {untrusted} On `cifar` these are {cifar_untrusted}: LLC
decides nothing there.
"""
SOURCE = """\
Made by `benchmarks/replicas.py` (`run`, `flatness`, then `render`) from `results/replicas`,
`results/tournament` and `results/laptop/runs`.
"""
MEASURES = {"nll": "NLL", "ece": "ECE", "accuracy": "accuracy", "auroc": "AUROC"}
# label: (file of the scores, where they are, readout, file of the flatness, its network)
HERE, THERE = "here", "tournament"
AVERAGES = {
    "y = 1 (EMCMC)": ("EMCMC", THERE, "", "EMCMC", "theta"),
    "y = 2": ("y2", HERE, "samples", "y2", "theta"),
    "y = 4": ("y4", HERE, "samples", "y4", "theta"),
    "y = 4, coupled always": ("y4-coupled-always", HERE, "samples", "y4-coupled-always", "theta"),
    "EMCMC ×4": ("EMCMC-x4", THERE, "", "EMCMC-x4", "theta"),
    "ensemble of 4": ("ensemble-4", THERE, "", "ensemble-4", "theta"),
}
SINGLE = {
    "guide, y = 1": ("guide", THERE, "", "EMCMC", "guide"),
    "guide, y = 2": ("y2", HERE, "guide", "y2", "guide"),
    "guide, y = 4": ("y4", HERE, "guide", "y4", "guide"),
    "last θ, y = 2": ("y2", HERE, "last", "y2", "theta"),
    "last θ, y = 4": ("y4", HERE, "last", "y4", "theta"),
    "SGD": ("SGD", THERE, "", "SGD", "theta"),
    "EMA of SGD": ("EMA", THERE, "", "SGD", "ema"),
    "SAM": ("SAM", THERE, "", "SAM", "theta"),
}
OPTIONAL = ("y = 4, coupled always",)  # rows that no plan asks for
PLANNED, PLANNED_SEEDS = ("fashion-mlp", "cifar"), 5
# Seeds of y = 4 that were run after the others had been seen, to see whether they say the same.
LATER = {"cifar": (0, 1, 2, 8, 9, 10, 11)}


def page(results: Path, others: Sequence[Path]) -> str:
    """The whole page; `others` are folders of scores that were made elsewhere."""
    folders = sorted(path for path in results.iterdir() if path.is_dir())
    tasks = {folder.name: rows_of(folder, others) for folder in folders}
    made = {name: verdicts.comparisons(rows) for name, rows in tasks.items()}
    lines = [INTRO, "## Does it pay?", ""]
    lines += [verdicts.verdict(name, compared) for name, compared in made.items()]
    lines += ["", RULE.format(margin=verdicts.MARGIN, enough=verdicts.ENOUGH)]
    lines += [state(tasks), "", "## How it was measured", ""]
    method = METHOD.format(
        usual=Effort(),
        cifar=EFFORT["cifar"],
        untrusted=f"Such are {doubtful(folders)} estimates.",
        cifar_untrusted=doubtful([f for f in folders if f.name == "cifar"]),
    )
    lines += [wrapped(paragraph) + "\n" for paragraph in method.split("\n\n")] + [SOURCE]
    for name, rows in tasks.items():
        lines += [f"## {name}", "", *table(rows), "", *verdicts.differences(made[name]), ""]
        lines += later(rows, LATER.get(name, ()))
    return "\n".join(lines).rstrip() + "\n"


def later(rows: Mapping[str, Values], seeds: Sequence[int]) -> list[str]:
    """The differences over seeds that were run later, by themselves."""
    alone = {label: {s: v for s, v in by.items() if s in seeds} for label, by in rows.items()}
    made = verdicts.comparisons(alone)
    if not made:
        return []
    which = verdicts.joined([str(seed) for seed in seeds])
    said = f"Seeds {which} were run after the others had been seen. By these alone:"
    return [said, "", *verdicts.differences(made)[2:], ""]


def rows_of(folder: Path, others: Sequence[Path]) -> dict[str, Values]:
    """Rows of a task that have results."""
    rows = {
        label: values(folder, [other / folder.name for other in others], *spec)
        for label, spec in {**AVERAGES, **SINGLE}.items()
    }
    return {label: by_seed for label, by_seed in rows.items() if by_seed}


def state(tasks: Mapping[str, Mapping[str, Values]]) -> str:
    """What has been run of what was planned: the fewest seeds of a row, and rows that lack some."""
    parts = [state_of(task, tasks.get(task, {})) for task in PLANNED]
    text = f"**What has been run** ({'; '.join(parts)})."
    if all(not short(tasks.get(task, {})) for task in PLANNED):
        return text
    return f"{text} `run` and `emcmc reproduce` go on where they stopped."


def state_of(task: str, rows: Mapping[str, Values]) -> str:
    """One task's part of it."""
    missing = short(rows)
    fewest = min(missing.values(), default=PLANNED_SEEDS)
    text = f"{task}: {fewest} of {PLANNED_SEEDS} seeds in every row"
    by_count = [
        f"{count} of {verdicts.joined([label for label, n in missing.items() if n == count])}"
        for count in sorted(set(missing.values()))
    ]
    return text + (f": {', '.join(by_count)}" if rows and missing else "")


def short(rows: Mapping[str, Values]) -> dict[str, int]:
    """Planned rows with too few seeds, and how many they have."""
    counts = {label: len(rows.get(label, {})) for label in (*AVERAGES, *SINGLE)}
    planned = {label: count for label, count in counts.items() if label not in OPTIONAL}
    return {label: count for label, count in planned.items() if count < PLANNED_SEEDS}


def wrapped(paragraph: str) -> str:
    """Its lines at one length, whatever the numbers in it."""
    return textwrap.fill(paragraph, 100, break_long_words=False, break_on_hyphens=False)


def doubtful(folders: Sequence[Path]) -> str:
    """How many estimates of LLC speak against themselves, of all networks measured."""
    files = [file for folder in folders for file in sorted(folder.glob("*.json"))]
    records = [record for file in files if (record := read(file)) is not None]
    notes = [network.get("notes") for r in records for network in r["flatness"].values()]
    return f"{sum(map(bool, notes))} of {len(notes)}"


def values(
    folder: Path,
    others: Sequence[Path],
    scores: str,
    where: str,
    readout: str,
    flat: str,
    network: str,
) -> Values:
    """What there is of one row, for the seeds of which y = 4 has results."""
    by_seed: Values = {}
    for seed in seeds_of(folder):
        name = f"{scores}-{seed}.json"
        if where == HERE:
            record = read(folder / name)
            measured = record and record["scores"][readout]
        else:
            measured = measures_of([other / name for other in others])
        if measured is None:
            continue
        by_seed[seed] = {name: measured[name] for name in MEASURES if name in measured}
        flatness = (read(folder / f"{flat}-{seed}.json") or {"flatness": {}})["flatness"].get(
            network
        )
        if flatness is not None:
            by_seed[seed]["top"] = flatness["largest_eigenvalue"]
            by_seed[seed]["llc"] = flatness["learning_coefficient"]
            by_seed[seed]["llc-untrusted"] = float(bool(flatness.get("notes")))
    return by_seed


def read(file: Path) -> dict[str, Any] | None:
    """A record, or None if there is none."""
    return json.loads(file.read_text()) if file.exists() else None


def measures_of(files: Sequence[Path]) -> dict[str, float] | None:
    """Measures in the first of these files that exists: of the tournament, or of an item's job."""
    for file in files:
        if (record := read(file)) is not None:
            return dict(record.get("result", record)["measures"])
    return None


def seeds_of(folder: Path) -> list[int]:
    """Seeds of which y = 4 is there."""
    return sorted(int(file.stem.split("-")[-1]) for file in folder.glob("y4-[0-9]*.json"))


def table(rows: Mapping[str, Values]) -> list[str]:
    """A row for each method: averages first, then single networks."""
    lines = ["| predictions | " + " | ".join(MEASURES.values()) + " | λ_max | LLC | seeds |"]
    lines.append("|---|" + "---|" * (len(MEASURES) + 3))
    for label, by_seed in rows.items():
        cells = [mean(by_seed, name) for name in (*MEASURES, "top", "llc")]
        cells[-1] += mark(by_seed)
        kind = "one network: " if label in SINGLE else ""
        lines.append(f"| {kind}{label} | {' | '.join(cells)} | {len(by_seed)} |")
    return lines


def mean(by_seed: Values, name: str) -> str:
    """Mean and standard error over seeds, and how many if some lack it."""
    numbers = [row[name] for row in by_seed.values() if np.isfinite(row.get(name, np.nan))]
    if not numbers:
        return "–"
    shown = f"{np.mean(numbers):.4g}"
    if len(numbers) > 1:
        shown += f" ± {np.std(numbers, ddof=1) / len(numbers) ** 0.5:.2g}"
    few = len(numbers) < len(by_seed)
    return shown + (f" [{len(numbers)} of {len(by_seed)} seeds]" if few else "")


def mark(by_seed: Values) -> str:
    """How many of a row's estimates of LLC are not trustworthy."""
    count = int(sum(row.get("llc-untrusted", 0) for row in by_seed.values()))
    return f" ({count}‡)" if count else ""
