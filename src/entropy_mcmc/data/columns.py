"""Tables of named columns as data sets: numbers as they are, text one-hot, classes by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from entropy_mcmc.data.dataset import Dataset, Task, statistics
from entropy_mcmc.errors import ConfigError, check_choice, suggestion

Column = npt.NDArray[Any]
MOST_CATEGORIES = 64  # of a text column; more is an identifier or free text
MOST_WHOLE_CLASSES = 20  # different whole numbers that are taken for classes


@dataclass(frozen=True)
class Encoder:
    """How the columns of a table become inputs and targets; learned from the training rows.

    Attributes:
        categories: For every input column its texts in order, or () for numbers.
        target: The target column.
        class_names: The classes in order, or () for regression.
        numbered: Whether the target column holds places in `class_names` (Hugging Face's
            ClassLabel), not the names themselves.
    """

    categories: dict[str, tuple[str, ...]]
    target: str
    class_names: tuple[str, ...]
    numbered: bool = False

    def inputs(self, table: Any, where: str) -> npt.NDArray[np.float32]:
        """Rows of numbers: number columns as they are, a column of 0 and 1 for every category."""
        parts = []
        for name, texts in self.categories.items():
            column = column_of(table, name, where)
            parts.append(_one_hot(column, texts, name, where) if texts else _numbers(column, name))
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def targets(self, table: Any, where: str) -> Column:
        """Class numbers, or values."""
        column = column_of(table, self.target, where)
        if not self.class_names:
            return _numbers(column, self.target)[:, 0].astype(np.float32)
        names = range(len(self.class_names)) if self.numbered else self.class_names
        places = {str(name): place for place, name in enumerate(names)}
        labels = [places.get(text) for text in _labels(column)]
        if None in labels:
            strange = _labels(column)[labels.index(None)]
            raise ConfigError(
                f"{where} has the class {strange!r} in column {self.target!r}, which the training "
                f"rows do not have; they have {listed(names)}"
            )
        return np.array(labels, dtype=np.int64)


def from_columns(
    table: Any,
    target: str | None = None,
    inputs: Sequence[str] | None = None,
    *,
    task: Task | None = None,
    like: Dataset | None = None,
    name: str = "columns",
) -> Dataset:
    """Make a data set of named columns: a dict of arrays, a DataFrame, a Hugging Face data set.

    Args:
        table: Anything whose columns are `table[name]`.
        target: The target column; by default the last.
        inputs: The input columns; by default all others. One column may hold images of one size.
        task: "classification" or "regression"; by default text and up to 20 different whole
            numbers are classes, other numbers are values.
        like: The training set, for test data: its columns, classes and normalisation are used.
        name: Of the data set, in messages.

    >>> table = {"size": [1.0, 2.0, 3.0], "town": ["A", "B", "A"], "price": [1.5, 2.5, 2.0]}
    >>> from_columns(table, "price").inputs.tolist()
    [[1.0, 1.0, 0.0], [2.0, 0.0, 1.0], [3.0, 1.0, 0.0]]
    """
    if like is not None:
        return _like(table, like, name)
    names = column_names(table)
    if not names:
        raise ConfigError(f"{name} has no named columns; pass a dict, a DataFrame or a data set")
    target = names[-1] if target is None else target
    wanted = [n for n in names if n != target] if inputs is None else list(inputs)
    if not wanted or target in wanted:
        raise ConfigError(
            f"{name} needs at least one input column beside the target {target!r}, got "
            f"{listed(wanted) or 'none'}"
        )
    goal = column_of(table, target, name)
    check_choice("task", task, (None, "classification", "regression"))
    labels = _label_names(table, target, goal)
    classes = labels if labels and task != "regression" else _class_names(target, goal, task)
    numbered = classes is labels
    first = column_of(table, wanted[0], name)
    if len(wanted) == 1 and _is_images(first):
        encoder = Encoder({wanted[0]: ()}, target, classes, numbered)
        return _images(name, first, encoder, goal, None)
    columns = {column: column_of(table, column, name) for column in wanted}
    encoder = Encoder(
        {c: () if _is_number(v) else _categories(v, c, name) for c, v in columns.items()},
        target,
        classes,
        numbered,
    )
    return encode(name, table, encoder)


def _like(table: Any, like: Dataset, name: str) -> Dataset:
    encoder = like.encoder
    if not isinstance(encoder, Encoder):
        raise ConfigError(f"like= must be made by from_columns, got {like.name}")
    if like.inputs.dim() == 4:
        goal = column_of(table, encoder.target, name)
        return _images(
            name, column_of(table, next(iter(encoder.categories)), name), encoder, goal, like
        )
    x, y = encoder.inputs(table, name), encoder.targets(table, name)
    return replace(like, name=name, inputs=torch.from_numpy(x), targets=torch.from_numpy(y))


def encode(name: str, table: Any, encoder: Encoder) -> Dataset:
    """The data set of training rows by a known encoder."""
    x = torch.from_numpy(encoder.inputs(table, name))
    y = torch.from_numpy(encoder.targets(table, name))
    _same_length(name, len(x), len(y))
    return finished(name, x, y, statistics(x), encoder)


def finished(
    name: str,
    x: torch.Tensor,
    y: torch.Tensor,
    scale: tuple[tuple[float, ...], tuple[float, ...]],
    encoder: Encoder,
) -> Dataset:
    """The data set of encoded training rows."""
    if encoder.class_names:
        classes = len(encoder.class_names)
        return Dataset(name, x, y, "classification", classes, *scale, encoder=encoder)
    mean, std = statistics(y[:, None])
    return Dataset(name, x, y, "regression", None, *scale, mean[0], std[0], encoder=encoder)


def _images(
    name: str, column: Column, encoder: Encoder, goal: Column, like: Dataset | None
) -> Dataset:
    pixels = [np.asarray(image) for image in column]
    shapes = sorted({image.shape for image in pixels})
    if len(shapes) > 1 or pixels[0].dtype != np.uint8 or pixels[0].ndim not in (2, 3):
        raise ConfigError(
            f"{name} must have images of one size and of bytes, got shapes {listed(shapes)} of "
            f"{pixels[0].dtype}; resize and convert them first"
        )
    stack = np.stack(pixels)
    stack = stack[:, None] if stack.ndim == 3 else stack
    # Height, width, channels, as Pillow and Hugging Face have it.
    channels_last = stack.shape[-1] in (1, 3, 4) and stack.shape[1] not in (1, 3, 4)
    stack = stack.transpose(0, 3, 1, 2) if channels_last else stack
    x = torch.from_numpy(np.ascontiguousarray(stack))
    y = torch.from_numpy(encoder.targets({encoder.target: goal}, name))
    _same_length(name, len(x), len(y))
    if like is not None:
        return replace(like, name=name, inputs=x, targets=y)
    return finished(name, x, y, pixel_statistics(x), encoder)


def pixel_statistics(images: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel on the scale 0 … 1."""
    return statistics(images.transpose(0, 1).flatten(1).T.float() / 255)


