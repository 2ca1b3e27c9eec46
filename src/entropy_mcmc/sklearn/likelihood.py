r"""Likelihoods: a mean loss for each chain, and the heat (temperature) of that loss.

A likelihood gives a loss :math:`M` and a heat :math:`s` so that :math:`M/s` is the mean negative
log-likelihood. Sampling :math:`\exp(-N(M/s + \lambda\|\theta\|^2/2))` is the same as sampling with
loss M, temperature s and weight decay sλ, and M keeps its curvature when the noise is learned:
the learning rate need not know how small the noise becomes.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

FORGET = 0.02  # weight of the newest batch in the running mean squared error
LEAST_VARIANCE = 1e-8  # of standardised targets: a constant target has no noise at all


class Likelihood(Protocol):
    """A loss that may learn its own scale while the chains run."""

    heats: Tensor
    """One for each chain, or one for all."""

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss over rows of each chain."""
        ...


class Categorical:
    """Cross entropy of class numbers; a heat other than 1 is a temperature."""

    def __init__(self, heats: Tensor | None = None) -> None:
        self.heats = torch.ones(()) if heats is None else heats

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of each chain."""
        chains, rows, classes = outputs.shape
        labels = targets.expand(chains, rows).reshape(-1)
        each = F.cross_entropy(outputs.reshape(-1, classes), labels, reduction="none")
        return each.view(chains, rows).mean(dim=1)


class Gaussian:
    r"""Half the squared error; the heat is the noise variance, learned from all chains.

    The expected squared error of posterior draws is the EM update of the noise variance s. With
    :math:`\gamma` effective parameters it is :math:`(rss + s\gamma)/N`: when γ nears N, as in a
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

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Half the mean squared error of each chain."""
        errors = squared_errors(outputs, targets)
        self._learn(errors.detach().mean())
        return 0.5 * errors

    def _learn(self, error: Tensor) -> None:
        self._batches += 1
        newest = max(FORGET, 1 / self._batches)
        self._error = (1 - newest) * self._error + newest * error
        variance = (1 - self._share) * self._guess + self._share * self._error
        self.heats = variance.clamp_min(LEAST_VARIANCE)


def squared_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of each chain, from outputs (C, rows, 1)."""
    return (outputs.squeeze(-1) - targets).square().mean(dim=1)
