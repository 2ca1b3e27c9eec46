"""Claims and their verdicts by docs/protocol.md: paired by seed, Holm within a family, margins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from entropy_mcmc_reproduction.items import Verdict
from entropy_mcmc_reproduction.seeds import Results, paired
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS, NOT_RUN, UNDECIDED
from tournament import stats

# Logarithms of curvatures, and of the local learning coefficient; alike within 10 %.
FLATNESS = {"lambda_max": "λ_max", "trace": "trace", "fisher": "Fisher trace", "llc": "LLC"}
FLATNESS["rise"] = "rise of the training NLL"
NAMES = {
    **{"nll": "NLL", "ece": "ECE", "auroc": "AUROC", "accuracy": "accuracy"},
    "train_nll": "mean training NLL of the run",
    **{measure: f"log {name}" for measure, name in FLATNESS.items()},
}
MARGINS = {
    **stats.MARGINS,
    **{"accuracy": 0.005, "train_nll": 0.01},
    **dict.fromkeys(FLATNESS, 0.1),
}
RELATIVE = {"nll": 0.025, "train_nll": 0.025}  # of the rival's mean, where that is less
HIGHER_IS_BETTER = ("accuracy", "auroc")


@dataclass(frozen=True)
class Claim:
    """`ours` is better than `theirs` in a measure, or alike.

    Attributes:
        text: The claim in words.
        ours, theirs: Labels of the results.
        measure: One of `NAMES`.
        paper: What the paper has for it, in words; empty if nothing.
        source: "paper", or "ours" where the claim goes beyond it.
        alike: Whether the claim is that they are alike.
        limit: What limits its verdict.
        family: Claims of one measure and family share Holm's correction.
        margin: Within which two are alike; None takes that of the measure, see `margin_of`.
        short: What it is about beside the item's other claims, in a word or two.
    """

    text: str
    ours: str
    theirs: str
    measure: str = "nll"
    paper: str = ""
    source: str = "paper"
    alike: bool = False
    limit: str = ""
    family: str = ""
    margin: float | None = None
    short: str = ""


def margin_of(claim: Claim, theirs: Sequence[float]) -> float:
    """The margin that counts: the claim's own, or the measure's, of NLL at most 2.5 % of it.

    >>> margin_of(Claim("", "a", "b"), [0.07, 0.09]), margin_of(Claim("", "a", "b"), [1.2, 1.2])
    (0.002, 0.01)
    """
    if claim.margin is not None:
        return claim.margin
    part = RELATIVE.get(claim.measure, math.inf) * sum(theirs) / len(theirs)
    return min(MARGINS[claim.measure], part)


@dataclass(frozen=True)
class _Measured:
    claim: Claim
    gain: stats.Difference  # positive is in favour of the claim
    margin: float
    seeds: int
    alone: int


def verdicts(claims: Sequence[Claim], results: Results) -> list[Verdict]:
    """All claims of an item, NLL first; Holm's correction over those of a measure and family."""
    made: list[Verdict] = []
    for measure in NAMES:
        asked = [claim for claim in claims if claim.measure == measure]
        measured = [m for claim in asked if (m := _measured(claim, results))]
        adjusted = _adjusted(measured)
        decided = [_verdict(m, p) for m, p in zip(measured, adjusted, strict=True)]
        known = {m.claim: verdict for m, verdict in zip(measured, decided, strict=True)}
        made += [known[claim] if claim in known else _open(claim) for claim in asked]
    return made


def _open(claim: Claim) -> Verdict:
    """A claim that too few seeds have been run for."""
    return Verdict(
        claim.text,
        "fewer than two seeds that both have",
        NOT_RUN,
        claim.measure,
        paper=claim.paper,
        source=claim.source,
        limit=claim.limit,
        parties=[claim.ours, claim.theirs],
        short=claim.short or claim.text,
    )


def _adjusted(measured: Sequence[_Measured]) -> list[float]:
    """P values after Holm's correction within each family."""
    adjusted = [0.0] * len(measured)
    for family in {m.claim.family for m in measured}:
        places = [i for i, m in enumerate(measured) if m.claim.family == family]
        for i, p in zip(places, stats.holm([measured[i].gain.p for i in places]), strict=True):
            adjusted[i] = float(p)
    return adjusted


def _measured(claim: Claim, results: Results) -> _Measured | None:
    path = ("measures", claim.measure)
    ours, theirs, alone = paired(results, claim.ours, claim.theirs, *path)
    if len(ours) < 2:
        return None
    higher = claim.measure in HIGHER_IS_BETTER
    gain = stats.paired(ours, theirs) if higher else stats.paired(theirs, ours)
    return _Measured(claim, gain, margin_of(claim, theirs), len(ours), alone)


def decision(gain: stats.Difference, adjusted_p: float, margin: float) -> str:
    """Whether ours is better, by the protocol; the 90 % interval decides whether two are alike.

    >>> decision(stats.paired([3.0, 3.1, 3.2], [1.0, 1.0, 1.0]), 0.01, 0.1)
    'holds'
    """
    if adjusted_p < stats.LEVEL:
        return HOLDS if gain.mean > 0 else FAILS
    return ALIKE if _within(gain, margin) else UNDECIDED


def equivalence(gain: stats.Difference, margin: float) -> str:
    """Whether two are alike: the 90 % interval within the margin, or the 95 % interval outside.

    >>> equivalence(stats.paired([1.00, 1.01, 1.02], [1.0, 1.0, 1.0]), 0.1)
    'holds'
    """
    if _within(gain, margin):
        return HOLDS
    return FAILS if gain.low > margin or gain.high < -margin else UNDECIDED


def _within(gain: stats.Difference, margin: float) -> bool:
    lower = 2 * gain.mean - gain.upper
    return -margin < lower and gain.upper < margin


def _verdict(found: _Measured, adjusted_p: float) -> Verdict:
    gain, claim, margin = found.gain, found.claim, found.margin
    decided = equivalence(gain, margin) if claim.alike else decision(gain, adjusted_p, margin)
    way = "better" if gain.mean >= 0 else "worse"
    left_out = f", {found.alone} without a partner" if found.alone else ""
    chance = "" if claim.alike else f"Holm p {adjusted_p:.2g}, "
    return Verdict(
        claim.text,
        f"{NAMES[claim.measure]} {way} by {abs(gain.mean):.4f} (95 % {gain.low:+.4f} to "
        f"{gain.high:+.4f}, {chance}margin {margin:.2g}, {found.seeds} seeds{left_out})",
        decided,
        claim.measure,
        [gain.mean, gain.low, gain.high],
        claim.paper,
        claim.source,
        claim.limit,
        margin,
        [claim.ours, claim.theirs],
        claim.short or claim.text,
    )