def column_names(table: Any) -> list[str]:
    """Names of the columns of whatever holds columns."""
    names = getattr(table, "column_names", None)  # Hugging Face, pyarrow
    if names is None:
        names = getattr(table, "columns", None)  # pandas
    if names is None and hasattr(table, "keys"):
        names = table.keys()
    return [str(name) for name in (names if names is not None else ())]


def column_of(table: Any, name: str, where: str) -> Column:
    """A column by name; one that is not there is named, with the likely spelling."""
    names = column_names(table)
    if name not in names:
        raise ConfigError(
            f"{where} has no column {name!r}{suggestion(name, names)}; it has {listed(names)}"
        )
    column = table[name]
    values: Column = column if isinstance(column, np.ndarray) else _array(column)
    if not len(values):
        raise ConfigError(f"{where} has no rows")
    return values


def _array(values: Iterable[Any]) -> Column:
    plain = list(values)
    try:
        array = np.asarray(plain)
    except ValueError:  # rows of different shapes
        array = np.empty(len(plain), dtype=object)
        array[:] = plain
    return array


def _is_images(column: Column) -> bool:
    if column.ndim >= 3:
        return column.dtype == np.uint8
    first = column[0]
    return hasattr(first, "getbands") or (isinstance(first, np.ndarray) and first.ndim >= 2)


