"""Whether replicas pay: paired differences in NLL, Holm's correction, and a sentence from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tournament import stats

Values = dict[int, dict[str, float]]  # by seed, by measure
FAMILY = {  # of a task: Holm's correction is over these
    "y = 4": ("y = 1 (EMCMC)", "EMCMC ×4", "ensemble of 4", "SAM"),
    "guide, y = 4": ("EMA of SGD", "SAM", "SGD"),
}
BESIDE = {"guide, y = 4": ("guide, y = 1",)}  # shown, not in the family
ENOUGH = 5  # seeds from which a difference is decided
MARGIN = stats.MARGINS["nll"]
TOO_FEW = "too few seeds"
PHRASES = {
    "better": "better than",
    "worse": "worse than",
    "not worse": f"not shown to be better, but at most {MARGIN:g} nats worse, than",
    "open": "undecided against",
    TOO_FEW: f"not judged (fewer than {ENOUGH} seeds) against",
}


@dataclass(frozen=True)
class Comparison:
    """NLL of one row minus that of another, over the seeds that both have.

    `p` is Holm's, None outside the family and with too few seeds; `outcome` is a key of PHRASES.
    """

    ours: str
    theirs: str
    seeds: int
    difference: stats.Difference
    p: float | None = None
    outcome: str = TOO_FEW

    @property
    def decided(self) -> bool:
        """Whether one of the two is better, after Holm's correction."""
        return self.outcome in ("better", "worse")

    @property
    def in_family(self) -> bool:
        """Whether the task's verdict rests on it."""
        return self.theirs in FAMILY.get(self.ours, ())


def comparisons(rows: Mapping[str, Values]) -> list[Comparison]:
    """All that two or more seeds allow: the family, and what is shown beside it."""
    return [*judged(pairs(rows, FAMILY)), *pairs(rows, BESIDE)]


def pairs(rows: Mapping[str, Values], wanted: Mapping[str, Sequence[str]]) -> list[Comparison]:
    """Paired differences, not judged yet."""
    made = []
    for ours, rivals in wanted.items():
        for theirs in rivals:
            shared = sorted(set(rows.get(ours, {})) & set(rows.get(theirs, {})))
            if len(shared) < 2:
                continue
            nll = [[rows[label][seed]["nll"] for seed in shared] for label in (ours, theirs)]
            made.append(Comparison(ours, theirs, len(shared), stats.paired(*nll)))
    return made


def judged(family: Sequence[Comparison]) -> list[Comparison]:
    """The family with Holm's p and the outcome, of those with enough seeds."""
    enough = [c for c in family if c.seeds >= ENOUGH]
    adjusted = iter(stats.holm([c.difference.p for c in enough]))
    return [with_outcome(c, float(next(adjusted))) if c in enough else c for c in family]


def with_outcome(c: Comparison, p: float) -> Comparison:
    """A comparison and what its p says; lower NLL is better."""
    outcome = stats.verdict(c.difference, p, MARGIN, lower_is_better=True)
    return Comparison(c.ours, c.theirs, c.seeds, c.difference, p, outcome)


def verdict(task: str, made: Sequence[Comparison]) -> str:
    """A task's answer in two sentences: the average of y = 4, and its guide as one network."""
    average, guide = (
        [c for c in made if c.ours == ours and c.in_family] for ours in ("y = 4", "guide, y = 4")
    )
    first = f"y = 4 is {listed(average)}" + without("y = 4", average)
    second = f"As one network its guide is {listed(guide)}" + without("guide, y = 4", guide)
    return f"- **{task}: {answer(average)}.** {first}. {second}."


def answer(made: Sequence[Comparison]) -> str:
    """The answer for the average of y = 4, in a few words.

    >>> answer([])
    'not judged'
    """
    outcomes = [c.outcome for c in made if c.outcome != TOO_FEW]
    missing = len(outcomes) < len(FAMILY["y = 4"])
    rest = ", as far as it was run" if missing else ""
    if not outcomes:
        return "not judged"
    if all(outcome == "better" for outcome in outcomes):
        return f"it pays{rest}"
    if "worse" in outcomes:
        return "it does not pay"
    return f"not shown to pay{rest}" if "better" not in outcomes else f"it pays in part{rest}"


def listed(made: Sequence[Comparison]) -> str:
    """Rivals by outcome, each with the difference."""
    parts = []
    for outcome, phrase in PHRASES.items():
        rivals = [f"{c.theirs} ({c.difference.mean:+.4f})" for c in made if c.outcome == outcome]
        if rivals:
            parts.append(f"{phrase} {joined(rivals)}")
    return "; ".join(parts) or "not compared"


def without(ours: str, made: Sequence[Comparison]) -> str:
    """Rivals of the family that share fewer than two seeds."""
    missing = [theirs for theirs in FAMILY[ours] if theirs not in [c.theirs for c in made]]
    return f" (not run: {joined(missing)})" if missing else ""


def joined(names: Sequence[str]) -> str:
    """Names as a phrase.

    >>> joined(["a", "b", "c"]), joined(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def differences(made: Sequence[Comparison]) -> list[str]:
    """Every difference with its 95 % interval; bold if decided."""
    if not made:
        return []
    family = sum(c.p is not None for c in made)
    bold = f"bold: p < 0.05 by Holm over the {family} of the verdict" if family else "none judged"
    lines = [f"Differences in NLL over the seeds that both have, with 95 % intervals ({bold}):", ""]
    for c in made:
        d = c.difference
        text = f"{d.mean:+.4f} ({d.low:+.4f} to {d.high:+.4f})"
        text = f"**{text}**" if c.decided else text
        p = "" if c.p is None else f", p = {c.p:.2g}"
        lines.append(f"- {c.ours} minus {c.theirs}: {text}{p}, {c.seeds} seeds{note(c)}")
    return lines


def note(c: Comparison) -> str:
    """Why a difference has no p."""
    if not c.in_family:
        return ", not in the verdict"
    return ": too few to judge" if c.outcome == TOO_FEW else ""
