"""The course of a trajectory: lr, noise and samples at every step, as pure functions."""

from __future__ import annotations

import math

from entropy_mcmc.schedules import rise
from tournament.settings import Settings


def refresh_rows(passes: float, budget: float, rows: int) -> int:
    """Rows of a batch-norm refresh: all of them for a run of the whole budget, its part for less.

    >>> refresh_rows(12, 48, 6000)
    1500
    """
    return max(1, min(rows, round(rows * passes / budget)))


def steps_of(passes: float, rows: int, batch: int, refreshed: int = 0) -> int:
    """Steps that `passes` pay for, if `refreshed` rows are also passed forward, at a third each.

    >>> steps_of(48, 1150, 64), steps_of(24, 6000, 128, refreshed=6000)
    (862, 1109)
    """
    return max(1, int((passes * rows - refreshed / 3) // batch))


def position(step: int, steps: int, cycles: int) -> tuple[int, int]:
    """Position in the cycle, and the cycle's length; cycle k starts at ⌊kS/K⌋."""
    cycle = ((step + 1) * cycles - 1) // steps
    start, end = cycle * steps // cycles, (cycle + 1) * steps // cycles
    return step - start, end - start


def lr_factor(settings: Settings, step: int, steps: int) -> float:
    """Lr at a step as a part of its peak: up if it is warmed, then down to the floor.

    >>> lr_factor(Settings("digits", 0, "sgd", 1, 0.1, floor=0.2, settle=0.5), 75, 100)
    0.2
    """
    j, n = position(step, steps, settings.cycles)
    along = min(1.0, j / (settings.settle * n))
    risen = rise(step, math.ceil(settings.warm_up * (steps // settings.cycles)))
    return risen * (settings.floor + (1 - settings.floor) * FALLS[settings.decay](along))


# Lr as a part of its peak, by the part of the way; the paper's table of schedules.
FALLS = {
    "cosine": lambda along: (1 + math.cos(math.pi * along)) / 2,
    "constant": lambda along: 1.0,
    "linear": lambda along: 1 - along,
    "exponential": lambda along: 0.01**along,
    "step": lambda along: 0.1 ** min(2, int(3 * along)),
}


def is_noisy(settings: Settings, step: int, steps: int) -> bool:
    """Whether noise is on."""
    j, n = position(step, steps, settings.cycles)
    return j >= math.ceil(settings.noise_from * n)


def is_sample(settings: Settings, step: int, steps: int) -> bool:
    """Whether the state after this step is kept; the last step of a cycle always is."""
    j, n = position(step, steps, settings.cycles)
    first = math.ceil(settings.noise_from * n)
    count = min(settings.samples, n - first)
    return j in {first - 1 + i * (n - first) // count for i in range(1, count + 1)}