def _is_number(column: Column) -> bool:
    if column.dtype.kind in "biuf":
        return True
    return column.dtype.kind == "O" and all(
        value is None or (isinstance(value, int | float | np.number)) for value in column
    )


def _numbers(column: Column, name: str) -> npt.NDArray[np.float64]:
    """A float column (rows, width); missing and infinite values raise."""
    if not _is_number(column):
        raise ConfigError(
            f"column {name!r} must hold numbers, as in the training rows, got {str(column[0])!r}"
        )
    plain = (
        [math.nan if value is None else value for value in column]
        if column.dtype.kind == "O"
        else column
    )
    values = np.asarray(plain, dtype=np.float64).reshape(len(column), -1)
    bad = np.flatnonzero(~np.isfinite(values).all(1))
    if len(bad):
        raise ConfigError(
            f"column {name!r} has {len(bad)} missing or infinite values, the first in row "
            f"{bad[0] + 1}; fill them in or leave the rows out"
        )
    return values


def _categories(column: Column, name: str, where: str) -> tuple[str, ...]:
    texts = _labels(column)
    empty = [row for row, text in enumerate(texts) if not text.strip()]
    if empty:
        raise ConfigError(
            f"column {name!r} has {len(empty)} missing values, the first in row {empty[0] + 1}; "
            "fill them in or leave the rows out"
        )
    different = tuple(sorted(set(texts)))
    if len(different) > MOST_CATEGORIES:
        raise ConfigError(
            f"column {name!r} of {where} has {len(different)} different texts, at most "
            f"{MOST_CATEGORIES} become categories; choose the columns with inputs, or encode it "
            "yourself"
        )
    return different


def _one_hot(
    column: Column, texts: tuple[str, ...], name: str, where: str
) -> npt.NDArray[np.float64]:
    cells = np.array(_labels(column))
    hot = cells[:, None] == np.array(texts)
    strange = np.flatnonzero(~hot.any(1))
    if len(strange):
        raise ConfigError(
            f"{where} has {str(cells[strange[0]])!r} in column {name!r}, row {strange[0] + 1}, "
            f"which the training rows do not have; they have {listed(texts)}"
        )
    columns: npt.NDArray[np.float64] = hot.astype(np.float64)
    return columns


def _labels(column: Column) -> list[str]:
    whole = column.dtype.kind == "f" and bool((column == np.round(column)).all())
    values = column.astype(np.int64) if whole else column
    return ["" if value is None else str(value) for value in values.tolist()]


def _label_names(table: Any, target: str, goal: Column) -> tuple[str, ...]:
    """Names of the classes that the numbers of a Hugging Face ClassLabel stand for, else ()."""
    features = getattr(table, "features", None)
    known = getattr(features[target], "names", None) if features is not None else None
    return tuple(map(str, known)) if known and goal.dtype.kind in "iu" else ()


def _class_names(target: str, goal: Column, task: Task | None) -> tuple[str, ...]:
    """Classes in order; () where the target is a value."""
    if task == "regression":
        return ()
    if not _is_number(goal):
        return _categories_of_target(goal, target)
    values = _numbers(goal, target)[:, 0]
    whole = bool((values == np.round(values)).all())
    different = np.unique(values)
    if task == "classification" or (whole and len(different) <= MOST_WHOLE_CLASSES):
        if not whole:
            raise ConfigError(
                f"classes must be text or whole numbers, got {target}={values[0]:g} in row 1; or "
                'use task="regression"'
            )
        return tuple(str(int(value)) for value in different)
    return ()


def _categories_of_target(goal: Column, target: str) -> tuple[str, ...]:
    texts = _labels(goal)
    if not all(text.strip() for text in texts):
        row = next(row for row, text in enumerate(texts) if not text.strip()) + 1
        raise ConfigError(f"the target {target!r} is missing in row {row}; leave such rows out")
    return tuple(sorted(set(texts)))


def _same_length(name: str, inputs: int, targets: int) -> None:
    if inputs != targets:
        raise ConfigError(f"{name} has {inputs} inputs and {targets} targets")


def listed(values: Iterable[Any], most: int = 12) -> str:
    """The first of some values, as text."""
    texts = [str(value) for value in values]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")
