"""Readers of tabular data: UCI regression sets with their standard splits, and a user's `.npz`."""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch

from entropy_mcmc.data.dataset import Dataset, Split, count_classes, statistics
from entropy_mcmc.data.local_files import PathLike, damaged, find
from entropy_mcmc.errors import (
    ConfigError,
    MissingFileError,
    check_choice,
    check_count,
    suggestion,
)

Floats = npt.NDArray[np.float64]
LARGEST_UNPACKED = 256 * 2**20  # bytes that any archive may unpack to
MOST_COMPRESSION = 100  # times its own size, for larger ones

# Short names, and the names that the files carry.
UCI = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval_propulsion_plant",
    "power": "power_plant",
    "protein": "protein_tertiary_structure",
    "wine-red": "wine_quality_red",
    "yacht": "yacht",
}


def uci(table: str, folder: Path, split: Split, index: int) -> Dataset:
    """Read `uci/NAME.csv` (last column: target) at standard split number `index`.

    `uci/NAME-splits.npz` holds `test`: one row of flags per standard split. The statistics are
    those of the training rows, for both parts.
    """
    check_choice("table", table, tuple(UCI))
    values = _read_csv(find(folder, f"uci/{UCI[table]}.csv", checksum=False))
    splits = find(folder, f"uci/{UCI[table]}-splits.npz", checksum=False)
    test = _flags(splits, len(values), index)
    train = torch.from_numpy(values[~test]).float()
    part = torch.from_numpy(values[test]).float() if split == "test" else train
    return _table(f"uci-{table}", part[:, :-1], part[:, -1], train[:, :-1], train[:, -1])


def _read_csv(file: Path) -> Floats:
    try:
        values: Floats = np.loadtxt(file, delimiter=",", skiprows=1, ndmin=2, dtype=np.float64)
    except (ValueError, UnicodeDecodeError) as error:
        raise damaged(file, f"it is no table of numbers under one header line ({error})") from error
    if values.shape[1] < 2 or not np.isfinite(values).all():
        raise damaged(file, f"it needs finite features and a target, found shape {values.shape}")
    return values


def _flags(file: Path, rows: int, index: int) -> npt.NDArray[np.bool_]:
    flags = read_npz(file).get("test")
    if flags is None or flags.dtype != np.bool_ or flags.ndim != 2 or flags.shape[1] != rows:
        raise damaged(file, f"`test` must be rows of {rows} flags, one row for each split")
    if check_count("index", index, least=0) >= len(flags):
        raise ConfigError(f"index must be in 0 … {len(flags) - 1} for {file.name}, got {index}")
    of_split: npt.NDArray[np.bool_] = flags[index]
    return of_split


def read_npz(
    file: Path, remedy: str = "replace it by the official file"
) -> dict[str, npt.NDArray[Any]]:
    """Read all arrays of a `.npz`; object arrays, which need pickle, are refused."""
    try:
        if not file.is_file():
            raise ValueError("no regular file")
        # Opened here, because np.load leaves a file open when its content is no archive.
        with file.open("rb") as stream:
            _check_sizes(zipfile.ZipFile(stream), file.stat().st_size)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as content:
                return {name: content[name] for name in content.files}
    except _BROKEN_ARCHIVE as error:
        raise damaged(file, f"it is no archive of plain arrays ({error!s:.200})", remedy) from error


