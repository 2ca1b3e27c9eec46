"""The configurational temperature ⟨(θ−c)·∇U(θ)⟩/d.

Under exp(−U/T) it is T for every fixed centre c (integrate by parts). Unlike the coupling
thermometer it sees θ itself, so it also tests `gibbs`, SGLD and SGHMC; unlike it, it needs
gradients, and the chain must have reached its target along every direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.diagnostics.gradient_noise import Estimate
from entropy_mcmc.errors import ConfigError, StateError


@torch.no_grad()
def configurational_temperature(sampler: Any, center: Sequence[Tensor] | None = None) -> Estimate:
    r"""(θ−c)·∇U(θ)/d from the gradients in `.grad`: call it after backward, before `step`.

    A mini-batch gradient will do: its error is independent of θ and averages out over readings.
    The finite step heats it: on curvature h it reads h·Var θ, which is T/(1−αh/2) under SGLD and
    `theory.euler_covariance` under Entropy-MCMC.

    Args:
        sampler: Any sampler; N and the weight decay are read from its groups.
        center: One tensor per parameter, in the sampler's order; the origin if None. A centre
            near the mode reads with less noise.

    Returns:
        The reading, with the standard error √(2/d) of a Gaussian around its centre: there
        (θ−c)·∇U/T is χ²_d. Elsewhere the true error is larger: look at the scatter of readings.
    """
    total, size, index = 0.0, 0, 0
    for group in sampler.param_groups:
        for param in group["params"]:
            point = None if center is None else _centre(center, index, param)
            index += 1
            if param.grad is None:
                continue
            theta: Tensor = sampler._theta(param)
            slope = param.grad.double() + group["weight_decay"] * theta.double()
            away = theta.double() if point is None else theta.double() - point.double()
            total += group["num_data"] * float((away * slope).sum())
            size += param.numel()
    if not size:
        raise StateError("no parameter has a gradient; call it after loss.backward()")
    return Estimate(total / size, abs(total) / size * math.sqrt(2 / size))


def _centre(center: Sequence[Tensor], index: int, param: Tensor) -> Tensor:
    if index >= len(center) or center[index].shape != param.shape:
        given = tuple(center[index].shape) if index < len(center) else "nothing"
        raise ConfigError(
            f"center must hold a tensor of shape {tuple(param.shape)} for parameter {index}, got "
            f"{given}; pass one tensor per parameter, in the sampler's order"
        )
    return center[index]
