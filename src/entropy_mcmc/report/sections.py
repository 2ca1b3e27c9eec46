"""The sections of one run, in the order of the page; what was not measured is left out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from entropy_mcmc import metrics
from entropy_mcmc.evaluation import detection_scores
from entropy_mcmc.evaluation.sets import SHUFFLED
from entropy_mcmc.file_names import shown_name
from entropy_mcmc.report.corruption_section import corruption_section
from entropy_mcmc.report.diagnostics_section import diagnostics_section
from entropy_mcmc.report.example_images import confidently_wrong, gallery, most_uncertain
from entropy_mcmc.report.figures import ood, quality, regression
from entropy_mcmc.report.figures.learning import loss_figure
from entropy_mcmc.report.figures.svg import fixed, number, percent
from entropy_mcmc.report.flatness_section import flatness_section
from entropy_mcmc.report.html import Figure, Section, Table, bullets, notice, piece
from entropy_mcmc.report.independent_networks import effectively_different
from entropy_mcmc.report.independent_networks import tile as different_tile
from entropy_mcmc.report.labels import SHARES, arrow
from entropy_mcmc.report.member_scores import BASELINE, WHOLE, Member, members
from entropy_mcmc.report.page_predictions import Classified, Regressed
from entropy_mcmc.report.run_data import RunData
from entropy_mcmc.report.settings import setup_section
from entropy_mcmc.report.verdict import sentences, verdict

COLUMNS = ("accuracy", "nll", "ece", "brier", "misclassification_auroc", "rmse", "coverage")
SHUFFLED_MEANS = " “Shuffled pixels” are the test images with all pixels rearranged."
TILES = ("accuracy", "rmse", "nll", "ece", "coverage")


def sections(run: RunData) -> list[Section]:
    """Every section that has something to show."""
    scored = members(run)
    made = [
        summary_section(run, scored),
        setup_section(run),
        learning_section(run),
        quality_section(run, scored),
        regression_section(run),
        calibration_section(run),
        ood_section(run),
        corruption_section(run),
        diagnostics_section(run),
        flatness_section(run.flatness),
        images_section(run),
    ]
    return [section for section in made if section is not None]


def cell(name: str, value: float | None) -> str:
    """A metric's value in its own way of writing."""
    return percent(value) if name in SHARES else fixed(value)


def summary_section(run: RunData, scored: Sequence[Member]) -> Section:
    """Verdict, tiles, sentences."""
    line, severity = verdict(run, scored)
    content: list[object] = [
        Markup('<p class="verdict {}"><strong>Verdict.</strong> {}</p>').format(severity, line),
        tiles(run, scored),
        bullets(sentences(run, scored)),
    ]
    content += [notice(words, "warning") for words in unfinished(run)]
    if run.why:
        content.append(notice(f"No predictions were made for this page: {run.why}", "warning"))
    return Section("summary", "Summary", "", content)


def unfinished(run: RunData) -> list[str]:
    """A sentence for each chain that has not made all its steps."""
    total = run.record.cycle_steps * run.record.cycles
    last = {chain: events[-1]["step"] for chain, events in run.losses().items()}
    chains = run.record.config.chains or 1
    return [
        f"Not finished: chain {chain + 1} is at step {last.get(chain, 0):,} of {total:,}."
        for chain in range(chains)
        if last.get(chain, 0) < total
    ]


def tiles(run: RunData, scored: Sequence[Member]) -> Markup:
    """The few numbers to remember, large."""
    shown: list[tuple[str, str, str]] = []
    for name in TILES if scored else ():
        if name in scored[0].scores:
            other = next((m.scores[name] for m in scored if m.name == BASELINE), None)
            beside = "" if other is None else f"one SGD network: {cell(name, other)}"
            shown.append((arrow(name), cell(name, scored[0].scores[name]), beside))
    base = {} if run.baseline is None else detection(run.baseline)
    for name, scores in detection(run).items():
        beside = f"one SGD network: {fixed(base[name]['auroc'])}" if name in base else ""
        shown.append((f"{ood.ood_name(name)}, AUROC ↑", fixed(scores["auroc"]), beside))
    shown.append(("networks kept", str(len(run.samples)), ""))
    told = effectively_different(run)
    shown += [different_tile(told)] if told is not None else []
    return piece("definitions", "tiles", shown)


