"""Claims and their verdicts by docs/protocol.md: paired by seed, Holm within a family, margins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from entropy_mcmc_reproduction.items import Verdict
from entropy_mcmc_reproduction.seeds import Results, paired
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS, UNDECIDED
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
HIGHER_IS_BETTER = ("accuracy", "auroc")


@dataclass(frozen=True)
class Claim:
    """`ours` is better than `theirs` in a measure.

    Attributes:
        text: The claim in words.
        ours, theirs: Labels of the results.
        measure: One of `NAMES`.
        paper: What the paper has for it, in words; empty if nothing.
    """

    text: str
    ours: str
    theirs: str
    measure: str = "nll"
    paper: str = ""


@dataclass(frozen=True)
class _Measured:
    claim: Claim
    gain: stats.Difference  # positive is in favour of the claim
    seeds: int
    alone: int


def verdicts(claims: Sequence[Claim], results: Results) -> list[Verdict]:
    """All claims of an item, NLL first; Holm's correction over those of one measure."""
    made: list[Verdict] = []
    for measure in NAMES:
        family = [c for c in claims if c.measure == measure]
        measured = [found for c in family if (found := _measured(c, results)) is not None]
        adjusted = stats.holm([m.gain.p for m in measured]).tolist() if measured else []
        made += [_verdict(m, p) for m, p in zip(measured, adjusted, strict=True)]
    return made


def _measured(claim: Claim, results: Results) -> _Measured | None:
    path = ("measures", claim.measure)
    ours, theirs, alone = paired(results, claim.ours, claim.theirs, *path)
    if len(ours) < 2:
        return None
    higher = claim.measure in HIGHER_IS_BETTER
    gain = stats.paired(ours, theirs) if higher else stats.paired(theirs, ours)
    return _Measured(claim, gain, len(ours), alone)


def decision(gain: stats.Difference, adjusted_p: float, margin: float) -> str:
    """By the protocol; the 90 % interval decides whether two are alike.

    >>> decision(stats.paired([3.0, 3.1, 3.2], [1.0, 1.0, 1.0]), 0.01, 0.1)
    'holds'
    """
    if adjusted_p < stats.LEVEL:
        return HOLDS if gain.mean > 0 else FAILS
    lower = 2 * gain.mean - gain.upper
    return ALIKE if -margin < lower and gain.upper < margin else UNDECIDED


def _verdict(found: _Measured, adjusted_p: float) -> Verdict:
    gain, claim = found.gain, found.claim
    decided = decision(gain, adjusted_p, MARGINS[claim.measure])
    way = "better" if gain.mean >= 0 else "worse"
    left_out = f", {found.alone} without a partner" if found.alone else ""
    measured = (
        f"{NAMES[claim.measure]} {way} by {abs(gain.mean):.4f} (95 % {gain.low:+.4f} to "
        f"{gain.high:+.4f}, Holm p {adjusted_p:.2g}, {found.seeds} seeds{left_out})"
    )
    effect = [gain.mean, gain.low, gain.high]
    return Verdict(claim.text, measured, decided, claim.measure, effect, claim.paper)
