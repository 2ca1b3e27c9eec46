"""ESS and bias of draws (chain, draw, number), as the tables state them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

GROUPS = 10
TOLERATED = 0.05
ENOUGH = 25  # effective samples below which nothing is said
AFTER_BURN_IN = 0.8  # of a run: its draws are kept, and its gradients count
KEPT = 1000  # draws of a chain of many numbers, about: analysing them costs as much as gradients
MANY = 100  # numbers; chains of fewer keep every draw
UNSURE = 0.04  # standard error of a pilot's bias above which nothing can be said of it
SURE = 0.025  # that of a run whose numbers are shown, at most: half of what is tolerated


@dataclass(frozen=True)
class Place:
    """Where a sampler runs: what is known of the target, chain length, starts and seed.

    Attributes:
        stiffest: Largest eigenvalue of the Hessian of the energy at a draw.
        condition: That over the smallest.
        steps: Gradients of each chain; the first fifth is burn-in.
        starts: Draws of the target, (chain, number): nobody's way to the posterior is counted.
        seed: Of the noise and the batches.
        full: Steps of a run of full length, if this one is a pilot: so many of its quarters.
        transitions: Of a NUTS chain, at least; their gradients are not known before.
    """

    stiffest: float
    condition: float
    steps: int
    starts: Any
    seed: int = 1
    full: int | None = None
    transitions: int = 200

    @property
    def thin(self) -> int:
        """Steps between two draws that are kept; with many numbers 1,000 draws of a full run."""
        return self.thinned(self.full or self.steps)

    def thinned(self, calls: int) -> int:
        """Calls of a sampler between two draws that are kept, of a full run of so many."""
        return max(1, calls // KEPT) if self.starts.shape[1] > MANY else 1

    @property
    def friction(self) -> float:
        """Half of what is critical for the softest direction."""
        return float((self.stiffest / self.condition) ** 0.5)


@dataclass(frozen=True)
class Run:
    """Draws after burn-in, all gradients of one chain, and CPU-seconds of all chains."""

    draws: Any
    gradients: int
    seconds: float


@dataclass(frozen=True)
class Measured:
    """ESS of the worst number, over all chains, and the bias of variances with its error.

    `group_ess` is that of the worst of ten groups, each the harmonic mean of its numbers: the worst
    of 784 estimates is also the most unlucky one.
    """

    ess: float
    group_ess: float
    per_gradient: float
    bias: float
    bias_error: float
    seconds: float

    @property
    def biased(self) -> bool:
        """Whether the bias is above 5 % by more than two standard errors, or the run diverged."""
        if not isfinite(self.bias_error):  # too few draws for an error
            return not self.bias < 1
        return not self.bias - 2 * self.bias_error <= TOLERATED

    @property
    def plausible(self) -> bool:
        """Whether a pilot allows its step size: not shown to be biased, by a usable error."""
        return self.ess >= ENOUGH and self.bias_error <= UNSURE and not self.biased

    @property
    def sure(self) -> bool:
        """Whether the run was long enough for its bias to be shown."""
        return self.ess >= ENOUGH and self.bias_error <= SURE

    @property
    def accurate(self) -> bool:
        """Whether the estimated bias is 5 % or less, with an error of half of that at most."""
        return self.sure and self.bias <= TOLERATED

    @property
    def too_short(self) -> bool:
        """Whether only a longer run could tell."""
        return not self.sure and not self.biased


def measured(run: Run, variances: Any, order: Any = None) -> Measured:
    """Of a run, against variances of the target.

    The ESS of a number is the lower of those of its mean and of its square. The bias is the
    largest, over ten groups of numbers of similar variance, of the mean relative error of a group's
    variances: that of a single one of 784 would be chance. `order` sorts the numbers; where
    variances are themselves estimates, sorting by them would pick their errors.
    """
    draws = np.asarray(run.draws, dtype=np.float64)
    variances = np.asarray(variances)
    order = np.argsort(variances) if order is None else np.asarray(order)
    flat = draws.reshape(-1, draws.shape[-1])
    with np.errstate(all="ignore"):
        squares = all_ess((draws - flat.mean(0)) ** 2)
        each = np.minimum(all_ess(draws), squares)
    bias, error = group_bias(flat.var(0) / variances - 1, squares, order)
    ess, grouped = float(each.min()), min(1 / (1 / each[g]).mean() for g in groups_of(order))
    counted = draws.shape[0] * run.gradients * AFTER_BURN_IN
    return Measured(ess, float(grouped), ess / counted, bias, error, run.seconds)


def all_ess(draws: Any) -> Any:
    from arviz_stats.base import array_stats

    most = draws.shape[0] * draws.shape[1]
    return np.minimum(array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean"), most)


def groups_of(order: Any) -> list[Any]:
    """Ten groups of numbers of similar variance, or one for each if there are fewer."""
    return list(np.array_split(np.asarray(order), min(GROUPS, len(order))))


def largest_of_groups(relative: Any, order: Any) -> float:
    """Largest mean relative error of a group."""
    return max(abs(float(relative[g].mean())) for g in groups_of(order))


def group_bias(relative: Any, ess: Any, order: Any) -> tuple[float, float]:
    """Mean relative error of variance of the group where it is largest, and its standard error.

    `ess` is that of the squares: a variance from so many independent ones errs by √(2/ess).
    """
    groups = groups_of(order)
    means = np.array([abs(relative[g].mean()) for g in groups])
    errors = np.array([np.sqrt((2 / ess[g]).sum()) / len(g) for g in groups])
    worst = int(np.argmax(means - 2 * errors))
    return float(means[worst]), float(errors[worst])
