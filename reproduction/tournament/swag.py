"""SWAG (Maddox et al., 2019): a Gaussian from the mean and the spread of a trajectory's weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

RANK = 20


class Moments:
    """Running mean, variance and the last deviations of weights."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(0)
        self._square = torch.zeros(0)
        self._deviations: list[Tensor] = []

    def add(self, weights: Tensor) -> None:
        """Take in one network."""
        if not self.count:
            self.mean, self._square = torch.zeros_like(weights), torch.zeros_like(weights)
        self.count += 1
        step = weights - self.mean
        self.mean = self.mean + step / self.count
        # Welford's form: exact, and never negative by rounding.
        self._square = self._square + step * (weights - self.mean)
        self._deviations = [*self._deviations, weights - self.mean][-RANK:]

    @property
    def variance(self) -> Tensor:
        """Variance of every weight, over the networks so far."""
        return self._square / max(1, self.count)

    def draws(self, count: int, seed: int) -> list[Tensor]:
        """Networks drawn from N(mean, ½ diagonal + ½ low rank), as in the paper's Eq. 1."""
        generator = torch.Generator().manual_seed(seed)
        spread = self.variance.clamp(min=0).sqrt() / math.sqrt(2)
        low_rank = torch.stack(self._deviations, dim=1) / math.sqrt(2 * max(1, self.count - 1))
        size, rank = low_rank.shape
        return [
            self.mean
            + spread * torch.randn(size, generator=generator).to(spread)
            + low_rank @ torch.randn(rank, generator=generator).to(low_rank)
            for _ in range(count)
        ]
