"""Inputs of a model, from whatever a user has: tensors, arrays, dicts, loaders of any of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import RandomSampler

from entropy_mcmc.errors import ConfigError

TARGETS = ("labels", "label", "targets", "target", "y")


def call(model: nn.Module, inputs: Any) -> Any:
    """`model(inputs)`, or `model(**inputs)` for a dict.

    >>> call(nn.Identity(), torch.ones(1))
    tensor([1.])
    """
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def inputs_of(batch: Any) -> Any:
    """The inputs of a loader's batch: the first of a tuple, a dict without its targets.

    >>> sorted(inputs_of({"x": 1, "mask": 2, "labels": 3}))
    ['mask', 'x']
    """
    if isinstance(batch, list | tuple):
        if not batch:
            raise ConfigError("the loader gave an empty batch; a batch is x, (x, y) or a dict")
        return inputs_of(batch[0]) if isinstance(batch[0], Mapping) else batch[0]
    if isinstance(batch, Mapping):
        return {key: value for key, value in batch.items() if key not in TARGETS}
    return batch


def to_device(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Move nested inputs; arrays become tensors, floating arrays in the model's `dtype`."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, np.ndarray):
        tensor = torch.as_tensor(value)
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)
    if isinstance(value, Mapping):
        return {key: to_device(item, device, dtype) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(to_device(item, device, dtype) for item in value)
    return value


def home(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Device and floating type of a model's first floating parameter."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter.device, parameter.dtype
    return torch.device("cpu"), torch.get_default_dtype()


class Batches:
    """The same batches in every pass, on the model's device.

    Each sample makes its own pass, so data that changes between passes would average the
    predictions of different inputs: that is found out and refused.
    """

    def __init__(self, x: Any, model: nn.Module, batch_size: int) -> None:
        self._x, self._batch_size = x, batch_size
        self._device, self._dtype = home(model)
        self._prints: list[float] = []
        self._complete = False
        self.out_device = x.device if isinstance(x, Tensor) else torch.device("cpu")
        if isinstance(x, Iterator) or not isinstance(x, Iterable):
            raise ConfigError(
                f"x must be a tensor, an array, a dict of these or a loader that can be read "
                f"several times, got {type(x).__name__}; pass list(x) or a DataLoader"
            )
        if isinstance(getattr(x, "sampler", None), RandomSampler):
            raise ConfigError("the loader shuffles, so rows have no place; use shuffle=False")

    def __iter__(self) -> Iterator[Any]:
        count = -1
        for count, raw in enumerate(self._raw()):
            self._compare(count, _fingerprint(raw))
            yield to_device(raw, self._device, self._dtype)
        if count < 0:
            raise _empty()
        if self._complete and count + 1 != len(self._prints):
            raise _changed(count + 1)
        self._complete = True

    def once(self) -> Iterator[Any]:
        """The batches of the only pass, which are compared with none."""
        empty = True
        for raw in self._raw():
            empty = False
            yield to_device(raw, self._device, self._dtype)
        if empty:
            raise _empty()

    def first(self) -> Any:
        """The first batch, outside any pass."""
        for raw in self._raw():
            return to_device(raw, self._device, self._dtype)
        raise _empty()

    def _raw(self) -> Iterator[Any]:
        if isinstance(self._x, Tensor | np.ndarray | Mapping):
            rows = _rows(self._x)
            for start in range(0, max(rows, 1), self._batch_size):
                yield _slice(self._x, start, start + self._batch_size)
        else:
            yield from map(inputs_of, self._x)

    def _compare(self, index: int, fingerprint: float) -> None:
        if not self._complete:
            if index == len(self._prints):
                self._prints.append(fingerprint)
            else:
                self._prints[index] = fingerprint
        elif index >= len(self._prints) or self._prints[index] != fingerprint:
            raise _changed(index)


def _empty() -> ConfigError:
    return ConfigError("the loader gave no batch; pass at least one")


def _changed(index: int) -> ConfigError:
    return ConfigError(
        f"the loader gave other data at batch {index} than in its first pass; "
        "use shuffle=False and no random augmentation"
    )


def _rows(x: Any) -> int:
    if isinstance(x, Mapping):
        sizes = {key: len(value) for key, value in x.items() if key not in TARGETS}
        if len(set(sizes.values())) != 1:
            raise ConfigError(f"the entries of x must have one length, got {sizes}")
        return next(iter(sizes.values()))
    if x.ndim == 0:
        raise ConfigError("x must have a first dimension of rows, got a scalar; use x[None]")
    return len(x)


def _slice(x: Any, start: int, stop: int) -> Any:
    if isinstance(x, Mapping):
        return {key: value[start:stop] for key, value in inputs_of(x).items()}
    return x[start:stop]


def _fingerprint(value: Any) -> float:
    """A number that differs for different inputs; exact, as the same sum is done each pass."""
    if isinstance(value, np.ndarray):
        value = torch.as_tensor(value)
    if isinstance(value, Tensor):
        flat = value.detach().reshape(-1)
        edge = float(flat[0]) if flat.numel() else 0.0
        return hash((tuple(value.shape), edge, float(flat.sum(dtype=torch.float64)))) * 1.0
    if isinstance(value, Mapping):
        return float(hash(tuple(_fingerprint(item) for item in value.values())))
    if isinstance(value, list | tuple):
        return float(hash(tuple(_fingerprint(item) for item in value)))
    return 0.0
