"""The diagnosis of a run: findings, mixing, thermometer readings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from markupsafe import Markup

from entropy_mcmc.diagnostics import Estimate, PairTemperature
from entropy_mcmc.report.figures.chart import Frame, Marks, Series, chart
from entropy_mcmc.report.figures.svg import Axis, number, spanning
from entropy_mcmc.report.html import Figure, Section, Table, bullets, notice
from entropy_mcmc.report.run_data import RunData

SYMBOLS = {"theta": "θ", "guide": "θ_a"}


def diagnostics_section(run: RunData) -> Section | None:
    """Verdict, temperature, mixing; what is not in the file is left out."""
    diagnosis = run.diagnostics
    if diagnosis is None:
        return None
    advice = _merged(_tables(diagnosis.get("advice")))
    grave = [entry for entry in advice if entry.get("severity") != "note"]
    notes = [entry for entry in advice if entry.get("severity") == "note"]
    content: list[object] = [
        notice(_sentence(entry), str(entry.get("severity"))) for entry in grave
    ]
    content += [Markup("<h4>Notes</h4>"), bullets(map(_sentence, notes))] if notes else []
    if not content:
        content.append(notice(str(diagnosis.get("text", "nothing to diagnose"))))
    table = _roles_table(diagnosis)
    content += [table] if table else []
    figure = thermometer_figure(run)
    content += [figure] if figure else []
    words = {
        "ok": "Nothing that was checked speaks against these samples.",
        "note": "Nothing grave; the notes say what to keep in mind.",
        "warning": "Something deserves a look before these samples are used.",
        "problem": "These samples should not be used as they are.",
    }
    lead = words.get(str(diagnosis.get("severity")), "") if advice else ""
    return Section("diagnostics", "Diagnostics", f"{lead} {_checked(diagnosis)}".strip(), content)


def _checked(diagnosis: dict[str, Any]) -> str:
    """Which questions were answered, and which could not be."""
    entries = _tables(diagnosis.get("roles"))
    compared = [a for entry in entries for a in _tables(entry.get("agreements"))]
    questions = {
        "whether the chain is at its temperature": bool(
            diagnosis.get("measured") or _theta_decides(diagnosis)
        ),
        "whether its cycles or chains agree": any(a.get("verdict") != "too few" for a in compared),
        "whether its samples differ": any(
            _distance(part, "within")(entry) is not None
            for entry in entries
            for part in ("weights", "predictions")
        ),
    }
    sides = {word: [q for q, done in questions.items() if done is kind]
             for word, kind in (("Checked", True), ("Not checked", False))}  # fmt: skip
    return " ".join(f"{word}: {', '.join(own)}." for word, own in sides.items() if own)


def _theta_decides(diagnosis: dict[str, Any]) -> bool:
    """Whether θ's own temperature says "hot" or "right"; samples close in time say neither."""
    match diagnosis:
        case {
            "temperature": float(temperature),
            "theta_temperature": {"reading": [float(value), float(error)], "freedom": int(freedom)},
        } if freedom > 0:
            pair = PairTemperature(Estimate(value, error), freedom, 0, 0, within=True)
            return pair.verdict(temperature) in ("hot", "right")
    return False


def _merged(advice: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Findings with the same remedy as one, each said once."""
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in advice:
        key = str(entry.get("severity")), str(entry.get("change") or "")
        texts = groups.setdefault(key if key[1] else (key[0], f"\0{len(groups)}"), [])
        if str(entry.get("text", "")) not in texts:
            texts.append(str(entry.get("text", "")))
    return [
        {"severity": severity, "text": "; ".join(texts), "change": change.partition("\0")[0]}
        for (severity, change), texts in groups.items()
    ]


def _tables(value: object) -> list[dict[str, Any]]:
    """The tables of a list; whatever else a file holds is left out."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _sentence(entry: dict[str, Any]) -> str:
    """A finding and what to change; older files have the finding only."""
    text, change = str(entry.get("text", "")), entry.get("change")
    text = text[:1].upper() + text[1:] if text[1:2].islower() else text  # θ_a and 8 stay
    return f"{text}. To change: {change}." if change else text


def _roles_table(diagnosis: dict[str, Any]) -> Table | None:
    """One column for each variable."""
    entries = _tables(diagnosis.get("roles"))
    measured = [(words, [look(entry) for entry in entries]) for words, look in MIXING.items()]
    rows = [
        [words, *(number(value) for value in values)]
        for words, values in measured
        if any(value is not None for value in values)
    ]
    return Table("Mixing and distances", ["what", *map(_symbol, entries)], rows) if rows else None


def _distance(part: str, side: str) -> Callable[[dict[str, Any]], float | None]:
    return lambda entry: (entry.get(part) or {}).get(side)


def _mixing(name: str, place: int) -> Callable[[dict[str, Any]], float | None]:
    return lambda entry: ((entry.get("mixing") or {}).get(name) or (None, None))[place]


MIXING = {
    "distance of weights within a cycle": _distance("weights", "within"),
    "distance of weights between cycles": _distance("weights", "between"),
    "difference of predictions within a cycle": _distance("predictions", "within"),
    "difference of predictions between cycles": _distance("predictions", "between"),
    "effective sample size, worst prediction": _mixing("ess", 0),
    "effective sample size, median prediction": _mixing("ess", 1),
    "R-hat, worst prediction": _mixing("rhat", 0),
    "R-hat, median prediction": _mixing("rhat", 1),
}


def _symbol(entry: dict[str, Any]) -> str:
    return SYMBOLS.get(str(entry.get("role")), str(entry.get("role")))


def thermometer_figure(run: RunData) -> Figure | None:
    """Measured over claimed temperature, at each reading."""
    readings = [
        e
        for e in run.events
        if e["kind"] == "thermometer" and e.get("expected") and e.get("size") and "step" in e
    ]
    if not readings:
        return None
    ratios = [e["observed"] / e["expected"] for e in readings]
    errors = [float(np.sqrt(2 / e["size"])) for e in readings]
    steps = [float(e["step"]) for e in readings]
    tips = [
        f"step {e['step']:,}: {number(r)} times T = {number(e['temperature'])}"
        for e, r in zip(readings, ratios, strict=True)
    ]
    series = [Series("one reading", steps, ratios, "points", 0, errors, tips=tips)]
    low, high = spanning([*ratios, 1.0, *(r + 2 * e for r, e in zip(ratios, errors, strict=True))])
    x = Axis("step", 0.0, max(steps) * 1.05)
    frame = Frame(x, Axis("measured / claimed temperature", min(low, 0.8), max(high, 1.2)))
    words = f"{len(ratios)} readings from {number(min(ratios))} to {number(max(ratios))} times T"
    rows = [
        [e["step"], number(e["temperature"]), number(r), number(s)]
        for e, r, s in zip(readings, ratios, errors, strict=True)
    ]
    return Figure(
        "Thermometer",
        "The distance of θ and θ_a shows at which temperature the chain really is: 1 is right. "
        "Above 1, mini-batch noise heats it.",
        chart(frame, series, words, Marks(reference=((0.0, 1.0), (x.high, 1.0)))),
        Table("Readings", ["step", "claimed T", "ratio", "standard error"], rows),
        series,
    )
