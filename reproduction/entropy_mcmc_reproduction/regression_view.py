"""Table, figure and verdicts of the UCI regressions, with published numbers beside ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats as distributions

from entropy_mcmc_reproduction.figure import PALETTE, panels, save
from entropy_mcmc_reproduction.items import Outcome, Results, Verdict
from entropy_mcmc_reproduction.published import ENSEMBLES, PUBLISHED
from entropy_mcmc_reproduction.regression_chains import KINDS
from entropy_mcmc_reproduction.text import FAILS, HOLDS, UNDECIDED, mean_error, number
from tournament import stats

METHODS = {**{name: kind.label for name, kind in KINDS.items()}, "hmc": "HMC (reference)"}
OURS = "emcmc"
WANTED_WINS, MOST_BEHIND = 7, 0.02  # targets of docs/protocol.md
COVERAGE = (0.93, 0.97)
NOISE_LIMIT = (
    "the published ensembles learn a Gaussian variance for each row with the network; ours is "
    "fitted afterwards, on rows held out, with heavier tails, and was devised after first results"
)
REFERENCE = "hmc"  # it has many times the gradients: shown, in no family
APART = 1.1  # R-hat above which chains of the reference do not agree
LIMITS = {"sgd": "one network", "sgld": "no momentum"}
GAIN = "EMCMC's gain in log-likelihood"

ByMethod = dict[str, dict[str, Any]]


def job_name(table: str, method: str) -> str:
    """Name of the job of a data set and method."""
    return f"regression/{table}-{method}"


def show(results: Results, scale: str) -> Outcome:
    """One row for each score and table; tables that have EMCMC's result are shown."""
    found = by_table(results)
    if not found:
        return Outcome([], [], [])
    rows = [
        [table, label, *(_cell(by.get(m), score) for m in METHODS), *_published(table, score)]
        for score, label in (("log_likelihood", "log-likelihood"), ("rmse", "RMSE"))
        for table, by in found.items()
    ]
    rows += [
        [table, "95 % coverage", *(_cell(by.get(m), "coverage") for m in METHODS), *_dashes()]
        for table, by in found.items()
    ]
    gains = gains_of(found)
    rows += [[table, GAIN, *_gained(table, gains), *_dashes()] for table in found]
    made = [_against_published(found), _covered(found), _unclipped(), *against_rivals(gains)]
    return Outcome(
        ["table", "score", *METHODS.values(), *(p.label for p in PUBLISHED)],
        rows,
        made,
        {"regression": lambda path: draw(path, found)},
        _notes(found),
    )


def by_table(results: Results) -> dict[str, ByMethod]:
    """Results by table and method."""
    found: dict[str, ByMethod] = {}
    for name, result in results.items():
        table, _, method = name.removeprefix("regression/").rpartition("-")
        found.setdefault(table, {})[method] = result
    return {table: by for table, by in found.items() if OURS in by}


def _cell(result: Mapping[str, Any] | None, score: str) -> str:
    if result is None:
        return "–"
    values = result[score]
    if score == "coverage":
        return number(values, 1, 100) + " %"
    return number(values, 2 if abs(float(np.mean(values))) >= 0.1 else 5)


def _published(table: str, score: str) -> list[str]:
    if score != "log_likelihood":
        return _dashes()
    return [f"{-p.nll[table]:.2f}" if table in p.nll else "–" for p in PUBLISHED]


def _dashes() -> list[str]:
    return ["–"] * len(PUBLISHED)


def _against_published(found: Mapping[str, ByMethod]) -> Verdict:
    """EMCMC's mean log-likelihood against the published deep ensembles': no pairs, so no test."""
    gains = {
        table: float(np.mean(by[OURS]["log_likelihood"])) + ENSEMBLES.nll[table]
        for table, by in found.items()
        if table in ENSEMBLES.nll
    }
    wins = sum(gain > 0 for gain in gains.values())
    worse = {t: g for t, g in gains.items() if g <= 0}
    listed = ", ".join(f"{t} {g:+.2f}" for t, g in gains.items())
    met = wins >= WANTED_WINS and all(g >= -MOST_BEHIND for g in worse.values())
    lost = len(ENSEMBLES.nll) - WANTED_WINS < len(worse) or any(
        g < -MOST_BEHIND for g in worse.values()
    )
    claim = (
        f"log-likelihood above the published deep ensembles' on at least {WANTED_WINS} of "
        f"{len(ENSEMBLES.nll)} tables, within {MOST_BEHIND} on the rest"
    )
    measured = f"above on {wins} of {len(gains)} tables that were run: {listed}"
    decision = HOLDS if met else FAILS if lost else UNDECIDED
    return Verdict(claim, measured, decision, source="target", limit=NOISE_LIMIT)


def _covered(found: Mapping[str, ByMethod]) -> Verdict:
    mean = float(np.mean([np.mean(by[OURS]["coverage"]) for by in found.values()]))
    low, high = COVERAGE
    claim = f"EMCMC's 95 % intervals hold {low:.0%} to {high:.0%} of test rows, on average"
    measured = f"{mean:.1%}, mean of {len(found)} tables"
    decision = HOLDS if low <= mean <= high else FAILS
    return Verdict(claim, measured, decision, source="target")


