"""The run in plain words: what was sampled, how good it is, and one line of verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from entropy_mcmc.file_names import shown_name
from entropy_mcmc.report.baseline_comparison import decided_losses
from entropy_mcmc.report.figures.svg import fixed, number, percent
from entropy_mcmc.report.independent_networks import effectively_different, in_words
from entropy_mcmc.report.labels import method_name
from entropy_mcmc.report.member_scores import BASELINE, SINGLE, Floats, Member, differences
from entropy_mcmc.report.page_predictions import Classified
from entropy_mcmc.report.run_data import RunData
from entropy_mcmc.report.score_difference import ACCURACY, Difference

HONEST, FAIR = 0.03, 0.08  # limits of ECE for the words
SEVERITIES = ("ok", "note", "warning", "problem")
RIVALS = {
    BASELINE: "one SGD network of the same gradient budget",
    SINGLE: "one of its own samples, on average",
}


def sentences(run: RunData, scored: Sequence[Member]) -> list[str]:
    """What was sampled and how good it is, a sentence for each."""
    said = [_sampled(run)]
    if not scored:
        return said
    rows = len(scored[0].rows["nll"])
    if isinstance(run.predicted, Classified):
        error = _spread(scored[0].rows["accuracy"])
        said.append(
            f"The average of all {scored[0].networks} is right on "
            f"{percent(scored[0].scores['accuracy'])} of {rows:,} test rows "
            f"(± {100 * error:.1f} points); {_honesty(run.predicted, scored[0])}."
        )
    else:
        said.append(
            f"The average of all {scored[0].networks} misses the true value by "
            f"{number(scored[0].scores['rmse'])} (root mean square, in the target's units) on "
            f"{rows:,} test rows, and its 95 % intervals hold "
            f"{percent(scored[0].scores['coverage'])} of the true values."
        )
    told = effectively_different(run)
    said += [in_words(told)] if told is not None else []
    # The verdict itself has the first of them.
    return said + [_against(scored[0], rival) for rival in rivals(scored)[1:]]


def rivals(scored: Sequence[Member]) -> list[Member]:
    """What the whole posterior must beat, the best in NLL first."""
    there = [member for member in scored if member.name in RIVALS]
    return sorted(there, key=lambda member: member.scores["nll"])


def _sampled(run: RunData) -> str:
    count, config = len(run.samples), run.record.config
    roles = sorted({sample.role for sample in run.samples}, reverse=True)
    kinds = " and ".join({"theta": "θ", "guide": "θ_a"}[role] for role in roles)
    chains = config.chains or 1
    many = f"{chains} chains" if chains > 1 else "one chain"
    rows = run.record.problem.get("rows", 0)
    shared = f", with {config.replicas} replicas that share a guide" if config.replicas > 1 else ""
    networks = "one network was" if count == 1 else f"{count} networks ({kinds}) were"
    return (
        f"{method_name(run.method)} on {shown_name(config.data.name)}: from {rows:,} training rows "
        f"{networks} kept, each of {run.record.problem.get('parameters', 0):,} parameters, along "
        f"{many} of {run.record.cycles} cycle{'s' if run.record.cycles > 1 else ''}{shared}."
    )


def _spread(values: Floats) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def _honesty(predicted: Classified, member: Member) -> str:
    ece = member.scores["ece"]
    away = float(predicted.average().max(axis=1).mean()) - member.scores["accuracy"]
    side = "overconfident" if away > 0 else "underconfident"
    if ece <= HONEST:
        return f"its probabilities can be taken at face value (calibration error {number(ece)})"
    much = "somewhat" if ece <= FAIR else "clearly"
    return f"its probabilities are {much} {side} (calibration error {number(ece)})"


def _against(ours: Member, rival: Member) -> str:
    told = "; ".join(str(difference) for difference in differences(ours, rival))
    return f"Against {RIVALS[rival.name]}: {told} (± one standard error, paired over test rows)."


def verdict(run: RunData, scored: Sequence[Member]) -> tuple[str, str]:
    """One line, and its severity: "ok" only where it beats its best rival and loses nothing."""
    if not scored:
        return "Not judged: there are no predictions on test data.", "note"
    severity, parts = "note", []
    there = rivals(scored)
    if there:
        judged = differences(scored[0], there[0])
        word, severity = _judged(judged)
        rows = len(scored[0].rows["nll"])
        told = ", ".join(_scored(difference, scored[0], there[0]) for difference in judged)
        parts.append(f"{word} {RIVALS[there[0].name]}: {told}; paired over {rows:,} test rows")
    else:
        parts.append("Not compared: the run has no baseline (--output.baseline sgd makes one)")
    parts.append(_quality(run, scored))
    lost = decided_losses(run)
    if lost:
        parts.append(f"Worse than one SGD network in {' and '.join(map(_signed, lost))}")
        severity = max(severity, "note", key=SEVERITIES.index)
    grave = str((run.diagnostics or {}).get("severity", "ok"))
    if grave in ("warning", "problem"):
        parts.append(f"Diagnostics show a {grave}")
        severity = max(severity, grave, key=SEVERITIES.index)
    return ". ".join(parts) + ".", severity


def _scored(difference: Difference, ours: Member, rival: Member) -> str:
    """A measure of both, and their difference."""
    name = difference.measure.lower()
    write = percent if difference.measure == ACCURACY else fixed
    both = f"{write(ours.scores[name])} against {write(rival.scores[name])}"
    return f"{difference.measure} {both} ({difference.amount})"


def _signed(difference: Difference) -> str:
    return f"{difference.measure} ({difference.amount})"


def _judged(compared: Sequence[Difference]) -> tuple[str, str]:
    """Word and severity for the differences of NLL and of accuracy or RMSE.

    Only a lower NLL, with nothing worse, is good news; a higher one is red.
    """
    kinds = [difference.kind for difference in compared]
    main = kinds[0] if kinds else "open"
    if "worse" in kinds and "better" in kinds:
        return (
            f"Better in {_which(compared, 'better')}, worse in {_which(compared, 'worse')} than",
            "warning",
        )
    if main == "worse":
        return "Worse than", "problem"
    if "worse" in kinds:
        return f"Worse in {_which(compared, 'worse')} than", "warning"
    if main == "better":
        return "Better than", "ok"
    if "better" in kinds:
        return f"Better only in {_which(compared, 'better')} than", "note"
    if set(kinds) == {"alike"}:
        return "As good as", "note"
    return "Not shown to be better than", "note"


def _which(compared: Sequence[Difference], kind: str) -> str:
    return " and ".join(d.measure for d in compared if d.kind == kind)


def _quality(run: RunData, scored: Sequence[Member]) -> str:
    if isinstance(run.predicted, Classified):
        ece = scored[0].scores["ece"]
        trust = "Well calibrated" if ece <= HONEST else "Not well calibrated"
        return f"{trust} (ECE {number(ece)})"
    inside = scored[0].scores["coverage"]
    width = math.sqrt(0.95 * 0.05 / len(scored[0].rows["nll"]))
    told = f"Its 95 % intervals hold {percent(inside)} of the true values"
    if abs(inside - 0.95) <= 2 * width:
        return told
    return f"{told}: they are too {'narrow' if inside < 0.95 else 'wide'}"
