"""What a caller gives as data, as tensors: (x, y), or batches converted as they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from entropy_mcmc.errors import ConfigError

Array: TypeAlias = Tensor | NDArray[Any]
Batch: TypeAlias = tuple[Tensor, Tensor]
Data: TypeAlias = tuple[Array, Array] | TensorDataset | Iterable[tuple[Array, Array]]
Source: TypeAlias = Batch | Iterable[Batch]  # what `as_tensors` makes of them

ALLOWED = (
    "pass (x, y) tensors or arrays, a TensorDataset of two tensors, a list of batches (x, y) or a "
    "DataLoader"
)


class Batches:
    """Batches (x, y) of an iterable, converted and checked at every pass through it."""

    def __init__(self, source: Iterable[Any], dtype: torch.dtype) -> None:
        self._source = source
        self._dtype = dtype

    def __iter__(self) -> Iterator[Batch]:
        return (_pair(batch, self._dtype) for batch in self._source)


def as_tensors(data: Data, dtype: torch.dtype) -> Source:
    """Data as tensors; floating-point arrays take `dtype`, integer ones int64, tensors stay.

    >>> x, y = as_tensors((np.ones((3, 2)), np.array([0, 1, 1], dtype=np.int32)), torch.float32)
    >>> x.dtype, y.dtype
    (torch.float32, torch.int64)
    """
    if isinstance(data, TensorDataset):
        if len(data.tensors) != 2:
            raise ConfigError(
                f"data must hold x and y, got a TensorDataset of {len(data.tensors)}; {ALLOWED}"
            )
        data = data.tensors[0], data.tensors[1]
    if _is_pair_of_arrays(data):
        return _not_empty(_pair(data, dtype))
    if isinstance(data, Batches):
        return data
    _check_iterable(data)
    return Batches(data, dtype)


def is_pair(data: Any) -> TypeGuard[Batch]:
    """Whether the data are (x, y) tensors, and not an iterable of batches."""
    return isinstance(data, (tuple, list)) and len(data) == 2 and all(map(torch.is_tensor, data))


def pairs(data: Source) -> Iterable[Batch]:
    """Batches (x, y), of which tensors (x, y) are one."""
    return cast("Iterable[Batch]", [data] if is_pair(data) else data)


def _is_pair_of_arrays(data: Any) -> bool:
    pair = isinstance(data, (tuple, list)) and len(data) == 2
    return pair and all(isinstance(part, (Tensor, np.ndarray)) for part in data)


def _check_iterable(data: Any) -> None:
    """Refuse what cannot be read as batches, or only once."""
    kind = type(data).__name__
    # Iterated, a data set of torch gives rows, not batches, and a tensor its rows.
    rows = isinstance(data, Dataset) and not isinstance(data, IterableDataset)
    if rows or isinstance(data, (Tensor, np.ndarray, Mapping, str)) or not _has_iter(data):
        raise ConfigError(f"data must be (x, y) or batches (x, y), got {kind}; {ALLOWED}")
    if iter(data) is data:
        raise ConfigError(f"data must be iterable more than once, got {kind}; {ALLOWED}")


def _has_iter(data: Any) -> bool:
    return hasattr(data, "__iter__") or hasattr(data, "__getitem__")


def _pair(batch: Any, dtype: torch.dtype) -> Batch:
    if not _is_pair_of_arrays(batch):
        raise ConfigError(
            f"a batch of data must be two tensors or arrays (x, y), got {_shown(batch)}; {ALLOWED}"
        )
    x, y = (_tensor(name, part, dtype) for name, part in zip("xy", batch, strict=True))
    if len(x) != len(y):
        raise ConfigError(f"x and y must be equally long, got {len(x)} and {len(y)}")
    return x, y


def _shown(batch: Any) -> str:
    if isinstance(batch, (tuple, list)):
        return f"a {type(batch).__name__} of {', '.join(type(v).__name__ for v in batch[:4])}"
    return type(batch).__name__


def _tensor(name: str, part: Array, dtype: torch.dtype) -> Tensor:
    if not isinstance(part, Tensor):
        part = _of_array(name, part, dtype)
    if part.dim() == 0:
        raise ConfigError(
            f"{name} must have rows, got a single number; a DataLoader needs a batch_size"
        )
    return part


def _of_array(name: str, part: NDArray[Any], dtype: torch.dtype) -> Tensor:
    try:
        tensor = torch.from_numpy(np.array(part, order="C"))
    except TypeError as error:
        raise ConfigError(f"{name} must hold numbers, got an array of {part.dtype}") from error
    if tensor.is_floating_point():
        return tensor.to(dtype)
    return tensor if tensor.is_complex() or tensor.dtype == torch.bool else tensor.long()


def _not_empty(pair: Batch) -> Batch:
    if len(pair[0]) == 0:
        raise ConfigError("data must hold at least one sample, got none")
    return pair


def refuse_non_finite(data: Source) -> None:
    """Raise with the place of the first NaN or infinity in the data, if there is one."""
    for number, batch in enumerate(pairs(data)):
        for name, part in zip("xy", batch, strict=True):
            bad = ~part.isfinite()
            if not bool(bad.any()):
                continue
            place = tuple(bad.nonzero()[0].tolist())
            row = f"row {place[0]}" if is_pair(data) else f"row {place[0]} of batch {number}"
            raise ConfigError(
                f"data must be finite, got {part[place].item()} in {row} of {name}; drop such "
                "rows, or replace what is missing"
            )
