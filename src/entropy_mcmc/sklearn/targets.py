"""What the caller gives as y beside rows that a fitted estimator predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_array, column_or_1d

from entropy_mcmc.errors import ConfigError

Doubles = npt.NDArray[np.float64]


def label_numbers(y: Any, classes: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Place of each label among the sorted classes of `fit`.

    >>> label_numbers(["b", "a"], np.array(["a", "b"])).tolist()
    [1, 0]
    """
    labels = column_or_1d(y)
    unknown = labels[~np.isin(labels, classes)]
    if len(unknown):
        raise ConfigError(
            f"y of calibrate must hold classes of fit, {classes.tolist()}, got "
            f"{unknown.tolist()[0]!r}; leave such rows out, or fit with rows of this class"
        )
    places: npt.NDArray[np.intp] = np.searchsorted(classes, labels)
    return places


def target_numbers(y: Any, outputs: int) -> Doubles:
    """Targets of a regression, (rows,), or (rows, outputs) where there are several.

    >>> target_numbers([[1], [2]], outputs=1).tolist()
    [1.0, 2.0]
    """
    values: Doubles = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    if values.size != len(values) * outputs:
        allowed = "(rows,)" if outputs == 1 else f"(rows, {outputs})"
        raise ConfigError(f"y must be {allowed}, as it was in fit, got {values.shape}; reshape it")
    return values if outputs > 1 else values.ravel()
