"""Items of the studies, all made by the same few functions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from entropy_mcmc_reproduction import stored_runs
from entropy_mcmc_reproduction.ablation_table import ABLATIONS
from entropy_mcmc_reproduction.claims import verdicts
from entropy_mcmc_reproduction.items import Item, Outcome, Results
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.picture_table import PICTURES
from entropy_mcmc_reproduction.seeds import by_seed, values
from entropy_mcmc_reproduction.study import AT_PAPER_SCALE, PAPER_SEEDS, Study, Variant
from entropy_mcmc_reproduction.text import number
from tournament import methods, trials
from tournament.methods import Method
from tournament.tasks import TASKS

STUDIES = {**ABLATIONS, **PICTURES}
SMOKE_SEEDS, SMOKE_SHARE = 2, 0.05  # of the task's budget
SMOKE_SEARCH: dict[str, Any] = {"trials": 2, "finalists": 1, "budget": 0.2, "final_seeds": 1}
COLUMNS = {  # measure → title, digits, factor
    "nll": ("NLL", 4, 1.0),
    "ece": ("ECE %", 2, 100.0),
    "accuracy": ("accuracy %", 2, 100.0),
    "auroc": ("AUROC of OOD data %", 2, 100.0),
}


def item(name: str) -> Item:
    """The item of a study."""
    study = STUDIES[name]
    return Item(
        study.title,
        study.where,
        lambda size, place: jobs(study, size),
        lambda results, size: show(study, results, size),
        lambda size, place: unavailable(study, size, place),
        study.says,
    )


def unavailable(study: Study, size: str, place: Place) -> str | None:
    """Why a study cannot run: its data or its scale."""
    if size == "laptop" and study.paper_only:
        return "it has the paper's size only, which needs a GPU: --scale paper"
    names = {_task(study, variant, size) for variant in study.variants}
    if size == "smoke" or place.data or all(name.startswith("digits") for name in names):
        return None
    return "it needs data: set EMCMC_DATA"


def jobs(study: Study, size: str) -> list[Job]:
    """Every variant with every seed: those with most seeds first, a seed at a time."""
    places = [
        (-_seeds(study, size, v), seed, v)
        for v in _sharing_last(study.variants)
        for seed in range(_seeds(study, size, v))
    ]
    return [_job(study, v, seed, size) for _, seed, v in sorted(places, key=lambda each: each[:2])]


def _sharing_last(variants: Sequence[Variant]) -> list[Variant]:
    """Variants that only read off other variants' runs at the end: no process waits for them."""
    seen: set[tuple[Any, ...]] = set()
    first: list[Variant] = []
    sharing: list[Variant] = []
    for variant in variants:
        method = methods.by_name(variant.method)
        runs = (variant.task, method.optimizer, method.chains, str(method.fixed))
        own = (str(variant.changes), str(variant.method_changes))
        (sharing if (*runs, *own) in seen else first).append(variant)
        seen.add((*runs, *own))
    return [*first, *sharing]


def _seeds(study: Study, size: str, variant: Variant) -> int:
    wanted = study.seeds if variant.seeds is None else variant.seeds
    return {"smoke": SMOKE_SEEDS, "paper": PAPER_SEEDS}.get(size, wanted)


def _task(study: Study, variant: Variant, size: str) -> str:
    if size == "smoke" and study.smoke_task:
        return study.smoke_task
    return AT_PAPER_SCALE.get(variant.task, variant.task) if size == "paper" else variant.task


def _method(variant: Variant, size: str) -> Method:
    method = replace(methods.by_name(variant.method), **variant.method_changes)
    if size == "paper" and variant.task in AT_PAPER_SCALE:
        return replace(method, fixed={**method.fixed, "augmented": True})
    return method


def _job(study: Study, variant: Variant, seed: int, size: str) -> Job:
    method = _method(variant, size)
    share = SMOKE_SHARE if size == "smoke" else 1.0
    name, task = _label(study, variant.label), _task(study, variant, size)
    if study.search is None:
        return stored_runs.job(name, method, task, seed, variant.changes, share)
    search = replace(study.search, **SMOKE_SEARCH) if size == "smoke" else study.search
    return stored_runs.tuned_job(name, method, task, seed, search)


