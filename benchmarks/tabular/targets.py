"""Targets of the estimators: what was asked, what was measured, met or missed and by how much."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tabular.comparison import (
    OURS,
    ROOT,
    UNTUNED,
    Comparison,
    Record,
    failed,
    far_coverage,
    pooled,
    worse_than_nothing,
)
from tabular.tuned import RIVALS

KNOWN = ROOT / "results" / "tables-known.json"
PROCESS = "gaussian-process"
CONFORMAL = ("plain interval", "conformal interval", "set")
SPLITS = 10  # of a confirmation table that counts
# Confirmation tables of up to 1,000 rows.
SMALL_TABLES = {"classification": 18, "regression": 9}
BDE_TABLES = sum(SMALL_TABLES.values())  # decided once, when all are there
# Tables whose results were known when this was planned.
SEEN = {
    "bde": ("bands", "birthwt", "breast", "hayes-roth", "housevotes", "ionosphere"),
    "bde-documented": ("bands", "breast", "glass", "hayes-roth", "housevotes"),
}


@dataclass(frozen=True)
class Target:
    """One target; `met` is None where nothing was run, or not all that was planned."""

    asked: str
    found: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """In one word."""
        open_ = "not finished" if self.found else "not run"
        return {None: open_, True: "met", False: "**missed**"}[self.met]

    @property
    def outcome(self) -> str:
        """What was measured, and whether something is still to come."""
        parts = [self.found] if self.found else []
        return ", ".join([*parts, self.verdict] if self.met is None else parts)


def at_most(asked: str, value: float, limit: float, form: str = "{:.3f}") -> Target:
    """A number that must not exceed its limit; what it exceeds it by is told."""
    text = form.format(value)
    over = "" if value <= limit else f", {form.format(value - limit)} too much"
    return Target(asked, text + over, bool(value <= limit))


def tuned_names(task: str) -> tuple[str, ...]:
    """Ours and the tuned rivals."""
    return (OURS, *(f"tuned-{rival}" for rival in RIVALS[task]))


def first(compared: Comparison, scores: Sequence[str], asked: str) -> Target:
    """First by mean rank in all of these scores."""
    places = [compared.place(s) for s in scores]
    parts = []
    for score, place in zip(scores, places, strict=True):
        found = compared.ranks(score)
        order = np.argsort(found)[:2]
        named = ", ".join(f"{compared.names[i]} {found[i]:.2f}" for i in order)
        parts.append(f"{score.upper()}: place {place} ({named}{', …' if len(found) > 2 else ''})")
    return Target(asked, "; ".join(parts), max(places) == 1)


def tuned_target(task: str, tables: Sequence[Record]) -> Target:
    """Not decided worse than the best tuned rival."""
    compared = Comparison.of(tables, tuned_names(task))
    asked = f"{task}: not decided worse in NLL than the best tuned rival"
    if not compared:
        return Target(asked, "", None)
    found = compared.ranks("nll")
    best = int(found[1:].argmin())
    verdict = compared.verdicts("nll")[compared.names[1 + best]]
    p, wins = compared.p_values("nll")[best], compared.wins("nll")[best]
    text = f"against {compared.names[1 + best]}: ahead on {wins} of {len(compared.tables)} tables "
    text += f"(of {len(tables)}; {compared.split_counts()}), mean ranks {found[0]:.2f} and "
    text += f"{found[1 + best]:.2f}, Holm's p = {p:.3f}: {verdict}"
    enough = len(compared.tables) >= SMALL_TABLES[task]  # with few tables nothing is decided
    return Target(asked, text, verdict != "worse" if enough else None)


def process_target(task: str, tables: Sequence[Record]) -> Target:
    """First by mean rank in NLL also where a Gaussian process takes part."""
    compared = Comparison.of(tables, (*UNTUNED[task], PROCESS))
    asked = f"{task}: first in NLL also with a Gaussian process, where it can be run"
    if not compared:
        return Target(asked, "", None)
    target = first(compared, ("nll",), asked)
    more = f"; {len(compared.tables)} tables, {compared.split_counts()}"
    return Target(asked, target.found + more, target.met)


def bde_targets(tables: Sequence[Record]) -> list[Target]:
    """Ahead of sklearn-contrib-bde in NLL and in fit time, by a paired test."""
    targets = []
    for name in SEEN:
        for score, what in (("nll", "NLL"), ("fit_seconds", "fit time")):
            asked = f"ahead of `{name}` in {what} on most of {BDE_TABLES} tables, decided"
            targets.append(bde_target(tables, name, score, asked))
    return targets


def bde_target(tables: Sequence[Record], name: str, score: str, asked: str) -> Target:
    """One of them, which tables that were not seen before must decide alone, too."""
    every = Comparison.of(tables, (OURS, name))
    new = Comparison.of([r for r in tables if r["table"] not in SEEN[name]], (OURS, name))
    if not new:
        return Target(asked, "", None)
    texts, ahead = [], []
    for compared in (every, new):
        wins, count = compared.wins(score)[0], len(compared.tables)
        ahead.append(2 * wins > count and compared.verdicts(score)[name] == "better")
        texts.append(f"{wins} of {count} tables, p = {compared.p_values(score)[0]:.1e}")
    texts[0] += f" ({by_task(every, score)})"
    text = f"{texts[0]}; of those not seen before, {texts[1]}"
    nan = failed(tables, name)
    text += f"; left out, for it gave NaN: {', '.join(nan)}" if nan else ""
    return Target(asked, text, all(ahead) if len(every.tables) + len(nan) >= BDE_TABLES else None)


def by_task(compared: Comparison, score: str) -> str:
    """Wins over the only rival, for each task."""
    parts = []
    for task in SMALL_TABLES:
        own = Comparison(compared.names, tuple(r for r in compared.tables if r["task"] == task))
        if own.tables:
            parts.append(f"{task} {own.wins(score)[0]} of {len(own.tables)}")
    return ", ".join(parts)


def coverage_targets(tables: Sequence[Record]) -> list[Target]:
    """Coverage of 95 % intervals: pooled, by thirds of the predicted mean, of each table."""
    shares = [pooled(tables, f"coverage{part}") for part in ("", "_a", "_b", "_c")]
    far = far_coverage(tables)
    named = ", ".join(f"{name} {share:.3f}" for name, share in far.items())
    within = [0.92 <= share <= 0.98 for share in shares]
    thirds = ", ".join(f"{share:.3f}" for share in shares[1:])
    single = "regression: 95 % intervals of each table hold 95 ± (3 + 2 standard errors) %"
    return [
        Target("regression: 95 % intervals hold 92–98 %, pooled", f"{shares[0]:.3f}", within[0]),
        Target("… also within thirds of the predicted mean", thirds, all(within[1:])),
        Target(single, f"outside: {named or 'none'} (of {len(tables)})", not far),
    ]


def confirmation_targets(classify: Sequence[Record], regress: Sequence[Record]) -> list[Target]:
    """Targets that count on confirmation tables."""
    targets: list[Target] = []
    tasks = {"classification": classify, "regression": regress}
    scores = {"classification": ("nll", "ece"), "regression": ("nll",)}
    for task, tables in tasks.items():
        compared = Comparison.of(tables, UNTUNED[task], SPLITS)
        named = " and ".join(s.upper() for s in scores[task])
        asked = f"{task}: first by mean rank in {named} among untuned estimators"
        if not compared:
            targets.append(Target(asked, "", None))
            continue
        targets.append(first(compared, scores[task], asked))
        targets.append(process_target(task, tables))
        targets.append(tuned_target(task, tables))
        worse = worse_than_nothing(compared.tables)
        text = ", ".join(f"{name} {gap:+.3f}" for name, gap in worse.items()) or "none"
        asked = f"{task}: on no table worse than no model by more than 1 % + 2 standard errors"
        targets.append(Target(asked, f"worse: {text} (of {len(compared.tables)})", not worse))
        if task == "regression":
            targets += coverage_targets(compared.tables)
    return targets + bde_targets([*classify, *regress])


def known_targets(file: Path = KNOWN) -> list[Target]:
    """Targets on made tables."""
    known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    targets = []
    if "weak" in known:
        over = known["weak"]["over logistic"][0]
        asked = "linear-logistic, n = 1,000, d = 20: NLL at most .02 above logistic regression"
        targets.append(at_most(asked, over, 0.02, "{:+.4f}"))
    if "noise" in known:
        asked = "pure noise: NLL at most .01 above the entropy of the labels"
        targets.append(at_most(asked, known["noise"]["over entropy"][0], 0.01, "{:+.4f}"))
    if "thirds" in known:
        shares = known["thirds"]["auto"]
        text = ", ".join(f"{s:.3f}" for s in shares)
        asked = "noise that grows with the mean: coverage 92–98 % in each third"
        targets.append(Target(asked, text, all(0.92 <= s <= 0.98 for s in shares)))
    if "outlier" in known:
        gap = known["outlier"]["with"][0] - known["outlier"]["without"][0]
        asked = "one cell of 1e9 among 500 rows: NLL of other rows at most .01 higher"
        targets.append(at_most(asked, gap, 0.01, "{:+.4f}"))
    if "conformal" in known:
        plain, *calibrated = (known["conformal"][name][0] for name in CONFORMAL)
        text = f"{calibrated[0]:.3f}, {calibrated[1]:.3f} (intervals before: {plain:.3f})"
        asked = "a wrong model: conformal 90 % intervals and sets hold 88–92 %"
        targets.append(Target(asked, text, all(0.88 <= s <= 0.92 for s in calibrated)))
    if "times" in known:
        ratios = [ours / mlp for ours, mlp in known["times"].values()]
        asked = "one fit over one of a scaled MLPClassifier, tables of 200 to 5,000 rows"
        targets.append(at_most(f"{asked}: median ≤ 5", float(np.median(ratios)), 5, "{:.1f}"))
        targets.append(at_most(f"{asked}: worst ≤ 15", max(ratios), 15, "{:.1f}"))
    for task, size in known.get("size", {}).items():
        for name, limit in (("fit seconds", 60), ("peak MB, after predictions", 1024)):
            asked = f"50,000 × 100, {task}: {name} ≤ {limit}"
            targets.append(at_most(asked, size[name], limit, "{:.0f}"))
    for name, value in known.get("predict", {}).items():
        targets.append(at_most(f"prediction of 1,000 rows, {name}: ≤ 10 ms", value, 10, "{:.1f}"))
    return targets
