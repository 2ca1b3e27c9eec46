"""Choice of the classifier's network, prior variance and temperature by held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from entropy_mcmc.sklearn.chain_plan import Network, Plan
from entropy_mcmc.sklearn.estimator_chains import Draws, Table
from entropy_mcmc.sklearn.likelihood import Categorical
from entropy_mcmc.sklearn.networks import forward
from entropy_mcmc.sklearn.selection import LEAST_ROWS, Candidate, Scores, held_out_losses

LINEAR_PRIORS = (0.01, 0.1, 1.0, 10.0, 100.0)
PRIORS = (0.3, 3.0, 30.0, 300.0)
BESIDE = math.sqrt(10.0)  # factor between a prior variance and those beside it
TEMPERATURE = 0.1  # of all candidates until the last, which try others
OTHER_TEMPERATURES = (0.02, 0.5)
FALLBACK = 3.0  # prior variance for data too small to hold rows out
SLACK = 0.2  # standard errors of the mean loss that a simpler candidate may be worse


@dataclass(frozen=True)
class Open:
    """What the caller left open: networks, and prior variance and temperature or None."""

    networks: Sequence[Network]
    prior_variance: float | None
    temperature: float | None

    def rounds(self, scores: Scores) -> Iterator[list[Candidate]]:
        """What to try next: `scores` gets the losses of each round before the next is asked."""
        hidden = [network for network in self.networks if network[0]]
        for network in [n for n in self.networks if not n[0]]:
            yield self._with_priors(network, LINEAR_PRIORS)
        for network in hidden[:1]:
            yield self._with_priors(network, PRIORS)
            yield self._beside(network, scores, (1 / BESIDE, BESIDE))
        for network in hidden[1:]:
            yield self._beside(network, scores, (1 / BESIDE, 1.0))
        yield self._with_temperatures(scores.best())

    def only(self, prior_variance: float, temperature: float) -> Candidate:
        """The candidate of no search, with these numbers where nothing else was asked for."""
        v = prior_variance if self.prior_variance is None else self.prior_variance
        T = temperature if self.temperature is None else self.temperature
        return Candidate(self.networks[0], v, T)

    def _with_priors(self, network: Network, grid: Sequence[float]) -> list[Candidate]:
        T = TEMPERATURE if self.temperature is None else self.temperature
        priors = grid if self.prior_variance is None else (self.prior_variance,)
        return [Candidate(network, prior, T) for prior in priors]

    def _beside(
        self, network: Network, scores: Scores, factors: Sequence[float]
    ) -> list[Candidate]:
        """Prior variances around the best that a network with hidden layers had so far."""
        known = {c: loss for c, loss in scores.losses.items() if c.network[0]}
        v = Scores(known).best().prior_variance
        candidates = self._with_priors(network, [v * factor for factor in factors])
        return [c for c in candidates if c not in scores.losses]

    def _with_temperatures(self, best: Candidate) -> list[Candidate]:
        if self.temperature is not None:
            return []
        others = [replace(best, temperature=other) for other in OTHER_TEMPERATURES]
        if self.prior_variance is None:  # a colder chain often likes a broader prior
            others.append(replace(others[0], prior_variance=BESIDE * best.prior_variance))
        return others


Losses = Callable[[Sequence[Candidate]], dict[Candidate, Tensor]]


def choose(open_: Open, rows: int, losses: Losses) -> tuple[Candidate, Scores]:
    """The simplest candidate that predicts held-out rows about as well as the best."""
    scores = Scores({})
    settled = None not in (open_.prior_variance, open_.temperature)
    if rows < LEAST_ROWS or (settled and len(open_.networks) == 1):
        return open_.only(FALLBACK, 1.0), scores
    for candidates in open_.rounds(scores):
        scores.losses |= losses(candidates) if candidates else {}
    return scores.cautious(simplicity, SLACK), scores


def simplicity(candidate: Candidate) -> float:
    """Small for linear networks, then for narrow priors."""
    return (1e6 if candidate.network[0] else 0.0) + candidate.prior_variance


def held_out_nll(
    draws: Draws, plan: Plan, table: Table, likelihood: Categorical, rows: Tensor
) -> Tensor:
    """NLL of each chain's average prediction on its own `rows`, (chains, rows)."""
    x, y, _ = table.take(rows)
    labels = y.argmax(dim=2, keepdim=True).mT
    form, logs = plan.architecture, []
    for flat in draws.flat:
        outputs = forward(form, form.layers(flat), x)[0] + likelihood.offset
        logs.append(outputs.log_softmax(dim=1).gather(1, labels).squeeze(1))
    return math.log(len(logs)) - torch.stack(logs).logsumexp(dim=0)


def losses_of(plan: Plan, table: Table, likelihood: Categorical) -> Losses:
    """Losses of candidates on the folds of a table."""

    def judge(draws: Draws, pilot: Plan, rows: Tensor) -> Tensor:
        return held_out_nll(draws, pilot, table, likelihood, rows)

    return lambda candidates: held_out_losses(plan, table, likelihood, candidates, judge)
