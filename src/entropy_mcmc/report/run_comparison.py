"""Several runs side by side: one table, overlaid curves, and what differs in their settings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from entropy_mcmc import metrics
from entropy_mcmc.report.best_run import (
    ROWS,
    auroc_draws,
    decided_best,
    ece_draws,
    resampled_error,
    row_error,
)
from entropy_mcmc.report.figures import learning, ood, quality, regression
from entropy_mcmc.report.flatness_section import flatness_section
from entropy_mcmc.report.html import Figure, Section, Table, notice, piece
from entropy_mcmc.report.labels import arrow, method_name
from entropy_mcmc.report.member_scores import whole
from entropy_mcmc.report.page_predictions import Classified, Regressed
from entropy_mcmc.report.run_data import Flatness, RunData
from entropy_mcmc.report.score_difference import Difference, nll_difference
from entropy_mcmc.report.sections import cell, detection
from entropy_mcmc.report.seed_averages import nll_over_seeds, over_seeds
from entropy_mcmc.report.settings import differences_table

COLUMNS = ("accuracy", "rmse", "nll", "ece", "coverage", "auroc")
MAIN = "nll"


def comparison(runs: Sequence[RunData]) -> list[Section]:
    """Sections of the comparison; empty ones are left out."""
    made = [
        overview_section(runs),
        settings_section(runs),
        _section("learning", "Learning", [learning.overlaid(runs)]),
        _section(
            "predictions", "Predictions", [reliability(runs), coverage(runs), *detectors(runs)]
        ),
        _section("corruption", "Corrupted test images", corruptions(runs)),
        flatness_of_all(runs),
    ]
    return [section for section in made if section is not None]


def _section(key: str, title: str, figures: Sequence[Figure | None]) -> Section | None:
    drawn = [figure for figure in figures if figure is not None]
    return Section(key, title, "", [drawn]) if drawn else None


def overview_section(runs: Sequence[RunData]) -> Section:
    """Scores of every run, the best of a column marked where it is decided, and who leads."""
    scores = [_scores(run) for run in runs]
    columns = [name for name in COLUMNS if any(name in own for own in scores)]
    repeated = over_seeds(runs, scores, columns)
    # Rows decide nothing between settings that have several seeds: the second table is for these.
    best = _best(runs, scores, columns) if _comparable(runs) and repeated is None else {}
    rows = []
    for i, (run, own) in enumerate(zip(runs, scores, strict=True)):
        cells = [_marked(name, own.get(name), best.get(name) == i) for name in columns]
        severity = (run.diagnostics or {}).get("severity", "not made")
        rows.append([run.name, method_name(run.method), len(run.samples), *cells, severity])
    head = ["run", "method", "networks", *map(arrow, columns), "diagnostics"]
    table = Table("Scores of the whole posterior of each run", head, rows, range(len(runs)))
    named = [(run.name, method_name(run.method)) for run in runs]
    content: list[object] = [
        piece("switches", named),
        table,
        *([] if repeated is None else [repeated]),
        *map(notice, _remarks(runs, scores)),
    ]
    marks = (
        " “best” marks a value only where the test rows decide it against every other run (95 %), "
        "by more than the margin within which runs count as alike."
    )
    lead = f"Every row is one run.{marks if repeated is None else ''}" + (
        " AUROC: OOD inputs detected, mean over the sets." if "auroc" in columns else ""
    )
    return Section("overview", "At a glance", lead, content)


def _best(
    runs: Sequence[RunData], scores: Sequence[dict[str, float]], columns: Sequence[str]
) -> dict[str, int | None]:
    """The run with the decided best value of each column."""
    members = [whole(run) for run in runs]
    best = {}
    for name in columns:
        if name in ROWS:
            error = row_error(members, name)
        else:
            draws = {"ece": ece_draws, "auroc": auroc_draws}.get(name, lambda _: None)
            error = resampled_error([draws(run.predicted) for run in runs])
        best[name] = decided_best(name, [own.get(name) for own in scores], error)
    return best


def _scores(run: RunData) -> dict[str, float]:
    member = whole(run)
    areas = {name: scores["auroc"] for name, scores in detection(run).items()}
    own = dict(member.scores) if member is not None else dict(run.evaluation("test"))
    return {**own, **({"auroc": float(np.mean(list(areas.values())))} if areas else {})}


def _marked(name: str, value: float | None, best: bool) -> object:
    if not best:
        return cell(name, value)
    return Markup('<strong class="best">{} <span>best</span></strong>').format(cell(name, value))


def _comparable(runs: Sequence[RunData]) -> bool:
    """Whether all runs predict the same rows of the same data."""
    targets = [run.predicted.targets for run in runs if run.predicted is not None]
    same = all(np.array_equal(targets[0], other) for other in targets[1:])
    return same and len({_data_key(run) for run in runs}) == 1


def _remarks(runs: Sequence[RunData], scores: Sequence[dict[str, float]]) -> list[str]:
    said = []
    if not _comparable(runs):
        said.append(
            "The runs do not share their data, so that their scores cannot be compared directly."
        )
    else:
        said += _leader(runs, scores)
    budgets = {run.name: _gradients(run) for run in runs}
    if len(set(budgets.values())) > 1:
        words = "; ".join(f"{name} {count:,}" for name, count in budgets.items())
        said.append(f"The runs cost different numbers of gradients: {words}.")
    return said


def _data_key(run: RunData) -> str:
    config = run.record.config.data
    return f"{config.name} {config.options} {run.likelihood}"


def _gradients(run: RunData) -> int:
    last = [events[-1] for events in run.losses().values()]
    return sum(int(event.get("gradients") or event["step"]) for event in last)


def _leader(runs: Sequence[RunData], scores: Sequence[dict[str, float]]) -> list[str]:
    """Which run, or setting of several seeds, has the best NLL, and whether that is decided."""
    repeated = nll_over_seeds(runs, scores)
    if repeated is not None:
        return [_ranked(*repeated, "seeds")]
    scored = [(run.name, one) for run in runs if (one := whole(run)) is not None]
    order = sorted(scored, key=lambda pair: pair[1].scores[MAIN])
    if len(order) < 2:
        return []
    (first, a), (second, b) = order[:2]
    away = nll_difference(a.rows[MAIN], b.rows[MAIN])
    hint = " Test rows tell nothing of other seeds: compare several."
    return [_ranked(first, second, away, "test rows") + hint]


def _ranked(first: str, second: str, away: Difference, over: str) -> str:
    word = "It is ahead of" if away.kind == "better" else "Against"
    return f"{first} has the lowest NLL. {word} {second}: {away}; paired over {over}."


def settings_section(runs: Sequence[RunData]) -> Section:
    """Options that differ."""
    table = differences_table(runs)
    content: list[object] = [notice("All settings are the same.")] if table is None else [table]
    return Section("settings", "What differs", "", content)


def reliability(runs: Sequence[RunData]) -> Figure | None:
    """Reliability diagrams on one pair of axes."""
    judged = [
        (run.name, run.predicted.average(), run.predicted.targets)
        for run in runs
        if isinstance(run.predicted, Classified)
    ]
    return quality.reliability_figure(judged, runs=True) if judged else None


def coverage(runs: Sequence[RunData]) -> Figure | None:
    """Coverage of the regression runs."""
    judged = [
        (run.name, *run.predicted.moments(), run.predicted.targets.astype(np.float64))
        for run in runs
        if isinstance(run.predicted, Regressed)
    ]
    return regression.coverage_figure(judged, runs=True) if judged else None


def detectors(runs: Sequence[RunData]) -> list[Figure]:
    """A ROC figure for each OOD set."""
    curves: dict[str, list[ood.Detector]] = {}
    for i, run in enumerate(runs):
        if not isinstance(run.predicted, Classified):
            continue
        known = metrics.predictive_entropy(run.predicted.average())
        for name, probs in run.predicted.ood.items():
            other = metrics.predictive_entropy(probs)
            curves.setdefault(name, []).append((run.name, known, other, i, i, i))
    return [ood.roc_figure(rates, f"ROC: {ood.ood_name(name)}") for name, rates in curves.items()]


def corruptions(runs: Sequence[RunData]) -> list[Figure | None]:
    """Accuracy and ECE by severity, for runs that were evaluated on corruptions."""
    shown = [(i, run) for i, run in enumerate(runs) if ood.corruption_kinds(run)]
    return [
        ood.severity_figure(
            [(r.name, ood.corruption_points(r, "mean", r.method, metric), i) for i, r in shown],
            metric,
            title,
        )
        for metric, title in (("accuracy", "Accuracy"), ("ece", "Calibration error (ECE)"))
    ]


def flatness_of_all(runs: Sequence[RunData]) -> Section | None:
    """All rows of flatness in one table."""
    rows = [
        {**row, "name": f"{run.name}: {row.get('name', '?')}"}
        for run in runs
        if run.flatness is not None
        for row in run.flatness.rows
    ]
    return flatness_section(Flatness(rows)) if rows else None
