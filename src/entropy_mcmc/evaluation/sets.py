"""Data sets that a run is evaluated on: its test set, and out-of-distribution (OOD) sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entropy_mcmc import data as data_sets
from entropy_mcmc.data import Dataset
from entropy_mcmc.errors import ConfigError, StateError

TEST = "test"
OOD = "ood:"  # prefix of the names of OOD sets
SHUFFLED = "shuffled"
ROWS = 2000  # rows whose single predictions are kept, at most
COMPARED = 100  # rows on which diagnoses compare samples
NUMBERS = 40_000_000  # of all samples' single predictions together: 160 MB
SEED = 0
Prepare = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class EvaluationSet:
    """A data set to predict.

    Attributes:
        inputs: Gives all inputs, as the network takes them: a tensor or a loader.
        rows: Numbers of the rows whose predictions are kept, ascending.
        kept_inputs: Gives the inputs of these rows.
        targets: Gives the targets of all rows.
        single: Whether the predictions of single samples are wanted for the kept rows.
    """

    inputs: Callable[[], Any]
    rows: Tensor
    kept_inputs: Callable[[], Any]
    targets: Callable[[], Tensor]
    single: bool = True


def evaluation_sets(
    train: Any,
    test: Any,
    *,
    prepare: Prepare,
    limit: int,
    ood: Sequence[str] | None = None,
    folder: str | None = None,
) -> dict[str, Callable[[], EvaluationSet]]:
    """How to get each set by name: "test", and "ood:NAME" where the test set is of images.

    Args:
        train: Training data; the test set's own statistics are never used.
        test: A `Dataset`, or batches (x, y) that can be read several times.
        prepare: Raw inputs → what the network takes.
        limit: Rows to keep at most: see `row_limit`.
        ood: Names of OOD sets; by default the test images with shuffled pixels.
        folder: Where data sets are.
    """
    if not isinstance(test, Dataset):
        return {TEST: lambda: _of_batches(test, limit, prepare)}
    sets = {TEST: lambda: _of_dataset(test, limit, prepare)}
    if has_ood(test):
        for name in [SHUFFLED] if ood is None else ood:
            sets[f"{OOD}{name}"] = partial(_of_ood, name, test, limit, prepare, folder)
    return sets


def has_ood(test: Any) -> bool:
    """Whether OOD sets are defined for this test set: one of images of classes."""
    return isinstance(test, Dataset) and test.task == "classification" and test.inputs.dim() == 4


def row_limit(limit: int, samples: int, classes: int | None) -> int:
    """Rows to keep: fewer than `limit` where many samples and classes would not fit into memory.

    >>> row_limit(2000, 16, 10), row_limit(2000, 1000, 1000)
    (2000, 100)
    """
    return min(limit, max(100, NUMBERS // max(1, samples) // (classes or 1)))


def shown_rows(total: int, limit: int) -> Tensor:
    """Numbers of the rows that are shown, in order; the same for every run.

    >>> shown_rows(3, 10).tolist()
    [0, 1, 2]
    """
    if total <= limit:
        return torch.arange(total)
    places = np.random.default_rng(SEED).permutation(total)[:limit]
    return torch.from_numpy(np.sort(places))


def compared_rows(total: int) -> Tensor:
    """Numbers of the rows on which a diagnosis compares samples, evenly spaced.

    >>> compared_rows(3).tolist(), len(compared_rows(1000))
    ([0, 1, 2], 100)
    """
    return torch.linspace(0, total - 1, min(COMPARED, total)).long()


def shuffled(images: Tensor) -> Tensor:
    """Images whose pixels are all rearranged by one fixed permutation.

    Every image keeps its own grey values, so that nothing but the arrangement is new.
    """
    side = images.shape[-2] * images.shape[-1]
    places = data_sets.order(0, 0, side).to(images.device)
    return images.flatten(2)[..., places].view_as(images)


def ood_inputs(name: str, folder: str | None, test: Dataset) -> Tensor:
    """Raw inputs of an OOD set, of the shape of the test set's."""
    if name == SHUFFLED:
        return shuffled(test.inputs)
    other = data_sets.load(name, folder=folder, split="test").inputs
    if other.shape[1:] != test.inputs.shape[1:]:
        raise ConfigError(
            f"data.ood={name!r} must have images of shape {tuple(test.inputs.shape[1:])}, got "
            f"{tuple(other.shape[1:])}"
        )
    return other


def first_rows(batches: Any, limit: int) -> tuple[Tensor, Tensor, int | None]:
    """Inputs and targets of the first rows of batches, and how many there are; None for more."""
    inputs, targets, count = [], [], 0
    for batch in batches:
        if not isinstance(batch[0], Tensor):
            raise StateError("the test inputs are no plain tensors")
        inputs.append(batch[0])
        targets.append(torch.as_tensor(batch[1]))
        count += len(batch[0])
        if count > limit:  # the rest may be millions of files
            break
    total = count if count <= limit else None
    return torch.cat(inputs)[:limit], torch.cat(targets)[:limit], total


def _of_dataset(test: Dataset, limit: int, prepare: Prepare) -> EvaluationSet:
    total = len(test.targets)
    rows = torch.unique(torch.cat([shown_rows(total, limit), compared_rows(total)]))
    return EvaluationSet(
        lambda: prepare(test.inputs),
        rows,
        lambda: prepare(test.inputs[rows]),
        lambda: test.targets,
    )


def _of_ood(
    name: str, test: Dataset, limit: int, prepare: Prepare, folder: str | None
) -> EvaluationSet:
    inputs = ood_inputs(name, folder, test)
    rows = shown_rows(len(inputs), limit)
    none = torch.empty(0)
    return EvaluationSet(
        lambda: prepare(inputs),
        rows,
        lambda: prepare(inputs[rows]),
        lambda: none,
        single=False,
    )


def _of_batches(batches: Any, limit: int, prepare: Prepare) -> EvaluationSet:
    """What a stream gives is what the network sees, in the precision of the run."""
    return EvaluationSet(
        lambda: batches,
        torch.arange(limit),
        lambda: prepare(first_rows(batches, limit)[0]),
        lambda: torch.cat([torch.as_tensor(batch[1]) for batch in batches]),
    )
