"""Items of the ablations, all made from one table of data by the same few functions."""

from __future__ import annotations

from dataclasses import replace

from entropy_mcmc_reproduction import stored_runs
from entropy_mcmc_reproduction.ablation_table import ABLATIONS, Ablation, Variant
from entropy_mcmc_reproduction.claims import Claim, verdicts
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.seeds import by_seed, values
from entropy_mcmc_reproduction.text import number
from tournament.tasks import TASKS

GROUP = "ablations"
SEEDS = {"smoke": 2, "laptop": 10, "paper": 10}
SHARE = {"smoke": 0.05, "laptop": 1.0, "paper": 1.0}  # of the task's budget
MEASURES = (
    ("nll", "NLL", 4, 1.0),
    ("ece", "ECE %", 2, 100.0),
    ("accuracy", "accuracy %", 2, 100.0),
)


def item(name: str) -> Item:
    """The item of an ablation."""
    ablation = ABLATIONS[name]
    return Item(
        ablation.title,
        ablation.where,
        lambda size, place: jobs(ablation, size, place),
        lambda results, size: show(ablation, results, size),
        second_edition=True,
    )


def jobs(ablation: Ablation, size: str, place: Place) -> list[Job]:
    """Every variant with every seed; all variants of a seed before the next seed."""
    return [_job(v, seed, size) for seed in range(SEEDS[size]) for v in ablation.variants]


def _job(variant: Variant, seed: int, size: str) -> Job:
    method = replace(stored_runs.by_name(variant.method), **variant.method_changes)
    name = f"{GROUP}/{variant.label}"
    return stored_runs.job(name, method, variant.task, seed, variant.changes, SHARE[size])


def show(ablation: Ablation, results: Results, size: str) -> Outcome:
    """A row for each variant, then the claims."""
    rows = [_row(v, results) for v in ablation.variants]
    columns = [ablation.column, *(text for _, text, _, _ in MEASURES), "paper: accuracy %"]
    claims = [
        Claim(text, f"{GROUP}/{ours}", f"{GROUP}/{theirs}", measure, _paper(ablation, ours, theirs))
        for measure in ("nll", "accuracy")
        for text, ours, theirs in ablation.claims
    ]
    notes = [note(ablation, results, size), *([ablation.note] if ablation.note else [])]
    return Outcome(columns, rows, verdicts(claims, results), notes=notes)


def _row(variant: Variant, results: Results) -> list[str]:
    label = f"{GROUP}/{variant.label}"
    scores = {
        name: list(values(results, label, "measures", name).values()) for name, *_ in MEASURES
    }
    cells = [
        number(scores[name], digits, factor) if scores[name] else "–"
        for name, _, digits, factor in MEASURES
    ]
    return [variant.text, *cells, "–" if variant.paper is None else f"{variant.paper:.2f}"]


def _paper(ablation: Ablation, ours: str, theirs: str) -> str:
    """The paper's two accuracies; empty where it lacks one."""
    known = {v.label: v.paper for v in ablation.variants}
    pair = known.get(ours), known.get(theirs)
    if None in pair:
        return ""
    return f"accuracy {pair[0]:.2f} against {pair[1]:.2f} %"


def note(ablation: Ablation, results: Results, size: str) -> str:
    """Task, length and seeds, in words."""
    names = dict.fromkeys(v.task for v in ablation.variants)
    task = TASKS[next(iter(names))]
    counts = sorted({len(by_seed(results, f"{GROUP}/{v.label}")) for v in ablation.variants})
    seeds = "–".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return (
        f"{', '.join(f'`{name}`' for name in names)} of the [tournament](comparison.md#tasks): "
        f"{task.train:,} training rows, {SHARE[size] * task.passes:g} passes, {seeds} of "
        f"{SEEDS[size]} seeds; ± is the standard error over seeds."
    )