def _label(study: Study, label: str) -> str:
    return f"{study.group}/{label}"


def show(study: Study, results: Results, size: str) -> Outcome:
    """A row for each variant that has results, then the claims, NLL first."""
    shown = [v for v in study.variants if by_seed(results, _label(study, v.label))]
    told = any(v.paper is not None for v in study.variants)
    columns = [study.column, "seeds", *(COLUMNS[m][0] for m in study.measures)]
    claims = [
        replace(
            claim,
            ours=_label(study, claim.ours),
            theirs=_label(study, claim.theirs),
            measure=measure,
            margin=claim.margin if measure == claim.measure else None,
            paper=study.paper_of(measure, claim.ours, claim.theirs),
        )
        for measure in study.claimed
        for claim in study.claims
    ]
    notes = [note(study, results, size), *([study.note] if study.note else [])]
    if "auroc" in study.measures and (below := _below_half(study, results)):
        notes.append(below)
    if study.search is not None:
        notes.append(picked(study, results))
    return Outcome(
        [*columns, *(["paper: accuracy %"] if told else [])],
        [_row(study, v, results, told) for v in shown],
        verdicts(claims, results),
        notes=notes,
    )


def picked(study: Study, results: Results) -> str:
    """The settings that the trials chose, and how many of them lie near the end of a range."""
    parts, near = [], []
    for variant in study.variants:
        seeds = by_seed(results, _label(study, variant.label))
        if not seeds:
            continue
        knobs, method = next(iter(seeds.values()))["knobs"], methods.by_name(variant.method)
        shown = {name: knobs[name] for name in (*method.open, "length") if name in knobs}
        listed = ", ".join(f"{name} {value:.3g}" for name, value in shown.items())
        parts.append(f"{variant.text}: {listed}")
        near += trials.near_ends(method, knobs)
    ends = f"Within a tenth of the end of a range: {sum(near)} of {len(near)}."
    return f"Chosen: {'; '.join(parts)}. {ends}"


def _row(study: Study, variant: Variant, results: Results, told: bool) -> list[str]:
    label = _label(study, variant.label)
    cells = []
    for measure in study.measures:
        _, digits, factor = COLUMNS[measure]
        scores = values(results, label, "measures", measure)
        cells.append(number(list(scores.values()), digits, factor))
    paper = ["–" if variant.paper is None else f"{variant.paper:.2f}"] if told else []
    return [variant.text, str(len(by_seed(results, label))), *cells, *paper]


def _below_half(study: Study, results: Results) -> str:
    """That OOD data are found worse than by chance, where they are; else empty."""
    means = [
        statistics.fmean(found.values())
        for v in study.variants
        if (found := values(results, _label(study, v.label), "measures", "auroc"))
    ]
    low = sum(mean < 0.5 for mean in means)
    if not low:
        return ""
    return (
        f"AUROC below 50 % ({low} of {len(means)} rows): these networks are surer of the OOD "
        "pictures than of the test pictures, on average, so that their entropy cannot tell them."
    )


def note(study: Study, results: Results, size: str) -> str:
    """Task, length and seeds, in words."""
    names = list(dict.fromkeys(_task(study, v, size) for v in study.variants))
    task, share = TASKS[names[0]], SMOKE_SHARE if size == "smoke" else 1.0
    return (
        f"{', '.join(f'`{name}`' for name in names)} of the [tournament](comparison.md#tasks): "
        f"{task.train:,} training rows, {share * task.passes:g} passes for every row of the "
        f"table, {_counted(study, results)} seeds; ± is the standard error over seeds."
    )


def _counted(study: Study, results: Results) -> str:
    """Seeds of the rows that have results: one number, or the fewest and the most."""
    counts = [len(by_seed(results, _label(study, v.label))) for v in study.variants]
    ends = dict.fromkeys((min(filter(None, counts), default=0), max(counts)))
    return " to ".join(map(str, ends))
