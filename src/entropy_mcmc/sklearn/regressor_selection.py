r"""Choice of the regressor's network, prior variance and first noise variance by held-out rows.

Noise is hard to learn from rows that the networks were fitted to when there are few, so a pilot
run holds out a third of the rows, three times. For each candidate and fold, two chains give
outputs :math:`f_1, f_2` on rows that neither has seen. If the chains are posterior draws of spread
:math:`v` around their mean, then :math:`E(y-f_i)^2 = s + 2v` and :math:`E(f_1-f_2)^2 = 2v`: the
difference is the noise variance s, whose heat the chains follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from entropy_mcmc.sklearn.chain_plan import Network, Plan
from entropy_mcmc.sklearn.estimator_chains import Draws, Table, run
from entropy_mcmc.sklearn.likelihood import weighted
from entropy_mcmc.sklearn.networks import Architecture, forward
from entropy_mcmc.sklearn.selection import FOLDS, Candidate, folds

PRIORS = (0.1, 0.3, 1.0, 3.0)
LINEAR_PRIORS = (0.01, 0.1, 1.0, 10.0)
TWINS = 2  # chains of a candidate on a fold
SAMPLES = 8
SHARE = 0.4  # of the steps of the run that follows
LEAST_ROWS = 15
MOST_HELD_OUT = 1000  # rows judged in a fold at the end
WATCHED = 200  # of these that the heats follow
EVERY = 5  # steps between two looks at the held-out rows
RATE = 0.1  # of the way, in the logarithm, that the heat goes at a look
MOST_CHANGE = 3.0  # of the heat, as a factor, that one look may ask for
LEAST_SHARE = 0.25  # of the held-out error of the mean that counts as noise
GRID = torch.logspace(-6, 0.5, 66)  # noise variances that the last choice is made from
FIRST_NOISE = 0.1


@dataclass(frozen=True)
class Pilot:
    """What the held-out rows tell of the candidates of one network.

    `errors` (networks, candidates, rows) are those of all samples on the held-out rows, whose
    numbers are `rows`; `scores` (GRID, candidates) their mean log-densities.
    """

    candidates: Sequence[Candidate]
    errors: Tensor
    rows: Tensor
    scores: Tensor

    @property
    def best(self) -> int:
        """Number of the candidate of the highest held-out likelihood, at its best noise."""
        return int(self.scores.amax(dim=0).argmax())

    @property
    def noise(self) -> float:
        """Noise variance at which it is highest."""
        return float(GRID[self.scores[:, self.best].argmax()])


def pilot(plan: Plan, table: Table, network: Network, priors: Sequence[float]) -> Pilot:
    """Held-out errors of a network with each of these prior variances, from one run of chains."""
    train, held_out = folds(len(table), torch.Generator().manual_seed(plan.seed))
    rows, judged = (
        part.repeat_interleave(TWINS, 0).repeat(len(priors), 1)
        for part in (train, held_out[:, :MOST_HELD_OUT])
    )
    shorter = replace(
        plan.using(network),
        chains=len(rows),
        steps=max(2 * SAMPLES, int(SHARE * plan.steps)),
        samples=SAMPLES,
        burn_in=0.5,
        roles="theta",
    )
    x, y, _ = table.take(judged)
    likelihood = HeldOutNoise(shorter.architecture, x[:, :WATCHED], y[:, :WATCHED])
    draws = run(
        shorter,
        table,
        likelihood,
        rows=rows,
        priors=torch.tensor(priors).repeat_interleave(FOLDS * TWINS),
        watch=likelihood.watch,
    )
    errors = grouped(held_out_errors(draws, shorter.architecture, x, y)).flatten(0, 1)
    candidates = [Candidate(network, prior, plan.temperature) for prior in priors]
    numbers = held_out[:, :MOST_HELD_OUT].flatten()
    return Pilot(candidates, errors, numbers, log_likelihoods(errors))


def held_out_errors(draws: Draws, form: Architecture, x: Tensor, y: Tensor) -> Tensor:
    """Errors of every sample of each chain on the chain's own rows: (samples, C, rows)."""
    outputs = [forward(form, form.layers(flat), x)[0] for flat in draws.flat]
    return (torch.stack(outputs) - y.mT).squeeze(2)


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

    def __init__(self, form: Architecture, inputs: Tensor, targets: Tensor) -> None:
        self._form, self._inputs, self._targets = form, inputs, targets.mT.squeeze(1)
        self._logs = torch.full((len(inputs) // (FOLDS * TWINS),), math.log(FIRST_NOISE))
        self.heats = self._spread()

    def slopes(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Errors over the number of rows."""
        return weighted(outputs - targets.mT, weights)

    def watch(self, step: int, flat: Tensor) -> None:
        """Move the heats toward what the held-out rows say of the noise."""
        if step % EVERY:
            return
        outputs = forward(self._form, self._form.layers(flat), self._inputs)[0].squeeze(1)
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
