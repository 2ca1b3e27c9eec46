"""Files of the user's own by path: .npz, .csv, .parquet, or a folder of images."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from entropy_mcmc.data import image_folder, tabular
from entropy_mcmc.data.columns import Column, Encoder, column_names, encode, from_columns
from entropy_mcmc.data.dataset import Dataset, Split, Task
from entropy_mcmc.data.held_out import held_out
from entropy_mcmc.data.local_files import PathLike
from entropy_mcmc.errors import ConfigError, DamagedFileError, MissingFileError, check_number

LARGEST_CSV = 1 << 30  # bytes; text of that size becomes several times as much in memory
Table = dict[str, Column]


def read_own(
    path: PathLike,
    split: Split,
    *,
    target: str | None = None,
    inputs: list[str] | None = None,
    task: Task | None = None,
    test: float | str = 0.2,
    side: int | None = None,
    index: int = 0,
) -> Dataset:
    """Read a split of a user's file or folder; `load` has the arguments."""
    file = Path(path)
    if not file.exists():
        raise MissingFileError(f"{file} is not there; check the path, or run from another folder")
    if file.is_dir():
        return image_folder.read(file, split, side=side, test=_fraction(test), index=index)
    suffix = file.suffix.lower()
    if suffix == ".npz":
        return tabular.npz(file, split)
    if suffix not in READERS:
        raise ConfigError(
            f"own files must end in .npz, .csv or .parquet, or be a folder of images, got {file}"
        )
    table = read_table(file)
    if isinstance(test, str):
        train = from_columns(table, target, inputs, task=task, name=file.name)
        return train if split == "train" else _test_file(file.parent / test, train)
    # Classes and categories of all rows: a rare one may have fallen into the test part.
    encoder: Encoder = from_columns(table, target, inputs, task=task, name=file.name).encoder
    held = held_out(len(next(iter(table.values()))), _fraction(test), index)
    train = encode(file.name, _rows(table, ~held), encoder)
    if split == "train":
        return train
    return from_columns(_rows(table, held), like=train, name=file.name)


def read_table(file: Path) -> Table:
    """Columns by name of a .csv or .parquet file."""
    if not file.is_file():
        raise MissingFileError(f"{file} is not there or no regular file; check the path")
    return READERS[file.suffix.lower()](file)


def _fraction(test: float | str) -> float:
    if isinstance(test, str):
        raise ConfigError(
            f"test must be a part such as 0.2 for a folder of images, got {test!r}; put test "
            "images into its subfolder test"
        )
    number = check_number("test", test)
    if not 0 < number < 1:
        raise ConfigError(f"test must be greater than 0 and less than 1, got test={test!r}")
    return number


def _rows(table: Table, flags: npt.NDArray[np.bool_]) -> Table:
    return {name: column[flags] for name, column in table.items()}


def _test_file(file: Path, train: Dataset) -> Dataset:
    if file.suffix.lower() not in READERS:
        raise ConfigError(f"test must be a part such as 0.2, or a .csv or .parquet, got {file}")
    return from_columns(read_table(file), like=train, name=file.name)


def _read_csv(file: Path) -> Table:
    """A header line, then rows of as many cells; a column of numbers becomes one."""
    if file.stat().st_size > LARGEST_CSV:
        raise ConfigError(
            f"{file} has more than {LARGEST_CSV >> 30} GiB; convert it to .parquet or .npz"
        )
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            lines = [row for row in csv.reader(stream) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DamagedFileError(f"{file} is no CSV file in UTF-8 ({error})") from error
    names = _header(file, lines)
    for number, row in enumerate(lines[1:], start=2):
        if len(row) != len(names):
            raise ConfigError(
                f"{file} has {len(names)} columns and {len(row)} cells in line {number}; cells are "
                'separated by commas, and a cell with a comma stands in "quotes"'
            )
    cells = zip(*lines[1:], strict=True)
    return {name: _typed(column) for name, column in zip(names, cells, strict=True)}


def _header(file: Path, lines: list[list[str]]) -> list[str]:
    if len(lines) < 2:
        raise ConfigError(f"{file} must have a header line and rows under it, got {len(lines)}")
    names = [name.strip() for name in lines[0]]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise ConfigError(
            f"{file} must separate its cells by commas, got the header {names[0]!r}; convert it, "
            "or read it with pandas and use data.from_columns"
        )
    if len(set(names)) < len(names) or not all(names):
        raise ConfigError(f"{file} must have a name for each column, once, got {', '.join(names)}")
    if all(_number(name) is not None for name in names):
        raise ConfigError(
            f"the first line of {file} must name the columns, got numbers: {', '.join(names[:6])}"
        )
    return names


def _typed(cells: tuple[str, ...]) -> Column:
    """Numbers if every cell that is not empty is one; empty cells are then missing."""
    numbers = [np.nan if not cell.strip() else _number(cell) for cell in cells]
    if any(number is None for number in numbers):
        return np.array([cell.strip() for cell in cells])
    return np.array(numbers, dtype=np.float64)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _read_parquet(file: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            f"{file} needs pyarrow: pip install 'entropy-mcmc[parquet]', or save it as .csv"
        ) from error
    try:
        table: Any = parquet.read_table(file)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, OSError) as error:
        raise DamagedFileError(f"{file} is no Parquet file ({error!s:.200})") from error
    names = column_names(table)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in names}


READERS = {".csv": _read_csv, ".parquet": _read_parquet}
