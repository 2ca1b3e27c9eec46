"""The UCI tables at their standard splits, standardised by each split's training rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entropy_mcmc.data import order
from entropy_mcmc.data.local_files import find, root
from entropy_mcmc.data.tabular import UCI, read_npz


@dataclass(frozen=True)
class Splits:
    """Standardised training rows (split, row, …), and rows to judge in the same units.

    `units` is the standard deviation of each split's training targets.
    """

    inputs: Tensor
    targets: Tensor
    judged_inputs: Tensor
    judged_targets: Tensor
    units: Tensor

    @classmethod
    def of(cls, values: NDArray[np.float64], test: NDArray[np.bool_]) -> Splits:
        """From a table whose last column is the target, and flags (split, row) of test rows."""
        parts = [(values[~flags], values[flags]) for flags in test]
        scales = [_scale(train) for train, _ in parts]
        made = [
            [torch.from_numpy((part - mean) / std).float() for part in pair]
            for pair, (mean, std) in zip(parts, scales, strict=True)
        ]
        train, judged = (torch.stack(list(side)) for side in zip(*made, strict=True))
        units = torch.tensor([float(std[-1]) for _, std in scales])
        return cls(train[..., :-1], train[..., -1], judged[..., :-1], judged[..., -1], units)

    @property
    def rows(self) -> int:
        """Training rows of a split, N."""
        return self.inputs.shape[1]

    def validation(self, part: float) -> Splits:
        """The last rows of each split's training part, in random order, become the judged ones."""
        rows = order(0, 0, self.rows)
        cut = len(rows) - round(part * len(rows))
        kept, held = rows[:cut], rows[cut:]
        return replace(
            self,
            inputs=self.inputs[:, kept],
            targets=self.targets[:, kept],
            judged_inputs=self.inputs[:, held],
            judged_targets=self.targets[:, held],
        )

    def only(self, chosen: list[int]) -> Splits:
        """Some of the splits."""
        return Splits(*(value[chosen] for value in vars(self).values()))

    def __len__(self) -> int:
        return len(self.inputs)


def _scale(train: NDArray[np.float64]) -> tuple[Any, Any]:
    std = train.std(0)
    return train.mean(0), np.where(std > 0, std, 1.0)


def read(
    table: str, folder: str | None, limit: int | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """All rows, the target last, and flags (split, row) of the standard test rows."""
    if table == "diabetes":
        return _diabetes(limit or 2)
    base = root(folder)
    file = find(base, f"uci/{UCI[table]}.csv", checksum=False)
    values = np.loadtxt(file, delimiter=",", skiprows=1, ndmin=2, dtype=np.float64)
    flags = read_npz(find(base, f"uci/{UCI[table]}-splits.npz", checksum=False))["test"]
    return values, flags[:limit]


def _diabetes(splits: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The table of the smoke scale, which scikit-learn embeds."""
    from sklearn.datasets import load_diabetes

    content = load_diabetes()
    values = np.column_stack([content.data, content.target]).astype(np.float64)
    test = np.zeros((splits, len(values)), dtype=np.bool_)
    for index in range(splits):
        test[index, index::10][:44] = True
    test[:, 440:] = False
    return values, test