def detection(run: RunData) -> dict[str, dict[str, float]]:
    """Scores of detecting each OOD set by entropy."""
    if not isinstance(run.predicted, Classified):
        return {}
    known = run.predicted.average()
    return {name: detection_scores(known, probs) for name, probs in run.predicted.ood.items()}


def learning_section(run: RunData) -> Section | None:
    """The learning curve."""
    figure = loss_figure(run)
    return None if figure is None else Section("learning", "Learning", "", [figure])


def quality_section(run: RunData, scored: Sequence[Member]) -> Section | None:
    """Scores of single samples, θ, θ_a, all and the baseline; and of the complete test set."""
    content: list[object] = []
    if run.predicted is not None and scored:
        content.append(scores_table(scored))
        wanted = [m for m in ("nll", "accuracy", "rmse") if m in scored[0].scores][:2]
        figures = [quality.samples_figure(run, scored, metric) for metric in wanted]
        content.append([figure for figure in figures if figure is not None])
        content.append(rows_note(run))
    complete = complete_table(run)
    content += [complete] if complete is not None else []
    if not content:
        return None
    lead = "Is the average of many networks better than one? Every row predicts the same test rows."
    return Section("quality", "Predictive quality", lead, content)


def rows_note(run: RunData) -> Markup:
    """Which rows the figures are of."""
    assert run.predicted is not None
    rows = run.predicted.rows
    shown = len(rows.targets)
    words = f"all {shown:,} test rows"
    if rows.total is None:
        words = f"the first {shown:,} test rows"
    elif shown < rows.total:
        words = f"{shown:,} of {rows.total:,} test rows, chosen by a fixed shuffle"
    return Markup(
        '<p class="aside">Figures and tables of predictions on this page use {}. '
        "± is one standard error over test rows.</p>"
    ).format(words)


def scores_table(scored: Sequence[Member]) -> Table:
    """One row per member."""
    columns = [name for name in COLUMNS if name in scored[0].scores]
    rows = [[m.name, m.networks, *(_with_error(m, name) for name in columns)] for m in scored]
    head = ["who predicts", "networks", *map(arrow, columns)]
    return Table("Scores on the test rows (↑ higher is better, ↓ lower is better)", head, rows)


def _with_error(member: Member, name: str) -> str:
    value = cell(name, member.scores.get(name))
    values = member.rows.get(name)
    if values is None or name == "coverage" or not np.isfinite(values).all() or len(values) < 2:
        return value
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    shown = f"{100 * error:.1f}" if name in SHARES else number(error, 2)
    return f"{value} ± {shown}"


def complete_table(run: RunData) -> Table | None:
    """The numbers of `emcmc evaluate`, where the page's own are of fewer rows or missing."""
    whole = run.predicted is not None and len(run.predicted.targets) == run.predicted.rows.total
    lines = [e for e in run.evaluations if e.get("set") == "test"]
    if whole or not lines:
        return None
    columns = [name for name in COLUMNS if any(name in line for line in lines)]
    rows = [
        [e.get("who", "?"), e.get("samples", "–"), *(cell(n, e.get(n)) for n in columns)]
        for e in lines
    ]
    head = ["who predicts", "networks", *map(arrow, columns)]
    return Table("The same on the complete test set, from emcmc evaluate", head, rows)


def calibration_section(run: RunData) -> Section | None:
    """Reliability and confidence."""
    if not isinstance(run.predicted, Classified):
        return None
    judged = [(WHOLE, run.predicted.average(), run.predicted.targets)]
    if run.baseline is not None and isinstance(run.baseline.predicted, Classified):
        base = run.baseline.predicted
        judged.append((BASELINE, base.average(), base.targets))
    figures = [
        quality.reliability_figure(judged),
        quality.confidence_figure(judged[0][1], judged[0][2]),
    ]
    lead = "Can its probabilities be taken at face value?"
    return Section("calibration", "Calibration", lead, [figures])


