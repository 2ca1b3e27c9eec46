r"""Likelihoods: the slope of a mean loss for each chain, and the heat (temperature) of that loss.

A likelihood gives a loss :math:`M` and a heat :math:`s` so that :math:`M/s` is the mean negative
log-likelihood. Sampling :math:`\exp(-N(M/s + \lambda\|\theta\|^2/2))` is the same as sampling with
loss M, temperature s and weight decay sλ, and M keeps its curvature when the noise is learned:
the learning rate need not know how small the noise becomes.

Rows may have weights of mean 1, which multiply their losses; N is then the sum of the weights.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

FORGET = 0.02  # weight of the newest batch in the running mean squared error
LEAST_VARIANCE = 1e-8  # of standardised targets: a constant target has no noise at all


class Likelihood(Protocol):
    """A loss that may learn its own scale while the chains run."""

    heats: Tensor
    """One for each chain, or one for all."""

    def slopes(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Slope of the mean loss of each chain by its outputs (C, out, rows).

        Targets are (C or 1, rows, out), weights (C or 1, rows) or None.
        """
        ...


class Categorical:
    """Cross entropy; targets are rows of a one-hot matrix.

    `offset` is added to the outputs: with the logarithms of the class frequencies, a network
    that is zero predicts these, and the narrower its prior the nearer it stays to them.
    """

    def __init__(self, offset: Tensor) -> None:
        self.heats = torch.ones(())
        self.offset = offset[:, None]

    def slopes(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Probabilities less the one-hot targets, over the number of rows."""
        slope = torch.softmax(outputs + self.offset, dim=1) - targets.mT
        return weighted(slope, weights)


class Gaussian:
    r"""Half the squared error; the heat is the noise variance, learned from all chains.

    The expected squared error of posterior draws is the EM update of the noise variance s. With
    :math:`\gamma` effective parameters it is :math:`(rss + s\gamma)/N`: when γ nears N, as in
    small data, it hardly depends on the targets, and a chain that is a little too hot then raises
    s without end. A prior worth `weight` rows at the variance `guess` gives
    :math:`s = (weight\cdot guess + rss)/(weight + N - \gamma)`: it decides where there are 50 rows,
    and hardly counts where there are 10,000.
    """

    def __init__(self, guess: float, weight: float, rows: int) -> None:
        self.heats = torch.tensor(max(guess, LEAST_VARIANCE))
        self._guess = guess
        self._share = rows / (weight + rows)
        self._error = torch.zeros(())
        self._batches = 0

    def slopes(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Errors over the number of rows; their mean square is learned from."""
        errors = outputs - targets.mT
        squares = errors.square() if weights is None else errors.square() * weights[:, None]
        self._learn(squares.mean())
        return weighted(errors, weights)

    def _learn(self, error: Tensor) -> None:
        self._batches += 1
        newest = max(FORGET, 1 / self._batches)
        self._error = (1 - newest) * self._error + newest * error
        variance = (1 - self._share) * self._guess + self._share * self._error
        self.heats = variance.clamp_min(LEAST_VARIANCE)


def weighted(slope: Tensor, weights: Tensor | None) -> Tensor:
    """Slope of the mean over rows, from the slopes of each row."""
    if weights is not None:
        slope = slope * weights[:, None]
    return slope.div_(slope.shape[2])
