"""`load(name)`: every data set by name, read from local files and never downloaded by surprise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from entropy_mcmc.data import images, own_files, tabular
from entropy_mcmc.data.batches import order
from entropy_mcmc.data.dataset import Dataset, Split, Task
from entropy_mcmc.data.local_files import Bytes, PathLike, root
from entropy_mcmc.errors import ConfigError, check_choice
from entropy_mcmc.file_names import is_file_name

_CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))

# Classes, mean and std of the training images on the scale 0 … 1 (notMNIST: of its test half).
_IMAGES = {
    "digits": (10, (0.3053,), (0.3755,)),
    "mnist": (10, (0.1307,), (0.3081,)),
    "fashion-mnist": (10, (0.2860,), (0.3530,)),
    "kmnist": (10, (0.1918,), (0.3483,)),
    "notmnist": (10, (0.4266,), (0.4589,)),
    "cifar10": (10, *_CIFAR10),
    "cifar100": (100, (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": (10, (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "cifar10-c": (10, *_CIFAR10),
}
_READERS: dict[str, Callable[[Path, Split, bool], images.Arrays]] = {
    **{name: partial(images.idx_family, name) for name in ("mnist", "fashion-mnist", "kmnist")},
    "notmnist": partial(images.idx_family, "notmnist"),
    "cifar10": images.cifar10,
    "cifar100": images.cifar100,
    "svhn": images.svhn,
}


def names() -> tuple[str, ...]:
    """Return every name that `load` knows.

    >>> names()[:3]
    ('digits', 'mnist', 'fashion-mnist')
    """
    return (*_IMAGES, "imagenet", *(f"uci-{table}" for table in tabular.UCI), "npz")


def load(
    name: str,
    *,
    folder: PathLike | None = None,
    split: Split = "train",
    limit: int | None = None,
    checksum: bool = True,
    index: int = 0,
    corruption: str = "gaussian_noise",
    severity: int = 1,
    target: str | None = None,
    inputs: list[str] | None = None,
    task: Task | None = None,
    test: float | str = 0.2,
    side: int | None = None,
) -> Dataset:
    """Read a data set from local files.

    Args:
        name: One of `names()`, or the path of your own .npz, .csv, .parquet or folder of images.
        folder: The data folder; else the environment variable EMCMC_DATA. For "npz" the path of
            the file. "digits" needs none. Relative paths of your own start here if it is given.
        split: "train" or "test".
        limit: Keep the first rows only.
        checksum: Refuse a file whose MD5 is not the published one. Pass False for partial files.
        index: Number of the standard split, for the UCI sets; of the random split, for your own.
        corruption: Type, for "cifar10-c" (which has a test split only).
        severity: 1 … 5, for "cifar10-c".
        target: Target column of your own table; by default the last.
        inputs: Input columns of your own table; by default all others.
        task: "classification" or "regression", for your own table; see `from_columns`.
        test: Part of the rows to hold out for the test, or the path of a test table, relative to
            the table's folder.
        side: Height and width to which your own images are resized; 32 by default.

    >>> digits = load("digits", split="test")
    >>> digits.inputs.shape, digits.classes
    (torch.Size([360, 1, 8, 8]), 10)
    """
    check_choice("split", split, ("train", "test"))
    if is_file_name(name):
        own: dict[str, Any] = {"target": target, "inputs": inputs, "task": task, "test": test}
        path = Path(folder or "") / name
        return own_files.read_own(path, split, **own, side=side, index=index).take(limit)
    _check_name(name)
    if name == "digits":
        return _digits(split).take(limit)
    if name == "npz":
        return _npz(folder, split).take(limit)
    base = root(folder)
    if name.startswith("uci-"):
        return tabular.uci(name.removeprefix("uci-"), base, split, index).take(limit)
    if name == "imagenet":
        return _imagenet(base, split, limit)
    if name == "cifar10-c":
        return _corrupted(base, split, corruption, severity, checksum).take(limit)
    return _wrap(name, *_READERS[name](base, split, checksum)).take(limit)


def _check_name(name: str) -> None:
    try:
        check_choice("data.name", name, names())
    except ConfigError as error:
        raise ConfigError(
            f"{error}; a file or folder of your own has a path, such as ./{name}"
        ) from None


def _wrap(name: str, pixels: Bytes, targets: np.typing.NDArray[np.int64]) -> Dataset:
    classes, mean, std = _IMAGES[name]
    # A copy: the reader's array is a read-only view of the file's bytes.
    inputs = torch.from_numpy(np.array(pixels))
    return Dataset(name, inputs, torch.from_numpy(targets), "classification", classes, mean, std)


def _digits(split: Split) -> Dataset:
    pictures, target = images.digits()
    # 0 … 16 to 0 … 255 loses nothing: 17 levels stay 17 levels.
    pixels = np.rint(pictures * (255 / 16)).astype(np.uint8)
    shuffled = order(0, 0, len(pixels)).numpy()
    rows = shuffled[:-360] if split == "train" else shuffled[-360:]
    return _wrap("digits", pixels[rows], target[rows])


def _npz(path: PathLike | None, split: Split) -> Dataset:
    if path is None:
        raise ConfigError('"npz" needs folder= the path of your .npz file, got folder=None')
    return tabular.npz(path, split)


def _corrupted(base: Path, split: Split, corruption: str, severity: int, checksum: bool) -> Dataset:
    if split != "test":
        raise ConfigError(f'"cifar10-c" has the split "test" only, got split={split!r}')
    return _wrap("cifar10-c", *images.cifar10_c(base, corruption, severity, checksum))


def _imagenet(base: Path, split: Split, limit: int | None) -> Dataset:
    from entropy_mcmc.data.imagenet import ImageFolder

    if limit is None:
        raise ConfigError(
            '"imagenet" does not fit into memory: pass limit=..., or stream it with '
            "entropy_mcmc.data.ImageBatches(ImageFolder(folder, split), ...)"
        )
    return ImageFolder(base / "imagenet", split).head(limit)
