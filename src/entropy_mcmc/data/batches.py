"""Batches whose content depends on (seed, step) only, so that any step can be had at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from entropy_mcmc.data import streams
from entropy_mcmc.data.augment import augment
from entropy_mcmc.data.dataset import Dataset
from entropy_mcmc.errors import ConfigError, check_count

SMALL = 2**16  # rows up to which the orders of many chains are kept


def order(seed: int, epoch: int, n: int) -> Tensor:
    """Return the permutation of 0 … n−1 of this epoch: the same on any machine.

    >>> order(0, 0, 5).tolist(), order(0, 1, 5).tolist()
    ([3, 2, 4, 1, 0], [4, 3, 0, 1, 2])
    """
    return _order(seed, check_count("epoch", epoch, least=0), check_count("n", n)).clone()


def _order(seed: int, epoch: int, n: int) -> Tensor:
    return (_kept_order if n <= SMALL else _last_orders)(seed, epoch, n)


@lru_cache(maxsize=64)  # chains that are trained at once take turns; 32 MB at most
def _kept_order(seed: int, epoch: int, n: int) -> Tensor:
    return _new_order(seed, epoch, n)


@lru_cache(maxsize=4)
def _last_orders(seed: int, epoch: int, n: int) -> Tensor:
    return _new_order(seed, epoch, n)


def _new_order(seed: int, epoch: int, n: int) -> Tensor:
    # Sorting random 64-bit keys is a uniform permutation; a tie has odds n² / 2**65.
    keys = streams.words(seed, streams.ORDER, (epoch, 0), n)
    return torch.from_numpy(np.argsort(keys, kind="stable"))


@dataclass(frozen=True)
class Batches:
    """Batches of (normalised inputs, targets); step s belongs to epoch s // len(self).

    `batch(step)` needs no earlier step: a resumed run goes on exactly where it was killed.
    `for x, y in batches` is epoch 0, every time: training loops ask for `epoch(e)`.

    Args:
        dataset: The data; its statistics normalise the inputs.
        batch_size: Rows of the global batch.
        seed: Of the order and the augmentation.
        shuffle: A new order for each epoch; False keeps the order of the file.
        augmented: Random crop (padding 4) and flip, for images.
        drop_last: Leave out the last, incomplete batch, so that all have equal size.
        rank: Which slice of each batch this process gets.
        ranks: How many slices there are; must divide batch_size.

    >>> from entropy_mcmc.data import load
    >>> batches = Batches(load("digits"), 100, seed=0)
    >>> len(batches), batches.batch(3)[0].shape
    (14, torch.Size([100, 1, 8, 8]))
    """

    dataset: Dataset
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    augmented: bool = False
    drop_last: bool = True
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        check_split(self.batch_size, self.rank, self.ranks)
        if self.augmented and self.dataset.inputs.dim() != 4:
            raise ConfigError(f"augmented=True needs images, but {self.dataset.name} is tabular")
        if not len(self):
            raise ConfigError(
                f"batch_size must be at most {len(self.dataset)}, the size of {self.dataset.name}, "
                f"got batch_size={self.batch_size}; or pass drop_last=False"
            )

    def __len__(self) -> int:
        return steps_per_epoch(len(self.dataset), self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.epoch(0)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the batches of one epoch, from its batch number `first` on."""
        for position in range(first, len(self)):
            yield self.batch(epoch * len(self) + position)

    def rows(self, step: int) -> Tensor:
        """Return which rows of the data make this step's batch on this rank."""
        epoch, position = divmod(check_count("step", step, least=0), len(self))
        count = len(self.dataset)
        start, stop = self._bounds(position)
        if not self.shuffle:
            return torch.arange(start, stop)
        return _order(self.seed, epoch, count)[start:stop]

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of one step."""
        rows = self.rows(step)
        inputs = self.dataset.inputs[rows]
        if self.augmented:
            first = self.rank * (self.batch_size // self.ranks)
            inputs = augment(inputs, seed=self.seed, step=step, first=first)
        return self.dataset.normalise(inputs), self.dataset.targets[rows]

    def _bounds(self, position: int) -> tuple[int, int]:
        share = self.batch_size // self.ranks
        start = position * self.batch_size + self.rank * share
        total = len(self.dataset)
        return min(start, total), min(start + share, total)


def steps_per_epoch(rows: int, batch_size: int, drop_last: bool) -> int:
    """Return the number of batches of an epoch."""
    return rows // batch_size if drop_last else -(-rows // batch_size)


def check_split(batch_size: int, rank: int, ranks: int) -> None:
    """Raise unless the batch divides evenly over the ranks."""
    check_count("batch_size", batch_size)
    check_count("ranks", ranks)
    if batch_size % ranks:
        raise ConfigError(
            f"batch_size must be a multiple of ranks={ranks}, got batch_size={batch_size}"
        )
    if not 0 <= rank < ranks:
        raise ConfigError(f"rank must be in 0 … {ranks - 1}, got rank={rank}")
