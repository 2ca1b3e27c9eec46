"""Successive halving: how many trials run for how long.

All trials run for a part of the budget, the best ones longer, and the last four at full length,
each time from scratch with the schedule compressed to the length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FINALISTS = 4
REDUCTION = 4  # of the number of trials, and growth of their length, from rung to rung


@dataclass(frozen=True)
class Rung:
    """A rung: how many trials run for how many epochs."""

    trials: int
    epochs: int


def rungs(trials: int, epochs: int, least: int = 1) -> tuple[Rung, ...]:
    """The rungs of a search, the last one at full length, none shorter than `least` epochs.

    >>> rungs(16, 48)
    (Rung(trials=16, epochs=12), Rung(trials=4, epochs=48))
    >>> rungs(3, 48)
    (Rung(trials=3, epochs=48),)
    """
    short = max(0, math.ceil(math.log(trials / FINALISTS, REDUCTION) - 1e-9))
    counts = [_between(trials, place, short) for place in range(short)]
    lengths = [max(least, round(epochs / REDUCTION ** (short - place))) for place in range(short)]
    steps = [Rung(*pair) for pair in zip(counts, lengths, strict=True) if pair[1] < epochs]
    if steps:
        first = Rung(trials, steps[0].epochs)  # where short rungs fell together, all trials are in
        steps = [first, *(step for step in steps[1:] if step.epochs > first.epochs)]
        return (*steps, Rung(min(trials, FINALISTS), epochs))
    return (Rung(trials, epochs),)


def _between(trials: int, place: int, short: int) -> int:
    """Trials of a rung, falling geometrically from all of them to the finalists."""
    part: float = (FINALISTS / trials) ** (place / short)
    return round(trials * part)


def generations(trials: int) -> list[int]:
    """Sizes of the groups in which trials are proposed: half, a quarter, the rest.

    They depend on the number of trials alone: neither on workers nor on what ends first.

    >>> generations(16), generations(3)
    ([8, 4, 4], [2, 1])
    """
    first = (trials + 1) // 2
    second = (trials - first + 1) // 2
    return [size for size in (first, second, trials - first - second) if size]