def regression_section(run: RunData) -> Section | None:
    """Predicted against true, intervals, residuals."""
    if not isinstance(run.predicted, Regressed):
        return None
    mean, variance = run.predicted.moments()
    truth = run.predicted.targets.astype(np.float64)
    judged = [(WHOLE, mean, variance, truth)]
    if run.baseline is not None and isinstance(run.baseline.predicted, Regressed):
        base = run.baseline.predicted
        judged.append((BASELINE, *base.moments(), base.targets.astype(np.float64)))
    figures = [
        regression.scatter_figure(mean, variance, truth),
        regression.coverage_figure(judged),
        regression.residual_figure(mean, variance, truth),
        regression.spread_figure(mean, variance, truth),
    ]
    lead = "How close are the predictions, and do the intervals hold what they promise?"
    return Section("regression", "Predictions and intervals", lead, [figures])


def ood_section(run: RunData) -> Section | None:
    """Entropy on OOD inputs, and how well they are detected."""
    if not isinstance(run.predicted, Classified):
        return None
    notes = [notice(words) for words in run.predicted.notes]
    if not run.predicted.ood:
        return Section("ood", "Out-of-distribution inputs", "", notes) if notes else None
    figures: list[Figure] = [ood.histogram_figure(run.predicted)]
    figures.append(ood.roc_figure(detectors(run)))
    rows = []
    for who, one in (("whole posterior", run), (BASELINE, run.baseline)):
        rows += [] if one is None else _detection_rows(who, one)
    head = ["set", "who", *map(arrow, ("auroc", "fpr95", "aupr"))]
    return Section(
        "ood",
        "Out-of-distribution inputs",
        "Inputs unlike the training data (OOD): a good model is unsure of them."
        + (SHUFFLED_MEANS if SHUFFLED in run.predicted.ood else ""),
        [figures, Table("Detecting OOD inputs by entropy", head, rows), *notes],
    )


def _detection_rows(who: str, run: RunData) -> list[list[object]]:
    return [
        [ood.ood_name(name), who, *(cell(n, scores[n]) for n in ("auroc", "fpr95", "aupr"))]
        for name, scores in detection(run).items()
    ]


def detectors(run: RunData) -> list[ood.Detector]:
    """Curves of the posterior (solid) and of the baseline (dashed), a colour per set."""
    shown: list[ood.Detector] = []
    for dash, (who, one) in enumerate((("", run), (", SGD", run.baseline))):
        if one is None or not isinstance(one.predicted, Classified):
            continue
        known = metrics.predictive_entropy(one.predicted.average())
        for slot, (name, probs) in enumerate(one.predicted.ood.items(), 1):
            other = metrics.predictive_entropy(probs)
            label = f"{ood.ood_name(name)}{who}"
            shown.append((label, known, other, None, slot, dash))
    return shown


def images_section(run: RunData) -> Section | None:
    """Most uncertain and most confidently wrong test images."""
    if not isinstance(run.predicted, Classified) or run.predicted.rows.images is None:
        return None
    probs, data = run.predicted.average(), shown_name(run.record.config.data.name)
    wrong = confidently_wrong(probs, run.predicted.targets)
    content: list[object] = [
        gallery(
            run.predicted,
            most_uncertain(probs),
            "Most uncertain",
            "Highest entropy of the whole posterior: where it does not know, and says so.",
            data,
        )
    ]
    if len(wrong):
        words = "Wrong, sorted by confidence: the mistakes that would hurt most."
        content.append(gallery(run.predicted, wrong, "Most confidently wrong", words, data))
    else:
        content.append(notice("No test row of this page is predicted wrongly.", "ok"))
    return Section("images", "Test images to look at", "", content)
