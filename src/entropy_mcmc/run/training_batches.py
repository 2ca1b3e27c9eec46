"""Training data as micro-batches that depend on (seed, step) only, from whatever a user has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from entropy_mcmc.data import Batches, Dataset, ImageBatches
from entropy_mcmc.data.batches import check_split, order, steps_per_epoch
from entropy_mcmc.data.dataset import count_classes
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.seeds import derive, seeded


class Source(Protocol):
    """What the loop needs of training data."""

    @property
    def num_data(self) -> int:
        """Number N of training examples."""

    @property
    def steps(self) -> int:
        """Batches of one epoch."""

    def micro(self, step: int, index: int, count: int) -> tuple[Any, Any]:
        """Part `index` of the `count` equal parts of the batch of one step."""


@dataclass(frozen=True)
class Planned:
    """`Batches`, `ImageBatches`, or any dataclass like them (`batch`, `rank`, `ranks`)."""

    batches: Any
    target_mean: float = 0.0
    target_std: float = 1.0

    @property
    def num_data(self) -> int:
        """Rows of the underlying data."""
        rows = getattr(self.batches, "dataset", getattr(self.batches, "images", None))
        return len(rows)  # type: ignore[arg-type]

    @property
    def steps(self) -> int:
        """Batches of one epoch."""
        return len(self.batches)

    def micro(self, step: int, index: int, count: int) -> tuple[Any, Any]:
        """Part of a batch, targets standardised."""
        inputs, targets = self._part(index, count).batch(step)
        return inputs, self.standardised(targets)

    def standardised(self, targets: Any) -> Any:
        """Targets with mean 0 and standard deviation 1."""
        if (self.target_mean, self.target_std) == (0.0, 1.0):
            return targets
        return (targets - self.target_mean) / self.target_std

    def _part(self, index: int, count: int) -> Any:
        if (index, count) not in self._parts:
            self._parts[index, count] = replace(self.batches, rank=index, ranks=count)
        return self._parts[index, count]

    @cached_property
    def _parts(self) -> dict[tuple[int, int], Any]:
        return {}


@dataclass(frozen=True)
class Mapped:
    """Any torch data set with `len` and `[index]`; order and random transforms are seeded."""

    items: Any
    batch_size: int
    seed: int
    collate: Callable[[list[Any]], Any] = default_collate

    @property
    def num_data(self) -> int:
        """Number of items."""
        return len(self.items)

    @property
    def steps(self) -> int:
        """Whole batches of one epoch."""
        return steps_per_epoch(len(self.items), self.batch_size, True)

    def micro(self, step: int, index: int, count: int) -> tuple[Any, Any]:
        """Collated items."""
        check_split(self.batch_size, index, count)
        epoch, position = divmod(step, self.steps)
        share = self.batch_size // count
        start = position * self.batch_size + index * share
        rows = order(self.seed, epoch, len(self.items))[start : start + share].tolist()
        with seeded(derive(self.seed, "items", step, index, count)):
            batch = self.collate([self.items[row] for row in rows])
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            parts = len(batch) if isinstance(batch, tuple | list) else 1
            raise ConfigError(
                f"items of the data must be pairs (input, target), got items of {parts} parts"
            )
        return batch[0], batch[1]


class Prefetched:
    """A planned source whose next micro-batches are made by threads while the network works."""

    def __init__(self, inner: Source, workers: int, indices: Sequence[int]) -> None:
        """`indices` are the micro-batches of each step that this process asks for, in order."""
        if not isinstance(inner, Planned):
            raise ConfigError(
                f"data.workers must be 0 for own data sets, whose transforms may draw random "
                f"numbers in an order that threads do not keep, got data.workers={workers}"
            )
        self.num_data, self.steps = inner.num_data, inner.steps
        self._inner, self._indices, self._ahead = inner, list(indices), 2 * workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="emcmc-data")
        self._made: dict[tuple[int, int], Future[tuple[Any, Any]]] = {}

    def micro(self, step: int, index: int, count: int) -> tuple[Any, Any]:
        """The micro-batch of the inner source, which a worker may have prepared."""
        place = self._indices.index(index)
        for number in range(place, place + self._ahead):
            later, position = divmod(number, len(self._indices))
            key = (step + later, self._indices[position])
            if key not in self._made:
                self._made[key] = self._pool.submit(self._inner.micro, *key, count)
        for old in [key for key in self._made if key[0] < step]:
            del self._made[old]
        return self._made[step, index].result()


def source_of(data: Any, batch_size: int, seed: int, augmented: bool) -> Source:
    """Make a source of a `Dataset`, arrays (x, y), a torch data set, a DataLoader or batches."""
    if isinstance(data, tuple) and len(data) == 2:
        data = dataset_of(*data)
    if isinstance(data, Dataset):
        _refuse_empty(len(data))
        batches = Batches(data, min(batch_size, len(data)), seed=seed, augmented=augmented)
        return Planned(batches, data.target_mean, data.target_std)
    if isinstance(data, DataLoader):
        return _of_loader(data, batch_size, seed)
    if isinstance(data, ImageBatches):
        return Planned(replace(data, seed=seed))
    if hasattr(data, "batch") and is_dataclass(data) and not isinstance(data, type):
        return Planned(data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        _refuse_empty(len(data))
        return Mapped(data, min(batch_size, len(data)), seed)
    raise ConfigError(
        f"data must be a Dataset, a pair (x, y), a torch data set or a DataLoader, got "
        f"{type(data).__name__}; a stream without len and [index] cannot be resumed exactly"
    )


def _of_loader(loader: DataLoader[Any], batch_size: int, seed: int) -> Source:
    """The loader's items, batch size and collation, in an order that can be resumed."""
    items: Any = loader.dataset
    if not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
        raise ConfigError(
            f"the loader's data set must have len and [index], got {type(items).__name__}: "
            "a stream cannot be resumed exactly"
        )
    _refuse_empty(len(items))
    size = min(loader.batch_size or batch_size, len(items))
    return Mapped(items, size, seed, loader.collate_fn)


def _refuse_empty(rows: int) -> None:
    if not rows:
        raise ConfigError("the training data are empty, got 0 examples; pass at least one")


def dataset_of(x: Any, y: Any, name: str = "arrays") -> Dataset:
    """A `Dataset` of arrays as they are: whole-number targets are classes, others values."""
    inputs, targets = (
        torch.as_tensor(np.asarray(a) if not isinstance(a, Tensor) else a) for a in (x, y)
    )
    _check_arrays(inputs, targets)
    if inputs.dtype == torch.float64:
        inputs = inputs.float()
    width = inputs.shape[1] if inputs.dim() > 1 else 1
    plain = ((0.0,) * width, (1.0,) * width)
    if targets.is_floating_point():
        return Dataset(name, inputs, targets.float(), "regression", None, *plain)
    _refuse_empty(len(targets))
    classes = count_classes(int(targets.min()), int(targets.max()))
    return Dataset(name, inputs, targets.long(), "classification", classes, *plain)


def _check_arrays(inputs: Tensor, targets: Tensor) -> None:
    for name, values in (("inputs", inputs), ("targets", targets)):
        if not values.dim():
            raise ConfigError(f"{name} must have one entry for each row, got a single number")
        refuse_complex(name, values)


def refuse_complex(name: str, values: Any) -> None:
    """Raise for complex numbers, of which no sampler here is meant to learn."""
    if isinstance(values, Tensor) and values.is_complex():
        raise ConfigError(
            f"{name} must be real numbers, got {values.dtype}; pass real and imaginary parts as "
            "two features"
        )
