"""Rows of a task: test rows are fixed, a seed draws training and validation rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from entropy_mcmc import data
from entropy_mcmc.data import Dataset, order

TEST, VALIDATION, OOD = 2000, 1000, 500
# The 15 types of CIFAR-10-C (without its 4 extra ones), each at 5 severities.
CORRUPTIONS = tuple((kind, level) for kind in data.corruption_names()[:15] for level in range(1, 6))


@dataclass(frozen=True)
class Rows:
    """Inputs and targets, normalised."""

    x: Tensor
    y: Tensor

    def to(self, device: torch.device) -> Rows:
        """The same on a device."""
        return Rows(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Data:
    """What a run may see (training, validation) and what it is judged on.

    `black` is a black pixel, normalised, by channel; None for tables.
    """

    train: Rows
    validation: Rows
    test: Rows
    ood: tuple[Tensor, ...] = ()
    black: Tensor | None = None

    def asked(self) -> Tensor:
        """All inputs that a network is asked about, in the order validation, test, OOD."""
        return torch.cat([self.validation.x, self.test.x, *self.ood])

    def to(self, device: torch.device) -> Data:
        """The same on a device."""
        parts = [part.to(device) for part in (self.train, self.validation, self.test)]
        black = None if self.black is None else self.black.to(device)
        return Data(*parts, tuple(other.to(device) for other in self.ood), black)


def drawn(pool: Rows, test: Rows, train: int, validation: int, seed: int) -> Data:
    """Training and validation rows drawn from the pool by the seed."""
    rows = order(1000 + seed, 0, len(pool.x))
    chosen, held = rows[:train], rows[train : train + validation]
    return Data(Rows(pool.x[chosen], pool.y[chosen]), Rows(pool.x[held], pool.y[held]), test)


def images(
    name: str,
    rows: int,
    ood: Sequence[str],
    seed: int,
    test: int | None = TEST,
    ood_rows: int | None = OOD,
) -> Data:
    """Images of a standard set; the first `test` test images judge, all of them if None."""
    parts = [data.load(name, split=split) for split in ("train", "test")]
    train, judged = (Rows(part.inputs, part.targets) for part in parts)
    split = drawn(train, Rows(judged.x[:test], judged.y[:test]), rows, VALIDATION, seed)
    # A partial file is enough: only its first images are asked about.
    others = [data.load(o, split="test", limit=ood_rows, checksum=False).inputs for o in ood]
    return normalised(split, parts[0], others)


def corrupted(clean: Callable[[int], Data], name: str, rows: int, seed: int) -> Data:
    """Data of another task whose OOD sets are corruptions of its first test images.

    They stand in the order of `CORRUPTIONS`, `rows` images each.
    """
    source, test = (data.load(name, split=split) for split in ("train", "test"))
    few = test.inputs[:rows]
    changed = [source.normalise(data.corrupt(few, *kind)) for kind in CORRUPTIONS]
    return replace(clean(seed), ood=tuple(changed))


def normalised(split: Data, source: Dataset, others: Sequence[Tensor]) -> Data:
    """The same with the source's mean and standard deviation, OOD data included."""
    train, validation, test = (
        Rows(source.normalise(part.x), part.y)
        for part in (split.train, split.validation, split.test)
    )
    black = source.normalise(torch.zeros_like(source.inputs[:1]))[..., :1, :1]
    return Data(train, validation, test, tuple(source.normalise(o) for o in others), black)


def digits(rows: int, seed: int) -> Data:
    """scikit-learn's digits; OOD are test images whose pixels are shuffled, each in its own way."""
    train, test = data.load("digits"), data.load("digits", split="test")
    split = drawn(
        Rows(train.inputs, train.targets),
        Rows(test.inputs, test.targets),
        rows,
        len(train) - rows,
        seed,
    )
    return normalised(split, train, [shuffled_pixels(test.inputs)])


def shuffled_pixels(inputs: Tensor) -> Tensor:
    """Every image with its pixels in an order of its own; the same orders every time."""
    flat = inputs.flatten(2)
    rows = [image[:, order(77, i, image.shape[1])] for i, image in enumerate(flat)]
    return torch.stack(rows).view_as(inputs)


def table(x: Tensor, y: Tensor, seed: int, rows: int | None = None) -> Data:
    """A table: a fixed quarter tests, four fifths of the rest (or `rows`) train."""
    mixed = order(0, 0, len(x))
    held, rest = mixed[: len(x) // 4], mixed[len(x) // 4 :]
    train = rows or len(rest) * 4 // 5
    split = drawn(Rows(x[rest], y[rest]), Rows(x[held], y[held]), train, len(rest) - train, seed)
    return standardised(split)


def standardised(split: Data) -> Data:
    """Inputs, and values to regress on, with mean 0 and variance 1 over the training rows."""
    parts = (split.train, split.validation, split.test)
    inputs = [_standard(part.x, split.train.x) for part in parts]
    targets = [part.y for part in parts]
    if split.train.y.is_floating_point():
        targets = [_standard(y[:, None], split.train.y[:, None])[:, 0] for y in targets]
    return Data(*(Rows(x, y) for x, y in zip(inputs, targets, strict=True)))


def _standard(values: Tensor, reference: Tensor) -> Tensor:
    spread = reference.std(dim=0, correction=0)
    return (values - reference.mean(dim=0)) / torch.where(spread > 0, spread, 1.0)


def breast_cancer(seed: int) -> Data:
    """scikit-learn's breast cancer table, 2 classes."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return table(torch.from_numpy(x).float(), torch.from_numpy(y).long(), seed)


def uci(name: str, seed: int, rows: int | None = None, classes: bool = False) -> Data:
    """A UCI table with all of its rows; `classes` takes whole-numbered targets as classes."""
    parts = [data.load(f"uci-{name}", split=split) for split in ("train", "test")]
    x = torch.cat([part.inputs for part in parts])
    y = torch.cat([part.targets for part in parts])
    if classes:
        y = torch.unique(y.long(), return_inverse=True)[1]
    return table(x, y, seed, rows)