def _unclipped() -> Verdict:
    measured = "by construction: nothing in `regression_chains.py` clips"
    return Verdict("no noisy step has a clipped gradient", measured, HOLDS, source="target")


@dataclass(frozen=True)
class Gain:
    """EMCMC's gain over another method on a table; p is Holm's over all tables and rivals."""

    table: str
    rival: str
    difference: stats.Difference
    p: float | None

    @property
    def decided(self) -> bool:
        """Whether one of the two is better; the reference has no p."""
        return self.p is not None and self.p < stats.LEVEL


def gains_of(found: Mapping[str, ByMethod]) -> list[Gain]:
    """Every table and method that has results, one family; the reference is beside it."""
    others = [(t, m) for m in METHODS if m != OURS for t, by in found.items() if m in by]
    made = [Gain(t, m, corrected(found[t][OURS], found[t][m]), None) for t, m in others]
    family = [gain for gain in made if gain.rival != REFERENCE]
    adjusted = stats.holm([gain.difference.p for gain in family])
    known = {id(gain): float(p) for gain, p in zip(family, adjusted, strict=True)}
    return [replace(gain, p=known.get(id(gain))) for gain in made]


def _gained(table: str, gains: Sequence[Gain]) -> list[str]:
    """A cell for every method: the gain with its 95 % interval, bold if decided."""
    by = {gain.rival: gain for gain in gains if gain.table == table}
    return [_interval(by[m]) if m in by else "–" for m in METHODS]


def _interval(gain: Gain) -> str:
    d = gain.difference
    digits = 2 if max(abs(d.low), abs(d.high)) >= 0.1 else 3
    text = f"{d.mean:+.{digits}f} ({d.low:+.{digits}f} to {d.high:+.{digits}f})"
    return f"**{text}**" if gain.decided else text


def against_rivals(gains: Sequence[Gain]) -> list[Verdict]:
    """A verdict for each rival, by Wilcoxon's signed ranks over the tables; Holm over rivals."""
    by: dict[str, list[Gain]] = {}
    for gain in gains:
        by.setdefault(gain.rival, []).append(gain)
    rivals = [rival for rival in by if rival != REFERENCE]
    adjusted = stats.holm([signed_ranks(by[rival]) for rival in rivals])
    made = [_against(r, by[r], float(p)) for r, p in zip(rivals, adjusted, strict=True)]
    return [*made, *([_against(REFERENCE, by[REFERENCE], None)] if REFERENCE in by else [])]


def signed_ranks(gains: Sequence[Gain]) -> float:
    """The p value of the mean gains of the tables, exact; 1 with fewer than two."""
    means = [gain.difference.mean for gain in gains]
    if len(means) < 2 or not any(means):
        return 1.0
    return float(distributions.wilcoxon(means, method="exact").pvalue)


def _against(rival: str, gains: Sequence[Gain], p: float | None) -> Verdict:
    higher = [gain.table for gain in gains if gain.difference.mean > 0]
    wins = [gain.table for gain in gains if gain.decided and gain.difference.mean > 0]
    losses = [gain.table for gain in gains if gain.decided and gain.difference.mean < 0]
    measured = f"higher on {len(higher)} of {len(gains)} tables"
    overall, limit = UNDECIDED, LIMITS.get(rival, "")
    if p is None:
        limit = "it has many times the gradients: a reference, not a rival"
    else:
        measured += f" (decided higher on {_listed(wins)}, lower on {_listed(losses)})"
        measured += f", Wilcoxon over tables, Holm p {p:.2g}"
        if p < stats.LEVEL:
            overall = HOLDS if 2 * len(higher) > len(gains) else FAILS
    claim = f"EMCMC has a better log-likelihood than {METHODS[rival]}"
    parties = [] if p is None else [OURS, rival]
    return Verdict(claim, measured, overall, source="ours", limit=limit, parties=parties)


