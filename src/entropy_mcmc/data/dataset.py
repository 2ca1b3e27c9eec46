"""One value type for every data set: the inputs as stored, the targets, and how to normalise."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from entropy_mcmc.errors import ConfigError, check_choice, check_count

Task = Literal["classification", "regression"]
Split = Literal["train", "test"]
MOST_CLASSES = 100_000  # a network with so many outputs is a mistake in the labels


@dataclass(frozen=True)
class Dataset:
    """Inputs, targets and the numbers that describe them; nothing here is random.

    Attributes:
        name: The name that `load` knows.
        inputs: uint8 images (N, C, H, W), or a float32 table (N, features).
        targets: int64 classes (N,), or float32 values (N,).
        task: "classification" or "regression".
        classes: Number of classes; None for regression.
        mean: Per channel (on the scale 0 … 1) or per feature, of the training split.
        std: Likewise; never zero.
        target_mean: Mean of the training targets in regression, else 0.
        target_std: Their standard deviation in regression, else 1.
        encoder: How the columns of a user's table became these inputs and targets, or None.
    """

    name: str
    inputs: Tensor
    targets: Tensor
    task: Task
    classes: int | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    target_mean: float = 0.0
    target_std: float = 1.0
    encoder: Any = None

    def __post_init__(self) -> None:
        check_choice("task", self.task, ("classification", "regression"))
        if len(self.inputs) != len(self.targets):
            raise ConfigError(
                f"inputs and targets must be equally many, got {len(self.inputs)} inputs and "
                f"{len(self.targets)} targets"
            )
        if (self.classes is None) != (self.task == "regression"):
            raise ConfigError(f"classes must be None for regression only, got {self.classes!r}")

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        shape = " × ".join(str(size) for size in self.inputs.shape[1:])
        kind = self.task if self.classes is None else f"{self.classes} classes"
        return f"Dataset({self.name!r}, {len(self)} rows of {shape}, {kind})"

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes by name, in order; () where they have none but their number."""
        return () if self.encoder is None else tuple(self.encoder.class_names)

    def normalise(self, inputs: Tensor) -> Tensor:
        """Normalise any inputs with the statistics of this set.

        Out-of-distribution images go through the training set's `normalise`, not their own:
        the network must see them as it would see them in use.
        """
        return normalise(inputs, self.mean, self.std)

    def take(self, limit: int | None) -> Dataset:
        """Return the first `limit` rows (all of them for None)."""
        if limit is None:
            return self
        count = check_count("limit", limit)
        return replace(self, inputs=self.inputs[:count], targets=self.targets[:count])

    def only(self, classes: Sequence[int]) -> Dataset:
        """Keep these classes, renumbered 0, 1, … in the given order (the paper's 7 against 9)."""
        wanted = torch.tensor(list(classes), dtype=self.targets.dtype)
        if self.classes is None or len(set(classes)) != len(classes) or not len(classes):
            raise ConfigError(f"classes must be distinct classes of {self.name}, got {classes!r}")
        if not all(0 <= label < self.classes for label in classes):
            raise ConfigError(f"classes must be in 0 … {self.classes - 1}, got {classes!r}")
        hits = self.targets[:, None] == wanted
        rows = hits.any(dim=1).nonzero().squeeze(1)
        labels = hits[rows].int().argmax(dim=1)
        return replace(
            self, inputs=self.inputs[rows], targets=labels, classes=len(classes), encoder=None
        )


def count_classes(smallest: int, largest: int) -> int:
    """The number of classes of labels in this range; a label that is no class raises.

    >>> count_classes(0, 9)
    10
    """
    if largest >= MOST_CLASSES:
        raise ConfigError(
            f"labels must be less than {MOST_CLASSES}, got {largest}; number the classes from 0 on"
        )
    if smallest > 0:
        warnings.warn(
            f"no training row has class 0, the smallest is {smallest}; if your classes are counted "
            f"from {smallest}, subtract {smallest}: the network has an output for every class from "
            f"0 to {largest}",
            stacklevel=2,
        )
    return largest + 1


def normalise(inputs: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return (x − mean) / std as float32; uint8 images are put on the scale 0 … 1 first.

    >>> normalise(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), (0.5,), (0.5,)).tolist()
    [[[[-1.0, 1.0]]]]
    """
    trailing = (1,) * (inputs.dim() - 2)
    unit = 255.0 if inputs.dtype == torch.uint8 else 1.0
    scale = [1.0 / (unit * value) for value in std]
    shift = [-m / s for m, s in zip(mean, std, strict=True)]
    # Two in-place passes over one float copy: half the time of the division as it is written.
    columns = torch.tensor([scale, shift], device=inputs.device).view(2, -1, *trailing)
    # `copy` because float inputs would otherwise be normalised in place.
    return inputs.to(torch.float32, copy=True).mul_(columns[0]).add_(columns[1])


def statistics(table: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation per column; a constant column gets 1, not 0."""
    wide = table.double()
    std = wide.std(dim=0, correction=0)
    # Below float32's resolution the spread of a constant column is rounding, not signal.
    safe = torch.where(std > 1e-7 * wide.abs().amax(dim=0), std, torch.ones_like(std))
    return tuple(wide.mean(dim=0).tolist()), tuple(safe.tolist())
