"""Choice of network, prior variance and temperature by the rows that a chain has not seen.

A candidate on a fold is a chain of a stacked run, with its own rows, prior and temperature. First
all networks run with a coarse grid of prior variances; then the best of them with the variances
beside its best one, and with the other temperatures. The NLL of held-out rows decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from entropy_mcmc.sklearn.chain_plan import Network, Plan
from entropy_mcmc.sklearn.estimator_chains import Draws, Table, run
from entropy_mcmc.sklearn.likelihood import Likelihood

FOLDS = 3
SAMPLES = 4
LEAST_ROWS = 30
FEW_ROWS = 300  # up to here the rows are divided twice
MOST_HELD_OUT = 2000  # rows judged in a fold: enough to tell candidates apart
FIRST_STEPS = 240


@dataclass(frozen=True)
class Candidate:
    """What held-out rows choose."""

    network: Network
    prior_variance: float
    temperature: float

    def __str__(self) -> str:
        hidden, activation = self.network
        name = f"{activation} {hidden}" if hidden else "linear"
        return f"{name}, prior variance {self.prior_variance:g}, T = {self.temperature:g}"


@dataclass
class Scores:
    """Loss of every row while it was held out, for each candidate that was tried."""

    losses: dict[Candidate, Tensor]

    def best(self) -> Candidate:
        """Lowest mean loss."""
        return min(self.losses, key=lambda c: float(self.losses[c].mean()))

    def cautious(self, order: Callable[[Candidate], float], slack: float) -> Candidate:
        """The first candidate in `order` whose mean is within `slack` standard errors of the best.

        Rows are compared in pairs. Too rich a candidate costs far more than too simple a one, and
        small data often cannot tell them apart.
        """
        lowest = self.losses[self.best()]
        for candidate in sorted(self.losses, key=order):
            excess = self.losses[candidate] - lowest
            error = float(excess.std()) / math.sqrt(len(excess))
            if float(excess.mean()) <= slack * error:
                return candidate
        raise AssertionError("the best candidate is within 0 standard errors of itself")


def pilot_steps(rows: int) -> int:
    """Steps of a pilot chain: more where a pass over the rows takes more of them.

    >>> [pilot_steps(n) for n in (100, 1000, 10_000, 100_000)]
    [247, 315, 990, 990]
    """
    return int(FIRST_STEPS + 0.075 * min(rows, 10_000))


def held_out_losses(
    plan: Plan,
    table: Table,
    likelihood: Likelihood,
    candidates: Sequence[Candidate],
    judge: Callable[[Draws, Plan, Tensor], Tensor],
) -> dict[Candidate, Tensor]:
    """NLL of every row while it was held out; candidates of one network, in one stack of chains.

    `judge(draws, plan, rows)` gives the losses (chains, rows) of each chain on its own rows.
    Equal seeds divide rows equally, so that candidates of different calls can be compared.
    """
    generator = torch.Generator().manual_seed(plan.seed)
    divisions = [folds(len(table), generator) for _ in range(2 if len(table) <= FEW_ROWS else 1)]
    train, held_out = (torch.cat(rows) for rows in zip(*divisions, strict=True))
    count = len(candidates)
    pilot = replace(
        plan.using(candidates[0].network),
        chains=count * len(train),
        steps=max(2 * SAMPLES, min(plan.steps, pilot_steps(len(table)))),
        samples=SAMPLES,
        burn_in=0.5,
        roles="theta",
    )
    draws = run(
        pilot,
        table,
        likelihood,
        rows=train.repeat(count, 1),
        priors=torch.tensor([c.prior_variance for c in candidates]).repeat_interleave(len(train)),
        temperatures=torch.tensor([c.temperature for c in candidates]).repeat_interleave(
            len(train)
        ),
    )
    judged = held_out[:, :MOST_HELD_OUT]
    losses = judge(draws, pilot, judged.repeat(count, 1))
    rows = mean_by_row(losses.view(count, -1), judged.flatten(), len(table))
    return dict(zip(candidates, rows, strict=True))


def folds(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Training rows and held-out rows of each fold, (FOLDS, …); held-out rows never overlap.

    >>> train, held_out = folds(10, torch.Generator().manual_seed(0))
    >>> train.shape, held_out.shape
    (torch.Size([3, 7]), torch.Size([3, 3]))
    """
    order = torch.randperm(rows, generator=generator)
    size = rows // FOLDS
    turned = torch.stack([order.roll(-fold * size) for fold in range(FOLDS)])
    return turned[:, size:], turned[:, :size]


def mean_by_row(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """Columns that belong to the same one of `count` rows, averaged; rows without any left out.

    >>> mean_by_row(torch.tensor([[1.0, 2.0, 5.0]]), torch.tensor([2, 0, 2]), 3)
    tensor([[2., 3.]])
    """
    times = torch.zeros(count).index_add_(0, rows, torch.ones(len(rows)))
    sums = torch.zeros(len(values), count).index_add_(1, rows, values)
    return (sums / times)[:, times > 0]
