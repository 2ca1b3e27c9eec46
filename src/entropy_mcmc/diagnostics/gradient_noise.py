"""The variance of mini-batch gradients, V = N²·Var(ĝ) per coordinate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import Tensor

from entropy_mcmc.errors import ConfigError, check_positive


class Estimate(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.error:.2g}"


def gradient_variance(gradients: Iterable[Sequence[Tensor]], num_data: float) -> Estimate:
    """V = N²·Var(ĝ) per coordinate, from mini-batch gradients of the mean loss at fixed weights.

    Consecutive gradients are compared in pairs: N²‖g₁−g₂‖²/(2d) has mean V, the pairs are
    independent and give the standard error, and two gradients at a time are in memory.

    Args:
        gradients: One sequence of tensors per mini-batch, at least four, drawn independently.
        num_data: N.

    >>> import torch
    >>> g = torch.Generator().manual_seed(0)
    >>> draws = ([torch.randn(1000, generator=g)] for _ in range(8))
    >>> V = gradient_variance(draws, num_data=10)
    >>> abs(V.value - 100) < 4 * V.error
    True
    """
    check_positive("num_data", num_data)
    pairs: list[float] = []
    first: list[Tensor] | None = None
    for gradient in gradients:
        if first is None:
            first = [g.detach().clone() for g in gradient]
            continue
        size = sum(g.numel() for g in gradient)
        gap = sum(
            float((a - b).double().square().sum()) for a, b in zip(first, gradient, strict=True)
        )
        pairs.append(num_data**2 * gap / (2 * size))
        first = None
    if len(pairs) < 2:
        raise ConfigError(
            f"gradients must hold at least 4 mini-batch gradients, got {2 * len(pairs)} to "
            f"{2 * len(pairs) + 1}; draw more mini-batches"
        )
    mean = math.fsum(pairs) / len(pairs)
    spread = math.fsum((pair - mean) ** 2 for pair in pairs) / (len(pairs) - 1)
    return Estimate(mean, math.sqrt(spread / len(pairs)))
