r"""What the chains see of the targets: a mean loss for each chain, and the heat of that loss.

A likelihood gives a loss :math:`M` and a heat :math:`s` so that :math:`M/s` is the mean negative
log-likelihood. Sampling :math:`\exp(-N(M/s + \lambda\|\theta\|^2/2))` is the same as sampling with
loss M, temperature s and weight decay sλ, and M keeps its curvature when the noise is learned:
the learning rate need not know how small the noise becomes.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from entropy_mcmc.errors import NonFiniteError

FORGET = 0.02  # weight of the newest batch in the running noise variance
LEAST_VARIANCE = 1e-8  # of standardised targets: a constant target has no noise at all


class Likelihood(Protocol):
    """A loss that may learn its own scale while the chains run."""

    heat: float

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Sum over chains of the mean loss over rows; chains share no gradient through it."""
        ...


class Categorical:
    """Cross entropy of class numbers; the heat is 1."""

    heat = 1.0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Sum over chains of the mean cross entropy."""
        chains, rows, classes = outputs.shape
        labels = targets.expand(chains, rows).reshape(-1)
        return F.cross_entropy(outputs.reshape(-1, classes), labels, reduction="sum") / rows


class Gaussian:
    r"""Half the squared error; the heat is the noise variance, learned from all chains.

    The conditional maximum of the noise variance given the networks is their mean squared error.
    Because the networks are draws, not a fit, that error holds the spread of the posterior too,
    and the variance does not collapse.
    """

    def __init__(self) -> None:
        self.heat = 1.0
        self._batches = 0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Sum over chains of half the mean squared error."""
        per_chain = (outputs.squeeze(-1) - targets).square().mean(dim=1)
        self._learn(float(per_chain.detach().mean()))
        return 0.5 * per_chain.sum()

    def _learn(self, error: float) -> None:
        if not math.isfinite(error):
            raise NonFiniteError(
                f"the chains diverged: mean squared error {error} at step {self._batches}"
            )
        self._batches += 1
        weight = max(FORGET, 1 / self._batches)
        self.heat = max((1 - weight) * self.heat + weight * error, LEAST_VARIANCE)