def corrected(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> stats.Difference:
    """Mean gain in log-likelihood, paired by split, corrected for shared rows.

    The training rows of two splits overlap, so their scores are correlated, by about the test
    rows' share: Nadeau and Bengio (2003) add test / training rows to 1 / splits.
    """
    found = stats.paired(ours["log_likelihood"], theirs["log_likelihood"])
    count = len(ours["log_likelihood"])
    if found.low == found.high:
        return found
    wider = math.sqrt(1 + count * ours["test_rows"] / ours["rows"])
    half = wider * (found.high - found.mean)
    t = float(distributions.t.ppf(1 - stats.LEVEL / 2, count - 1)) * abs(found.mean) / half
    return stats.Difference(
        found.mean,
        found.mean - half,
        found.mean + half,
        2 * float(distributions.t.sf(t, count - 1)),
        found.mean + wider * (found.upper - found.mean),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _notes(found: Mapping[str, ByMethod]) -> list[str]:
    splits = ", ".join(f"{t} {len(by[OURS]['rmse'])}" for t, by in found.items())
    spent = "; ".join(f"{t} {by[OURS]['gradients']:,}" for t, by in found.items())
    edges = _edges(found)
    chance = 2 / max(2, len(next(iter(found.values()))[OURS]["trials"]))
    sources = dict.fromkeys(f"{p.label}: {p.source}" for p in PUBLISHED)
    return [
        f"± standard error over the standard splits ({splits}), which share rows: the verdicts "
        "and intervals correct for it (Nadeau and Bengio, 2003). Bold: decided, Holm over all "
        "tables and rivals. Settings of every method are "
        "chosen for each split on a fifth of its own training rows. EMCMC's are second results "
        "(yacht's the third): how noise is modelled was changed twice after test rows had been "
        "seen, and chosen each time on training rows, for all methods alike "
        "([protocol](protocol.md#regression-regime-c)); the other methods were run once. "
        f"Gradients on batches of 100 rows, for each split: {spent}.",
        f"Picks with the smallest or the largest of the values tried (by chance {chance:.0%}): "
        f"{edges}. Ranges were not widened.",
        *_reference_notes(found),
        f"Published numbers, of other runs: {'; '.join(sources)}.",
    ]


def _reference_notes(found: Mapping[str, ByMethod]) -> list[str]:
    shown = {table: by["hmc"] for table, by in found.items() if "hmc" in by}
    if not shown:
        return []
    parts = [
        f"{table} {result['gradients']:,} full-batch gradients for a split, "
        f"{result['accepted']:.0%} of the proposals accepted, "
        f"R-hat of the prediction that is worst {result['r_hat']:.2f}"
        for table, result in shown.items()
    ]
    apart = any(result["r_hat"] > APART for result in shown.values())
    caveat = " So its four chains do not agree on every row: near the posterior, not exactly it."
    return [
        f"HMC has EMCMC's prior and draws the noise variance too: {'; '.join(parts)}."
        + caveat * apart
    ]


def _edges(found: Mapping[str, ByMethod]) -> str:
    """Share of splits whose pick has the smallest or the largest value tried, by method."""
    parts = []
    for method in METHODS:
        searches = [by[method] for by in found.values() if "trials" in by.get(method, {})]
        names = [n for n in (searches[0]["trials"][0] if searches else ()) if n != "length"]
        shares = [f"{name} {np.mean(_at_ends(searches, name)):.0%}" for name in names]
        parts += [f"{METHODS[method]} {', '.join(shares)}"] if shares else []
    return "; ".join(parts)


def _at_ends(searches: Sequence[Mapping[str, Any]], name: str) -> list[bool]:
    return [
        search["trials"][pick][name] in _ends([trial[name] for trial in search["trials"]])
        for search in searches
        for pick in search["chosen"]
    ]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def draw(path: Path, found: Mapping[str, ByMethod]) -> None:
    """Log-likelihood minus that of the published deep ensembles, and the coverage, by table."""
    figure, axes = panels(2, 2, 4.6, 0.45 * len(found) + 1.8)
    places = np.arange(len(found))
    methods = [m for m in METHODS if any(m in by for by in found.values())]
    for index, method in enumerate(methods):
        shift = places + 0.15 * (index - (len(methods) - 1) / 2)
        for axis, score in zip(axes, ("log_likelihood", "coverage"), strict=True):
            ends = [_shown(table, by.get(method), score) for table, by in found.items()]
            means, errors = (np.array(side, dtype=float) for side in zip(*ends, strict=True))
            style = {"fmt": "o", "ms": 4, "color": PALETTE[method], "label": METHODS[method]}
            axis.errorbar(means, shift, xerr=errors, **style)
    titles = ("log-likelihood − published deep ensembles'", "95 % coverage, %")
    for axis, title, line in zip(axes, titles, (0.0, 95.0), strict=True):
        axis.axvline(line, color="grey", lw=0.8, ls="--")
        axis.set_xlabel(title, fontsize=9)
        axis.set_yticks(places, list(found) if axis is axes[0] else [""] * len(found))
        axis.set_ylim(len(found) - 0.5, -0.5)
    _symlog(axes[0])
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False)
    save(figure, path)


def _symlog(axis: Any) -> None:
    """Linear up to ±0.1, then logarithmic; a tick wherever a reader looks for a number."""
    axis.set_xscale("symlog", linthresh=0.1)
    low, high = axis.get_xlim()
    sizes = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
    ticks = [t for t in (*(-s for s in reversed(sizes)), 0, *sizes) if low <= t <= high]
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])


def _shown(table: str, result: Mapping[str, Any] | None, score: str) -> tuple[float, float]:
    if result is None:
        return math.nan, math.nan
    if score == "coverage":
        values = [100 * value for value in result[score]]
    else:
        values = [value + ENSEMBLES.nll.get(table, 0.0) for value in result[score]]
    mean, error = mean_error(values)
    return mean, error or 0.0
