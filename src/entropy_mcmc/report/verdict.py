"""The run in plain words: what was sampled, how good it is, and one line of verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from entropy_mcmc.report.figures.svg import number, percent
from entropy_mcmc.report.labels import method_name
from entropy_mcmc.report.predictions import Classified
from entropy_mcmc.report.run_data import RunData
from entropy_mcmc.report.scores import BASELINE, SINGLE, Floats, Gap, Member, gap

HONEST, FAIR = 0.03, 0.08  # limits of ECE for the words
SEVERITIES = ("ok", "note", "warning", "problem")


def sentences(run: RunData, found: Sequence[Member]) -> list[str]:
    """What was sampled and how good it is, a sentence for each."""
    said = [_sampled(run)]
    if not found:
        return said
    rows = len(found[0].hits)
    if isinstance(run.predicted, Classified):
        error = _spread(found[0].hits)
        said.append(
            f"The average of all {found[0].networks} is right on "
            f"{percent(found[0].scores['accuracy'])} of {rows:,} test rows "
            f"(± {100 * error:.1f} points); {_honesty(run.predicted, found[0])}."
        )
    else:
        said.append(
            f"The average of all {found[0].networks} misses the true value by "
            f"{number(found[0].scores['rmse'])} (root mean square, in the target's units) on "
            f"{rows:,} test rows, and its 95 % intervals hold "
            f"{percent(found[0].scores['coverage'])} of the true values."
        )
    return said + [_against(found, name) for name in (BASELINE, SINGLE) if _has(found, name)]


def _has(found: Sequence[Member], name: str) -> bool:
    return any(member.name == name for member in found)


def _sampled(run: RunData) -> str:
    count, config = len(run.samples), run.record.config
    roles = sorted({sample.role for sample in run.samples}, reverse=True)
    kinds = " and ".join({"theta": "θ", "guide": "θ_a"}[role] for role in roles)
    chains = config.chains or 1
    many = f"{chains} chains" if chains > 1 else "one chain"
    rows = run.record.problem.get("rows", 0)
    networks = "one network was" if count == 1 else f"{count} networks ({kinds}) were"
    return (
        f"{method_name(run.method)} on {config.data.name}: from {rows:,} training rows "
        f"{networks} kept, each of {run.record.problem.get('parameters', 0):,} parameters, along "
        f"{many} of {run.record.cycles} cycle{'s' if run.record.cycles > 1 else ''}."
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


def _against(found: Sequence[Member], name: str) -> str:
    other = next(member for member in found if member.name == name)
    classify = "accuracy" in found[0].scores
    told = _compare("NLL", gap(found[0].losses, other.losses))
    if classify:
        hits = gap(found[0].hits, other.hits)
        sign = "higher" if hits.value > 0 else "lower"
        words = f"{abs(100 * hits.value):.1f} ± {100 * hits.error:.1f} points"
        first = f"accuracy is {sign} by {words}" if hits.clear else f"accuracy is alike ({words})"
        told = f"{first}, {told}"
    who = {BASELINE: "one SGD network of the same gradient budget", SINGLE: "its single samples"}
    return f"Against {who[name]}: {told}."


def _compare(what: str, difference: Gap) -> str:
    value, error = difference.value, difference.error
    if math.isnan(value):
        return f"{what} is infinite for one of them"
    words = f"{number(abs(value), 2)} ± {number(error, 2)} nats"
    if not difference.clear:
        return f"{what} is alike ({words} apart)"
    return f"{what} is {'lower (better)' if value < 0 else 'higher (worse)'} by {words}"


def verdict(run: RunData, found: Sequence[Member]) -> tuple[str, str]:
    """One line, and its severity."""
    if not found:
        return "Not judged: there are no predictions on test data.", "note"
    parts, severity = [_quality(run, found)], "ok"
    reference = BASELINE if _has(found, BASELINE) else SINGLE
    if _has(found, reference):
        other = next(member for member in found if member.name == reference)
        names = {BASELINE: "one SGD network of the same budget", SINGLE: "its single samples"}
        away = gap(found[0].losses, other.losses)
        if away.clear:
            better = away.value < 0
            severity = "ok" if better else "warning"
            parts.append(f"{'better' if better else 'worse'} in NLL than {names[reference]}")
        else:
            severity = "note"
            parts.append(f"no clear difference in NLL from {names[reference]}")
    grave = str((run.diagnostics or {}).get("severity", "ok"))
    if grave in ("warning", "problem"):
        parts.append(f"diagnostics show a {grave}")
        severity = max(severity, grave, key=SEVERITIES.index)
    line = "; ".join(parts)
    return f"{line[0].upper()}{line[1:]}.", severity


def _quality(run: RunData, found: Sequence[Member]) -> str:
    if isinstance(run.predicted, Classified):
        honest = found[0].scores["ece"] <= HONEST
        trust = "well calibrated" if honest else "not well calibrated"
        return f"{percent(found[0].scores['accuracy'])} right, {trust}"
    inside = found[0].scores["coverage"]
    width = math.sqrt(0.95 * 0.05 / len(found[0].hits))
    if abs(inside - 0.95) <= 2 * width:
        return "intervals hold what they promise"
    return "intervals are too narrow" if inside < 0.95 else "intervals are too wide"
