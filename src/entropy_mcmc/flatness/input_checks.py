"""What every measure is given, checked in one place: the model's weights, the data and the loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness.given_data import Data, Source, as_tensors
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    batches,
    check_weights,
    device_of,
    evaluating,
    parameters,
)

COPIES = (1, 1, 2, 4)  # the first two must agree: the growth of noise says nothing
ROUNDING = 0.02  # of the loss, in bfloat16: a sum of four copies is not exactly four times one
GROWTH = 0.05  # of the loss: less is rounding, or what does not depend on the rows


def checked(model: nn.Module, loss: Loss, data: Data) -> Source:
    """The data as tensors, of finite weights and a loss that is a mean over the rows of a batch."""
    source = checked_data(model, data)
    check_mean(model, loss, source)
    return source


def checked_data(model: nn.Module, data: Data) -> Source:
    """The data as tensors, for a model whose weights are finite."""
    check_weights(parameters(model), "the model")
    return tensors_for(model, data)


def tensors_for(model: nn.Module, data: Data) -> Source:
    """The data as tensors, floating-point arrays in the dtype of the model's first weight."""
    return as_tensors(data, next(iter(parameters(model).values())).dtype)


@torch.enable_grad()  # a loss may take slopes of the output
def check_mean(model: nn.Module, loss: Loss, source: Source) -> None:
    """Refuse a loss that grows in proportion to the rows, as with `reduction="sum"`.

    The outputs of one batch are given once, twice and four times: the mean over them stays, a sum
    grows by as much as was added. Targets are rolled by a row, so that a network that fits its data
    exactly has a loss, too.
    """
    first = next(iter(batches(source, device_of(model))), None)
    if first is None:
        raise ConfigError("data must hold at least one sample, got none")
    with evaluating(model):
        output = model(first[0])
        _check_scalar(loss(output, first[1]))
        growth = _values_of_copies(loss, output, first[1].roll(1, 0))
    if growth is None or growth[0] != growth[1]:
        return
    once, twice, four = growth[1:]
    added = twice - once
    if abs(added) > GROWTH * abs(four) and abs(four - twice - 2 * added) < ROUNDING * abs(four):
        raise ConfigError(
            f"loss must be a mean over the rows of a batch, got a sum: {once:.4g} for "
            f"{len(first[0])} rows and {twice:.4g} for the same rows twice; use "
            'reduction="mean", or divide by len(target)'
        )


def _check_scalar(value: Tensor) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1:
        shown = f"shape {(*value.shape,)}" if isinstance(value, Tensor) else type(value).__name__
        raise ConfigError(
            f"loss must return one number, its mean over the rows of a batch, as a tensor, got "
            f'{shown}; use reduction="mean"'
        )


def _values_of_copies(loss: Loss, output: Tensor, target: Tensor) -> list[float] | None:
    """Loss of some rows given as often as `COPIES` says; None of a loss that cannot be asked."""
    try:
        rows = ((torch.cat([output] * k), torch.cat([target] * k)) for k in COPIES)
        return [float(loss(outputs, targets).detach()) for outputs, targets in rows]
    except Exception:  # outputs that are no tensor, a loss for one number of rows
        return None
