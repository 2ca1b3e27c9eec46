r"""Choice of the regressor's prior variance and first noise variance, from held-out rows.

Noise is hard to learn from rows that the networks were fitted to when there are few, so a pilot
run holds out a third of the rows, three times. For each candidate prior and fold, two chains
give outputs :math:`f_1, f_2` on rows that neither has seen. If the chains are posterior draws of
spread :math:`v` around their mean, then :math:`E(y-f_i)^2 = s + 2v` and
:math:`E(f_1-f_2)^2 = 2v`: the difference is the noise variance s, whose heat the chains follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from entropy_mcmc.sklearn.likelihood import squared_errors
from entropy_mcmc.sklearn.mlp import forward
from entropy_mcmc.sklearn.plan import Plan
from entropy_mcmc.sklearn.sampling import run
from entropy_mcmc.sklearn.validation import FOLDS, folds, held_out_outputs, pilot_plan

CANDIDATES = (0.3, 1.0, 3.0)
TWINS = 2  # chains of a candidate on a fold
SAMPLES = 8
LEAST_ROWS = 15
MOST_HELD_OUT = 400  # rows judged in a fold
EVERY = 5  # steps between two looks at the held-out rows
RATE = 0.1  # of the way, in the logarithm, that the heat goes at a look
MOST_CHANGE = 3.0  # of the heat, as a factor, that one look may ask for
LEAST_SHARE = 0.25  # of the held-out error of the mean that counts as noise
GRID = torch.logspace(-6, 0.5, 66)  # noise variances that the last choice is made from


@dataclass(frozen=True)
class Guess:
    """What the pilot run tells: prior variance, noise variance, and rows that it is worth."""

    prior_variance: float
    noise: float
    weight: float


SMALL = Guess(prior_variance=1.0, noise=0.3, weight=50.0)  # no row can be spared
LARGE = Guess(prior_variance=3.0, noise=0.1, weight=0.0)


def guess_noise(plan: Plan, x: Tensor, y: Tensor, candidates: Sequence[float]) -> Guess:
    """The candidate with the highest held-out likelihood, at its best noise variance."""
    train, held_out = folds(len(x), torch.Generator().manual_seed(plan.seed))
    own = [
        rows.repeat_interleave(TWINS, 0).repeat(len(candidates), 1) for rows in (train, held_out)
    ]
    rows, judged = own[0], own[1][:, :MOST_HELD_OUT]
    pilot = pilot_plan(plan, len(rows), SAMPLES)
    priors = torch.tensor(candidates).repeat_interleave(FOLDS * TWINS)
    likelihood = HeldOutNoise(x[judged], y[judged], plan.activation)
    draws = run(pilot, x, y, likelihood, rows=rows, priors=priors, watch=likelihood.watch)
    outputs = held_out_outputs(draws, pilot, x, judged).squeeze(-1)
    errors = grouped(outputs - y[judged]).flatten(0, 1)
    scores = log_likelihoods(errors)
    best = int(scores.amax(dim=0).argmax())
    noise = float(GRID[scores[:, best].argmax()])
    return Guess(candidates[best], noise, SMALL.weight)


def grouped(values: Tensor) -> Tensor:
    """(…, chains, rows) as (…, twins, candidates, folds·rows)."""
    lead, rows = values.shape[:-2], values.shape[-1]
    split = values.reshape(*lead, -1, FOLDS, TWINS, rows)
    return split.movedim(-2, -4).flatten(-2)


def log_likelihoods(errors: Tensor) -> Tensor:
    """Mean log-density of equal mixtures, from errors (networks, candidates, rows): (GRID, …)."""
    scores = []
    for variance in GRID:
        logs = -0.5 * (errors.square() / variance + (2 * math.pi * variance).log())
        scores.append((logs.logsumexp(dim=0) - math.log(len(errors))).mean(dim=-1))
    return torch.stack(scores)


class HeldOutNoise:
    """Half the squared error, at a heat for each candidate that its held-out rows decide."""

    def __init__(self, inputs: Tensor, targets: Tensor, activation: str) -> None:
        self._inputs, self._targets, self._activation = inputs, targets, activation
        self._logs = torch.full((len(inputs) // (FOLDS * TWINS),), math.log(LARGE.noise))
        self.heats = self._spread()

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Half the mean squared error of each chain."""
        return 0.5 * squared_errors(outputs, targets)

    @torch.no_grad()
    def watch(self, step: int, layers: Sequence[Tensor]) -> None:
        """Move the heats toward what the held-out rows say of the noise."""
        if step % EVERY:
            return
        outputs = forward(layers, self._inputs, self._activation).squeeze(-1)
        noise = noise_variances(grouped(outputs - self._targets))
        change = (noise / self._logs.exp()).clamp(1 / MOST_CHANGE, MOST_CHANGE).log()
        self._logs = (self._logs + RATE * change).clamp(float(GRID[0].log()), math.log(2.0))
        self.heats = self._spread()

    def _spread(self) -> Tensor:
        return self._logs.exp().repeat_interleave(FOLDS * TWINS)


def noise_variances(errors: Tensor) -> Tensor:
    """Noise variance of each candidate, from the errors (2, candidates, rows) of its twins.

    Twins that stopped in different basins differ by more than a posterior would: the noise stays
    above a share of the error of their mean.

    >>> noise_variances(torch.tensor([[[3.0, -3.0]], [[2.0, -2.0]]])).tolist()
    [5.5]
    """
    single = errors.square().mean(dim=(0, 2))
    apart = (errors[0] - errors[1]).square().mean(dim=1)
    return torch.maximum(single - apart, LEAST_SHARE * (single - 0.25 * apart))
