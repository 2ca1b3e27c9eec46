r"""Noise of a regression, averaged over what held-out rows leave open.

Errors around the output of a network are Student-t with scale² s and :math:`\nu` degrees of freedom
(:math:`\nu=\infty` is Gaussian). Prior: :math:`\nu` equally likely among a few values, and

.. math:: p(\log s) \propto s^{-k/2} \exp(-k s_0 / 2s),

an inverse gamma worth k rows of variance s₀ (k = 0: flat). The posterior given held-out rows is
kept on a grid, so that it is exact for mixtures of networks too. With one network and Gaussian
errors, predictions are the textbook's Student-t with k + n degrees of freedom. `relative`, where it
is given, is a factor of s for each row (`regression_shape`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from scipy import special
from torch import Tensor

GRID = torch.logspace(-6, 0.5, 131, dtype=torch.float64)  # s, of standardised targets
GAUSSIAN = (math.inf,)
NEGLIGIBLE = 1e-9  # weight below which a point of the grid is left out of probabilities


@dataclass(frozen=True)
class NoisePrior:
    """Prior of the noise.

    Attributes:
        tails: Degrees of freedom of the errors, equally likely; inf is Gaussian.
        rows: k, how many rows the prior of s is worth.
        variance: s₀.
    """

    tails: tuple[float, ...] = GAUSSIAN
    rows: float = 0.0
    variance: float = 1.0

    def points(self) -> Tensor:
        """(points, 2): s and ν of every point of the grid."""
        return torch.tensor(list(product(GRID.tolist(), self.tails)), dtype=torch.float64)

    def log_weights(self) -> Tensor:
        """Log-probability of every point."""
        s = self.points()[:, 0]
        logs = -0.5 * self.rows * (s.log() + self.variance / s)
        return logs - logs.logsumexp(0)


def prior_from(values: Mapping[str, Any]) -> NoisePrior:
    """The prior of the noise as settings name it; tails are text, since JSON has no infinity."""
    tails = tuple(float(tail) for tail in values["tails"])
    return NoisePrior(tails, values["rows"], values["variance"])


def log_error_density(squares: Tensor, s: float, tail: float) -> Tensor:
    """Log-density of errors with these squares.

    >>> round(float(log_error_density(torch.tensor(1.0), 1.0, math.inf)), 4)
    -1.4189
    """
    if math.isinf(tail):
        return -0.5 * (squares / s + math.log(2 * math.pi * s))
    constant = math.lgamma((tail + 1) / 2) - math.lgamma(tail / 2)
    constant -= 0.5 * math.log(math.pi * tail * s)
    return constant - 0.5 * (tail + 1) * torch.log1p(squares / (tail * s))


def _mixture(squares: Tensor, s: float, tail: float) -> Tensor:
    """Log-density of each row under the equal mixture over networks: (runs, rows)."""
    return log_error_density(squares, s, tail).logsumexp(0) - math.log(len(squares))


@dataclass(frozen=True)
class NoisePosterior:
    """What held-out rows say of the noise of each run.

    Attributes:
        points: (points, 2): s and ν.
        log_weights: (runs, points): their log-probabilities.
        evidence: (runs,): log-probability of the held-out targets, per row; −∞ if diverged.
    """

    points: Tensor
    log_weights: Tensor
    evidence: Tensor

    @classmethod
    def given(
        cls, means: Tensor, targets: Tensor, prior: NoisePrior, relative: Tensor | None = None
    ) -> NoisePosterior:
        """From outputs (networks, runs, rows) and targets (runs, rows) of held-out rows."""
        gaps, shift = _relative_gaps(means, targets, relative)
        squares = gaps.square()
        points = prior.points()
        logs = torch.stack([_mixture(squares, *p).sum(1) for p in points.tolist()], dim=1)
        logs = logs.nan_to_num(nan=-math.inf, posinf=-math.inf) + prior.log_weights()
        evidence = logs.logsumexp(1)
        lost = torch.isinf(evidence)
        logs = torch.where(lost[:, None], prior.log_weights(), logs)
        weights = logs - logs.logsumexp(1, keepdim=True)
        return cls(points, weights, evidence / targets.shape[1] - shift)

    @classmethod
    def together(cls, parts: Sequence[NoisePosterior]) -> NoisePosterior:
        """Runs of several, one after the other; all have the same prior."""
        return cls(
            parts[0].points,
            torch.cat([part.log_weights for part in parts]),
            torch.cat([part.evidence for part in parts]),
        )

    def of(self, runs: Sequence[int]) -> NoisePosterior:
        """Some of the runs."""
        rows = list(runs)
        return NoisePosterior(self.points, self.log_weights[rows], self.evidence[rows])

    def typical(self) -> Tensor:
        """Geometric mean of s: (runs,)."""
        return (self.log_weights.exp() @ self.points[:, 0].log()).exp()

    def log_density(self, means: Tensor, targets: Tensor, relative: Tensor | None = None) -> Tensor:
        """Mean over rows of the predictive log-density of each run."""
        # Every point counts: far from all networks the least probable s has the highest density.
        gaps, shift = _relative_gaps(means, targets, relative)
        squares = gaps.square()
        total = torch.full_like(squares[0], -math.inf)
        for (s, tail), weights in zip(self.points.tolist(), self.log_weights.T, strict=True):
            total = torch.logaddexp(total, _mixture(squares, s, tail) + weights[:, None])
        return total.mean(1) - shift

    def level(self, means: Tensor, targets: Tensor, relative: Tensor | None = None) -> Tensor:
        """Predictive probability of a value below the target: (runs, rows)."""
        gaps, _ = _relative_gaps(means, targets, relative)
        total = torch.zeros_like(gaps[0])
        for (s, tail), weights in zip(self.points.tolist(), self.log_weights.exp().T, strict=True):
            if bool((weights > NEGLIGIBLE).any()):
                total += _below(gaps / math.sqrt(s), tail).mean(0) * weights[:, None]
        return total


def _relative_gaps(
    means: Tensor, targets: Tensor, relative: Tensor | None
) -> tuple[Tensor, Tensor | float]:
    """Errors in units of the square root of `relative`, and the mean of half its logarithm."""
    gaps = targets.double() - means.double()
    if relative is None:
        return gaps, 0.0
    return gaps / relative.sqrt(), relative.log().mean(1) / 2


def _below(scores: Tensor, tail: float) -> Tensor:
    if math.isinf(tail):
        below: Tensor = torch.special.ndtr(scores)
        return below
    return torch.from_numpy(special.stdtr(tail, scores.numpy()))
