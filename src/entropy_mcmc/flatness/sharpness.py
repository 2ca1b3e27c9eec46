r"""SAM sharpness: how much the loss can rise within a ball.

.. math:: \max_{\|\epsilon\| \le \rho} L(\theta+\epsilon) - L(\theta)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entropy_mcmc.errors import check_count, check_positive
from entropy_mcmc.flatness.given_data import Data
from entropy_mcmc.flatness.input_checks import checked
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    check_measured,
    mean_gradient,
    mean_over,
    move_to,
    restoring,
    vector,
)


@dataclass(frozen=True)
class Sharpness:
    """Rise of the loss: at SAM's first-order point, and the highest found by ascent."""

    rho: float
    loss: float
    first_order: float
    ascent: float


def sam_sharpness(
    model: nn.Module, loss: Loss, data: Data, *, rho: float = 0.05, steps: int = 10
) -> Sharpness:
    """Loss at ρ·∇L/‖∇L‖ above L(θ), then `steps` normalised ascent steps on the ball.

    Each step follows the gradient by ρ/2 and projects back onto the ball; the highest point
    counts, so `ascent` ≥ `first_order`. Both are lower bounds of the true maximum. At an exact
    minimum the gradient has no direction, and both are 0.
    """
    radius, start = check_positive("rho", rho), vector(model)
    check_count("steps", steps, least=0)
    with restoring(model):
        source = checked(model, loss, data)
        base = mean_over(model, loss, source)
        check_measured("the loss", base, source)
        offset = radius * _unit(mean_gradient(model, loss, source))
        move_to(model, start + offset)
        first = best = mean_over(model, loss, source) - base
        for _ in range(steps):
            climbed = offset + radius / 2 * _unit(mean_gradient(model, loss, source))
            offset = climbed * min(1.0, radius / max(float(climbed.norm()), 1e-38))
            move_to(model, start + offset)
            best = max(best, mean_over(model, loss, source) - base)
    return Sharpness(radius, base, first, best)


def _unit(gradient: Tensor) -> Tensor:
    length = gradient.norm()
    return gradient / length if float(length) > 0 else torch.zeros_like(gradient)
