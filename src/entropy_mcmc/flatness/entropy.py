r"""Local entropy by Monte Carlo, for models small enough that it means something.

.. math:: F(\theta;\eta) = \log\int \exp\{-(U(\theta') + \|\theta-\theta'\|^2/(2\eta))/T\}\,d\theta'
          = \tfrac d2\log(2\pi\eta T)
          + \log \mathbb{E}_{\theta'\sim N(\theta,\eta T)} e^{-U(\theta')/T}
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entropy_mcmc.errors import check_count, check_not_negative, check_positive
from entropy_mcmc.flatness.given_data import Data
from entropy_mcmc.flatness.input_checks import checked
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    generator,
    mean_over,
    move_to,
    restoring,
    vector,
)


@dataclass(frozen=True)
class LocalEntropy:
    """F(θ; η), its standard error, and how many of the draws carry the estimate.

    `effective` is (Σw)²/Σw²: when only a few draws carry the weight, neither the value nor its
    error can be trusted; use more draws, a smaller η or a smaller model.
    """

    value: float
    standard_error: float
    effective: float
    samples: int


def local_entropy(
    model: nn.Module,
    loss: Loss,
    data: Data,
    *,
    num_data: int,
    eta: float,
    temperature: float = 1.0,
    weight_decay: float = 0.0,
    samples: int = 1000,
    seed: int | None = 0,
) -> LocalEntropy:
    """Monte Carlo estimate at the model's parameters, U = N·(L + ½λ‖θ‖²)."""
    check_count("samples", samples, least=2)
    check_count("num_data", num_data)
    spread = check_positive("eta", eta) * check_positive("temperature", temperature)
    decay = check_not_negative("weight_decay", weight_decay)
    start, draws = vector(model), generator(seed)
    logs = torch.empty(samples, dtype=torch.float64)
    with restoring(model):
        source = checked(model, loss, data)
        for i in range(samples):
            noise = torch.randn(start.numel(), generator=draws).to(start)
            point = start + math.sqrt(spread) * noise
            move_to(model, point)
            mean_energy = mean_over(model, loss, source) + decay / 2 * float(point @ point)
            logs[i] = -num_data * mean_energy / temperature
    kernel = start.numel() / 2 * math.log(2 * math.pi * spread)
    return _estimate(logs, kernel)


def _estimate(logs: Tensor, kernel: float) -> LocalEntropy:
    count = len(logs)
    weights = (logs - logs.max()).exp()
    mean = float(weights.mean())
    # Delta method: the error of log(mean) is the relative error of the mean.
    error = float(weights.std()) / (mean * math.sqrt(count))
    effective = float(weights.sum() ** 2 / weights.square().sum())
    return LocalEntropy(kernel + float(logs.max()) + math.log(mean), error, effective, count)
