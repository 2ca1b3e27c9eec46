"""Training rows in two: those that trials learn from, and those that judge them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import DataLoader, Subset, default_collate

from entropy_mcmc.data import Dataset, order
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.seeds import derive, seeded
from entropy_mcmc.run.training_batches import dataset_of

LEAST = 10  # validation rows; fewer tell nothing


@dataclass(frozen=True)
class HeldOut:
    """Validation batches (x, y) of a torch data set, the same each time they are read."""

    items: Any
    rows: tuple[int, ...]
    batch_size: int
    seed: int
    collate: Any = default_collate

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self.rows), self.batch_size):
            rows = self.rows[start : start + self.batch_size]
            with seeded(derive(self.seed, "held out", start)):
                batch = self.collate([self.items[row] for row in rows])
            yield batch


def split(train: Any, part: float, seed: int, batch_size: int) -> tuple[Any, Any]:
    """Training data without the validation rows, and the validation rows.

    Args:
        train: A `Dataset`, a pair of arrays, a torch data set or a DataLoader.
        part: Of the rows, to judge by.
        seed: Of the rows that are drawn.
        batch_size: Of validation batches where the data do not fit into one tensor.
    """
    if isinstance(train, tuple) and len(train) == 2:
        train = dataset_of(*train)
    if isinstance(train, Dataset):
        kept, held = _rows(len(train), part, seed)
        return _taken(train, kept), _taken(train, held)
    if isinstance(train, DataLoader):
        return _of_loader(train, part, seed, batch_size)
    if hasattr(train, "__getitem__") and hasattr(train, "__len__"):
        kept, held = (tuple(rows.tolist()) for rows in _rows(len(train), part, seed))
        return Subset(train, kept), HeldOut(train, held, batch_size, seed)
    raise ConfigError(
        f"training data of type {type(train).__name__} cannot be split; let the data be "
        '{"train": …, "validation": …}'
    )


def _rows(total: int, part: float, seed: int) -> tuple[Any, Any]:
    """Numbers of the rows to train on and of those to judge by, each in order."""
    count = round(part * total)
    if count < LEAST or total - count < 1:
        raise ConfigError(
            f"validation={part:g} of {total} training rows gives {count} rows to judge by, and at "
            f"least {LEAST} are needed, and one to train on; use a larger part or more data"
        )
    mixed = order(derive(seed, "validation"), 0, total)
    return mixed[count:].sort().values, mixed[:count].sort().values


def _taken(data: Dataset, rows: Any) -> Dataset:
    return replace(data, inputs=data.inputs[rows], targets=data.targets[rows])


def _of_loader(
    loader: DataLoader[Any], part: float, seed: int, batch_size: int
) -> tuple[Any, HeldOut]:
    items: Any = loader.dataset
    if not hasattr(items, "__len__"):
        raise ConfigError(
            f"the loader's data set must have len and [index], got {type(items).__name__}; let "
            'the data be {"train": …, "validation": …}'
        )
    kept, held = (tuple(rows.tolist()) for rows in _rows(len(items), part, seed))
    size = loader.batch_size or batch_size
    fit: Any = DataLoader(Subset(items, kept), batch_size=size, collate_fn=loader.collate_fn)
    return fit, HeldOut(items, held, size, seed, loader.collate_fn)
