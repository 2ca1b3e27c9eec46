"""Inputs and targets of validation data, from whatever a user has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.posterior.model_inputs import TARGETS

_KINDS = "a pair (x, y), or a loader of (x, y) or of dicts that does not shuffle"


def inputs_and_targets(data: Any) -> tuple[Any, Tensor]:
    """What `predict_proba` takes, and the target of each row.

    Args:
        data: A pair (x, y) of tensors or arrays; a dict with targets; or a loader of these.

    >>> inputs_and_targets((torch.zeros(2, 3), [0, 1]))[1]
    tensor([0, 1])
    """
    if isinstance(data, tuple) and len(data) == 2 and _is_inputs(data[0]):
        return data[0], as_targets(data[1])
    if isinstance(data, Mapping):
        return data, as_targets(_target(data))
    if isinstance(data, Iterator) or not isinstance(data, Iterable):
        raise ConfigError(f"validation data must be {_KINDS}, got {type(data).__name__}")
    targets = [as_targets(_target(batch)) for batch in data]
    if not targets:
        raise ConfigError("the validation data have no batch; pass at least one")
    return data, torch.cat(targets)


def as_targets(values: Any) -> Tensor:
    """Targets as a tensor on the CPU; words are refused in words."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    array = np.asarray(values)
    if array.dtype.kind not in "iufb":
        example = array.reshape(-1)[0] if array.size else values
        raise ConfigError(
            f"targets must be numbers, got {example!r} of type {type(example).__name__}; give each "
            "class a number from 0: np.unique(targets, return_inverse=True)[1]"
        )
    return torch.as_tensor(array)


def class_numbers(targets: Tensor, classes: int) -> Tensor:
    """Targets as class numbers from 0, checked."""
    if targets.is_floating_point():
        raise ConfigError(
            f"targets must be whole numbers, one class for each row, got {targets.dtype}; "
            "pass class numbers from 0"
        )
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= classes:
        raise ConfigError(
            f"targets must lie between 0 and {classes - 1} for {classes} classes, got values from "
            f"{low} to {high}; count classes from 0"
        )
    return targets.long()


def _is_inputs(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray | Mapping)


def _target(batch: Any) -> Any:
    if isinstance(batch, Mapping):
        names = [name for name in TARGETS if name in batch]
        if names:
            return batch[names[0]]
        raise ConfigError(
            f"a dict of validation data must have its targets as one of {', '.join(TARGETS)}, "
            f"got {', '.join(map(str, batch))}"
        )
    if isinstance(batch, tuple | list) and len(batch) > 1:
        return batch[1]
    raise ConfigError(f"validation data must be {_KINDS}, got a batch of {type(batch).__name__}")
