"""What the caller gives as X → a list of columns, of float64 or of objects (categories)."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.utils.validation import check_array, validate_data

from entropy_mcmc.errors import ConfigError

Column = npt.NDArray[Any]


def read_columns(estimator: Any, x: Any, *, reset: bool) -> list[Column]:
    """Columns of a data frame or of an array, checked as scikit-learn does.

    NaN is a missing value, infinity is refused. Strings, pandas categories and objects that are not
    all numbers become categories; numbers and booleans stay numbers.
    """
    if not has_categories(x):
        numbers = validate_data(
            estimator, x, dtype=np.float64, order="C", reset=reset, ensure_all_finite="allow-nan"
        )
        return list(numbers.T)
    validate_data(estimator, x, skip_check_array=True, reset=reset)
    columns = [as_column(name, values) for name, values in named_columns(x)]
    rows = {len(column) for column in columns}
    if not columns or len(rows) != 1 or not rows.pop():
        raise ConfigError(f"X must have at least one column and one row, got {np.shape(x)}")
    return columns


def has_categories(x: Any) -> bool:
    """Whether a column of X is not plain numbers; sparse matrices never have any."""
    if issparse(x):
        return False
    if hasattr(x, "columns") and hasattr(x, "dtypes"):
        return any(kind_of(dtype) not in "iufbc" for dtype in x.dtypes)
    array = x if hasattr(x, "dtype") else np.asarray(x, dtype=object)
    if kind_of(array.dtype) not in "OUST" or np.ndim(array) != 2:
        return False
    return kind_of(array.dtype) != "O" or not all(map(is_number, np.asarray(array).flat))


def kind_of(dtype: Any) -> str:
    """Kind of a dtype as numpy names it; "O" where it has none."""
    return str(getattr(dtype, "kind", "O"))


def is_number(value: Any) -> bool:
    """Whether an object is a number, or missing."""
    return value is None or isinstance(value, Number | np.bool_)


def names_of(x: Any) -> list[Any] | None:
    """Names of the columns of a frame; an array has none."""
    return list(x.columns) if hasattr(x, "columns") and hasattr(x, "dtypes") else None


def named_columns(x: Any) -> list[tuple[Any, Any]]:
    """Names and values of the columns of a frame, or numbers and values of those of an array."""
    if hasattr(x, "columns") and hasattr(x, "dtypes"):
        return [(name, x[name]) for name in x.columns]
    return list(enumerate(np.asarray(x, dtype=object).T))


def as_column(name: Any, values: Any) -> Column:
    """A column as float64 with NaN for missing, or as objects."""
    kind = kind_of(values.dtype)
    if kind in "Mm":
        raise ConfigError(
            f"column {name!r} must hold numbers or categories, got dates or durations; convert "
            f"it, for example to days since a date"
        )
    if kind == "c":
        raise ValueError(f"Complex data not supported: column {name!r}")
    if kind in "iufb":
        return finite(name, as_floats(values))
    objects = np.asarray(values, dtype=object)
    if kind == "O" and not is_category(values) and all(map(is_number, objects)):
        return finite(name, objects.astype(np.float64))
    return objects


def is_category(values: Any) -> bool:
    """Whether a column has pandas' categorical dtype, also of numbers."""
    return hasattr(values.dtype, "categories")


def as_floats(values: Any) -> Column:
    """Numbers as float64; missing ones of pandas' own types as NaN."""
    if isinstance(values, np.ndarray):
        return values.astype(np.float64)
    if isinstance(values.dtype, np.dtype) or not hasattr(values, "to_numpy"):
        return np.asarray(values, dtype=np.float64)
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))


def finite(name: Any, values: Column) -> Column:
    """The column, if it holds no infinity."""
    how: dict[str, Any] = {"ensure_2d": False, "ensure_all_finite": "allow-nan"}
    checked: Column = check_array(values, dtype=np.float64, input_name=str(name), **how)
    return checked
