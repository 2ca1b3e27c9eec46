"""Transforms of constrained parameters: θ = forward(z), z any real number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from entropy_mcmc.errors import ConfigError, check_number


@dataclass(frozen=True)
class Identity:
    """θ = z, of a parameter that may be any number."""

    bounded: ClassVar[bool] = False  # whether a flat density of θ is a proper one

    @property
    def bounds(self) -> tuple[float, ...]:
        """Numbers that θ comes near to, but must not be."""
        return ()

    def forward(self, z: Tensor) -> Tensor:
        """θ of z."""
        return z

    def inverse(self, theta: Tensor) -> Tensor:
        """Z of θ."""
        return theta

    def log_det(self, z: Tensor) -> Tensor:
        """Log |dθ/dz|, elementwise."""
        return torch.zeros_like(z)

    def allows(self, theta: Tensor) -> bool:
        """Whether all numbers of θ are inside."""
        return bool(theta.isfinite().all())


@dataclass(frozen=True)
class Above(Identity):
    """θ = low + e^z, of a parameter greater than `low`."""

    low: float = 0.0

    @property
    def bounds(self) -> tuple[float, ...]:
        """Numbers that θ comes near to, but must not be."""
        return (self.low,)

    def forward(self, z: Tensor) -> Tensor:
        """θ of z."""
        return self.low + z.exp()

    def inverse(self, theta: Tensor) -> Tensor:
        """Z of θ."""
        return (theta - self.low).log()

    def log_det(self, z: Tensor) -> Tensor:
        """Log |dθ/dz| = z."""
        return z

    def allows(self, theta: Tensor) -> bool:
        """Whether all numbers of θ are inside."""
        return bool((theta.isfinite() & (theta > self.low)).all())


@dataclass(frozen=True)
class Between(Identity):
    """θ = low + (high − low)·sigmoid(z), of a parameter between two numbers."""

    bounded: ClassVar[bool] = True
    low: float = 0.0
    high: float = 1.0

    @property
    def bounds(self) -> tuple[float, ...]:
        """Numbers that θ comes near to, but must not be."""
        return (self.low, self.high)

    def forward(self, z: Tensor) -> Tensor:
        """θ of z."""
        return self.low + (self.high - self.low) * z.sigmoid()

    def inverse(self, theta: Tensor) -> Tensor:
        """Z of θ."""
        return ((theta - self.low) / (self.high - self.low)).logit()

    def log_det(self, z: Tensor) -> Tensor:
        """Log |dθ/dz| = log(high − low) + log sigmoid(z) + log sigmoid(−z)."""
        return math.log(self.high - self.low) + F.logsigmoid(z) + F.logsigmoid(-z)

    def allows(self, theta: Tensor) -> bool:
        """Whether all numbers of θ are inside."""
        return bool(((theta > self.low) & (theta < self.high)).all())


def positive() -> Above:
    """The transform of a parameter greater than 0.

    >>> positive().forward(torch.tensor(0.0))
    tensor(1.)
    """
    return Above(0.0)


def above(low: float) -> Above:
    """The transform of a parameter greater than `low`."""
    return Above(check_number("low", low))


def between(low: float, high: float) -> Between:
    """The transform of a parameter between `low` and `high`.

    >>> between(-1, 1).inverse(torch.tensor(0.0))
    tensor(0.)
    """
    if not check_number("low", low) < check_number("high", high):
        raise ConfigError(f"low must be less than high, got low={low!r} and high={high!r}")
    return Between(low, high)