# What np.load and zipfile raise for content that no version of them wrote.
_BROKEN_ARCHIVE = (
    *(ValueError, OSError, EOFError, KeyError, IndexError, TypeError, AttributeError),
    *(RuntimeError, SyntaxError, MemoryError, OverflowError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse arrays that are larger than their file can be meant to hold."""
    members = archive.infolist()
    if len({member.filename for member in members}) < len(members):
        raise ValueError("two arrays have the same name")
    total = sum(member.file_size for member in members)
    if total > max(LARGEST_UNPACKED, MOST_COMPRESSION * size):
        raise ValueError(f"{size} bytes that unpack to {total}")
    for member in members:
        with archive.open(member) as stream:
            _check_header(member.filename, stream, member.file_size)


def _check_header(name: str, stream: IO[bytes], size: int) -> None:
    form = np.lib.format
    version = form.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} has version {version} of the format")
    read = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError(f"{name} holds Python objects")
    if math.prod(shape) * dtype.itemsize > size or min(shape, default=0) < 0:
        raise ValueError(f"{name} claims the shape {shape} and has {size} bytes")


PARTS = ("x_train", "y_train", "x_test", "y_test")


def npz(path: PathLike, split: Split) -> Dataset:
    """Read a user's file: `x_train`, `y_train`, `x_test`, `y_test`.

    uint8 inputs of 3 or 4 axes are images (N, H, W) or (N, C, H, W); other inputs are a table.
    Integer targets are classes from 0 on, floating targets are values to regress on.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingFileError(f"{file} is not there: pass folder= the path of your .npz file")
    arrays = read_npz(file, "write it again with np.savez")
    for name in ("x_train", "y_train", f"x_{split}", f"y_{split}"):
        if name not in arrays:
            raise ConfigError(
                f"{file} has no array {name}{suggestion(name, arrays)}; it must have "
                f"{', '.join(PARTS)}, and has {', '.join(arrays) or 'none'}"
            )
        _check_numeric(file, name, arrays[name])
    for part in dict.fromkeys(("train", split)):
        x, y, like = arrays[f"x_{part}"], arrays[f"y_{part}"], arrays["x_train"]
        if len(x) != len(y):
            raise ConfigError(
                f"{file} must have as many rows in x_{part} as in y_{part}, got {len(x)} and "
                f"{len(y)}"
            )
        if x.shape[1:] != like.shape[1:]:
            raise ConfigError(
                f"{file} must have rows of one shape, got {like.shape[1:]} in x_train and "
                f"{x.shape[1:]} in x_{part}"
            )
    rows = (arrays[f"x_{split}"], arrays[f"y_{split}"])
    return _user_set(file, rows, (arrays["x_train"], arrays["y_train"]))


def _check_numeric(file: Path, name: str, array: npt.NDArray[Any]) -> None:
    if array.dtype.kind not in "iuf":
        remedy = "; number the classes from 0" if name[0] == "y" else ""
        raise ConfigError(f"{name} of {file} must hold numbers, got {array.dtype}{remedy}")
    if not array.ndim or not array.size:
        raise ConfigError(f"{name} of {file} must have rows, got the shape {array.shape}")
    if not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(1))[0]
        raise ConfigError(
            f"{name} of {file} must be finite, got NaN or infinity in row {bad} (from 0)"
        )


def _user_set(
    file: Path,
    part: tuple[npt.NDArray[Any], npt.NDArray[Any]],
    train: tuple[npt.NDArray[Any], npt.NDArray[Any]],
) -> Dataset:
    name = f"npz:{file.name}"
    regression = train[1].dtype.kind == "f"
    targets = torch.from_numpy(part[1].astype(np.float32 if regression else np.int64))
    train_targets = torch.from_numpy(train[1].astype(np.float32))
    if train[0].dtype == np.uint8 and train[0].ndim in (3, 4):
        images, train_images = _as_images(part[0]), _as_images(train[0])
        shown = train_images.transpose(0, 1).flatten(1).T.float() / 255
        base = _table(name, images, targets, shown, train_targets)
    else:
        table, train_table = (
            torch.from_numpy(a.astype(np.float32)).flatten(1) for a in (part[0], train[0])
        )
        base = _table(name, table, targets, train_table, train_targets)
    return base if regression else _classified(file, base, train[1])


def _as_images(array: npt.NDArray[Any]) -> torch.Tensor:
    images = torch.from_numpy(np.ascontiguousarray(array, dtype=np.uint8))
    return images if images.dim() == 4 else images[:, None]


def _classified(file: Path, base: Dataset, train_labels: npt.NDArray[Any]) -> Dataset:
    from dataclasses import replace

    classes = count_classes(int(train_labels.min()), int(train_labels.max()))
    if base.targets.dim() != 1:
        raise ConfigError(
            f"{file} must have one class for each row, got targets of shape "
            f"{tuple(base.targets.shape)}"
        )
    low, high = int(base.targets.min()), int(base.targets.max())
    if low < 0 or high >= classes:
        raise ConfigError(
            f"classes of {file} must be in 0 … {classes - 1}, as in y_train, got {low} … {high}"
        )
    return replace(base, task="classification", classes=classes, target_mean=0.0, target_std=1.0)


def _table(
    name: str, x: torch.Tensor, y: torch.Tensor, x_train: torch.Tensor, y_train: torch.Tensor
) -> Dataset:
    mean, std = statistics(x_train)
    target_mean, target_std = statistics(y_train.flatten()[:, None])
    return Dataset(name, x, y, "regression", None, mean, std, target_mean[0], target_std[0])
