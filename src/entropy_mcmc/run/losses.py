"""Losses of the built-in likelihoods, and clear messages when model and data do not fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from entropy_mcmc.errors import ConfigError, NonFiniteError

Loss = Callable[[Any, Any], Tensor]
Output = Callable[[Any], Tensor]


def classification(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of logits (n, classes)."""
    return F.cross_entropy(logits, targets)


def regression(columns: Tensor, targets: Tensor) -> Tensor:
    """Mean Gaussian −log p, noise learned: columns are the mean and the log of the variance."""
    mean, log_variance = columns.unbind(1)
    squares = (targets - mean).square() * (-log_variance).exp()
    return 0.5 * (log_variance + squares).mean() + 0.5 * math.log(2 * math.pi)


LOSSES: dict[str, Loss] = {"classification": classification, "regression": regression}


def in_units(mean: float, std: float) -> Output | None:
    """Map a regression's columns from standardised targets to the targets' own units."""
    if (mean, std) == (0.0, 1.0):
        return None

    def output(columns: Tensor) -> Tensor:
        return torch.stack([columns[:, 0] * std + mean, columns[:, 1] + 2 * math.log(std)], 1)

    return output


def check_shapes(likelihood: str, output: Any, targets: Tensor) -> None:
    """Raise if the network's output cannot be that of the likelihood."""
    rows = len(targets)
    if not isinstance(output, Tensor) or output.dim() != 2 or len(output) != rows:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ConfigError(
            f"the model must return a tensor of shape ({rows}, columns) for {rows} inputs, got "
            f"{shape}; flatten its output, or pass your own loss"
        )
    if likelihood == "regression" and output.shape[1] != 2:
        raise ConfigError(
            f"the model must return 2 columns for regression (mean, log variance), got "
            f"{output.shape[1]}; set its number of outputs to 2, or pass your own loss"
        )
    if targets.dim() != 1:
        raise ConfigError(
            f"targets must have shape ({rows},), got {tuple(targets.shape)}; "
            "flatten them, or pass your own loss"
        )
    if likelihood == "classification":
        check_labels(targets, output.shape[1])


def check_labels(targets: Tensor, classes: int) -> None:
    """Raise if a label is not a class of the network."""
    bad = (targets < 0) | (targets >= classes)
    if targets.is_floating_point() or bad.any():
        first = targets[bad][0].item() if bad.any() else targets[0].item()
        raise ConfigError(
            f"labels must be whole numbers in 0 … {classes - 1}, because the model has {classes} "
            f"outputs, got label {first}; renumber the labels, or give the model more outputs"
        )


def check_finite_rows(name: str, values: Any, first_row: int = 0) -> None:
    """Raise, naming the row, if floating values hold NaN or infinity."""
    if not isinstance(values, Tensor) or not values.is_floating_point():
        return
    bad = ~values.isfinite()
    if bad.any():
        row = int(bad.flatten(1).any(1).nonzero()[0]) if values.dim() > 1 else int(bad.nonzero()[0])
        raise NonFiniteError(
            f"{name} must be finite, got {values[bad][0].item()} in row {first_row + row}; "
            "remove the row or fill in the value"
        )
