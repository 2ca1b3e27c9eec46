"""ESS and bias of draws (chain, draw, number), as the tables state them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

GROUPS = 10
TOLERATED = 0.05
ENOUGH = 25  # effective samples below which nothing is said
UNSURE = 0.04  # standard error of a bias above which nothing can be said of it


@dataclass(frozen=True)
class Place:
    """Where a sampler runs: what is known of the target, chain length, starts and seed.

    Attributes:
        stiffest: Largest eigenvalue of the Hessian of the energy at a draw.
        condition: That over the smallest.
        steps: Gradients of each chain; the first fifth is burn-in.
        starts: Draws of the target, (chain, number): nobody's way to the posterior is counted.
        seed: Of the noise and the batches.
    """

    stiffest: float
    condition: float
    steps: int
    starts: Any
    seed: int = 1

    @property
    def thin(self) -> int:
        """Steps between two draws that are kept, for about 2,000 of them."""
        return max(1, self.steps // 2000)

    @property
    def friction(self) -> float:
        """Half of what is critical for the softest direction."""
        return float((self.stiffest / self.condition) ** 0.5)


@dataclass(frozen=True)
class Run:
    """Draws after burn-in, the gradients of one chain that made them, and CPU-seconds of all."""

    draws: Any
    gradients: int
    seconds: float


@dataclass(frozen=True)
class Measured:
    """ESS of the worst number, over all chains, and the bias of variances with its error."""

    ess: float
    per_gradient: float
    per_second: float
    bias: float
    bias_error: float
    seconds: float

    @property
    def judged(self) -> bool:
        """Whether the run was long enough to say something about its bias."""
        return self.ess >= ENOUGH and self.bias_error <= UNSURE

    @property
    def accurate(self) -> bool:
        """Whether the bias is 5 % or less, within two standard errors that are small enough."""
        return self.judged and self.bias - 2 * self.bias_error <= TOLERATED


def measured(run: Run, variances: Any, order: Any = None) -> Measured:
    """Of a run, against variances of the target.

    The bias is the largest, over ten groups of numbers of similar variance, of the mean relative
    error of a group's variances: that of a single one of 784 would be chance. `order` sorts the
    numbers; where variances are themselves estimates, sorting by them would pick their errors.
    """
    draws = np.asarray(run.draws, dtype=np.float64)
    ess = worst_ess(draws)
    chains = draws.shape[0]
    bias, error = group_bias(draws, np.asarray(variances), order)
    return Measured(
        ess, ess / (chains * run.gradients), ess / run.seconds, bias, error, run.seconds
    )


def worst_ess(draws: Any) -> float:
    return float(np.min(all_ess(draws)))


def all_ess(draws: Any) -> Any:
    from arviz_stats.base import array_stats

    most = draws.shape[0] * draws.shape[1]
    return np.minimum(array_stats.ess(draws, chain_axis=0, draw_axis=1, method="mean"), most)


def group_bias(draws: Any, variances: Any, order: Any = None) -> tuple[float, float]:
    """Largest mean relative error of variance over groups of numbers, and its standard error."""
    flat = draws.reshape(-1, draws.shape[-1])
    centred = draws - flat.mean(0)
    relative = flat.var(0) / variances - 1
    with np.errstate(all="ignore"):
        ess = all_ess(centred**2)
    order = np.argsort(variances) if order is None else np.asarray(order)
    groups = np.array_split(order, min(GROUPS, len(order)))
    means = np.array([abs(relative[g].mean()) for g in groups])
    errors = np.array([np.sqrt((2 / ess[g]).sum()) / len(g) for g in groups])
    worst = int(np.argmax(means - 2 * errors))
    return float(means[worst]), float(errors[worst])
