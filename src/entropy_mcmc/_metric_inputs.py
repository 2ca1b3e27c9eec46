"""Checks of what is handed to `metrics`: tensors or arrays in, float64 arrays or an error out.

A metric of a NaN, of logits or of labels that were counted from one is a number that looks right.
All of them are refused here, once, for every metric.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from entropy_mcmc.errors import ConfigError

Array: TypeAlias = torch.Tensor | npt.ArrayLike
Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

# Rows of a float32 softmax over 1000 classes sum to 1 within about 1e-6; logits miss by far more.
# Coarser dtypes are allowed their own rounding (bfloat16: 0.008).
ROW_SUM_TOLERANCE = 1e-4
WIDTH_BINS, MASS_BINS = 15, 10


def probabilities(name: str, value: Array, *, axes: tuple[str, ...]) -> Floats:
    """Return `value` as float64 probabilities over its last axis; `axes` names the axes."""
    array, resolution = _floats(name, value)
    _check_shape(name, array, axes)
    _check_finite(name, array)
    slack = max(ROW_SUM_TOLERANCE, resolution)
    low, high = array.min(), array.max()
    if low < -slack or high > 1 + slack:
        raise ConfigError(
            f"{name} must lie between 0 and 1, got values from {low:g} to {high:g}; "
            "if these are logits, apply softmax over the last axis first"
        )
    _check_row_sums(name, array, slack)
    return array.clip(0, 1) if low < 0 or high > 1 else array


def probabilities_and_labels(probs: Array, targets: Array) -> tuple[Floats, Integers]:
    """Return checked `(n, classes)` probabilities and their `(n,)` class indices."""
    checked = probabilities("probs", probs, axes=("n", "classes"))
    return checked, _labels(targets, *checked.shape)


def equal_width_bins(confidence: Floats, bins: int | None = None) -> Integers:
    """The bin of each confidence: bin k of `bins` (15) holds those in (k/bins, (k+1)/bins].

    >>> equal_width_bins(np.array([0.5, 0.51, 1.0]), 2).tolist()
    [0, 1, 1]
    """
    count = WIDTH_BINS if bins is None else bins
    return np.searchsorted(np.arange(1, count) / count, confidence, side="left")


def scores(name: str, value: Array) -> Floats:
    """Return one score per example; infinities are fine since only the order counts."""
    array, _ = _floats(name, value)
    _check_shape(name, array, ("n",))
    if np.isnan(array).any():
        raise ConfigError(_not_finite(name, array, np.isnan(array), "free of NaN"))
    return array


def same_shape(**values: Array) -> tuple[Floats, ...]:
    """Return finite float64 arrays of one common shape; nothing is broadcast in silence."""
    arrays = {name: _floats(name, value)[0] for name, value in values.items()}
    first, *others = arrays
    for name in others:
        if arrays[name].shape != arrays[first].shape:
            raise ConfigError(
                f"{name} must have the shape of {first}, {arrays[first].shape}, "
                f"got {arrays[name].shape}; reshape one of them, nothing is broadcast"
            )
    for name, array in arrays.items():
        if array.size == 0:
            raise ConfigError(f"{name} must hold at least one value, got shape {array.shape}")
        _check_finite(name, array)
    return tuple(arrays.values())


def _floats(name: str, value: Array) -> tuple[Floats, float]:
    """Return the values in float64, and the resolution of the dtype that they came in."""
    if isinstance(value, torch.Tensor):
        if value.is_complex() or value.dtype == torch.bool:
            raise _wrong_dtype(name, value.dtype, "real numbers", "convert it with .float()")
        resolution = torch.finfo(value.dtype).eps if value.is_floating_point() else 0.0
        return value.detach().cpu().double().numpy(), resolution
    array = _asarray(name, value)
    if array.dtype.kind not in "fiu":
        raise _wrong_dtype(name, array.dtype, "real numbers", "convert it with .astype(float)")
    resolution = float(np.finfo(array.dtype.name).eps) if array.dtype.kind == "f" else 0.0
    return array.astype(np.float64, copy=False), resolution


def _labels(value: Array, count: int, classes: int) -> Integers:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    array = _asarray("targets", value)
    if array.dtype.kind not in "iub" and array.size:
        raise _wrong_dtype("targets", array.dtype, "integers", "pass class indices, not one-hot")
    if array.shape != (count,):
        raise ConfigError(
            f"targets must have shape ({count},), one class index per row of probs, "
            f"got {array.shape}; one-hot targets become indices with argmax(1)"
        )
    if array.min() < 0 or array.max() >= classes:
        raise ConfigError(
            f"targets must lie between 0 and {classes - 1} for {classes} classes, got values from "
            f"{array.min()} to {array.max()}; count classes from 0 and drop ignored rows"
        )
    return array.astype(np.int64, copy=False)


def _asarray(name: str, value: npt.ArrayLike) -> npt.NDArray[np.generic]:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ConfigError(f"{name} must be a rectangular array, got {error}") from error


def _check_shape(name: str, array: Floats, axes: tuple[str, ...]) -> None:
    wanted = f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"
    if array.ndim != len(axes):
        hint = "; for two classes pass both columns, (1-p, p)" if len(axes) > 1 else ""
        raise ConfigError(f"{name} must have shape {wanted}, got {array.shape}{hint}")
    if array.size == 0:
        raise ConfigError(
            f"{name} must hold at least one value in shape {wanted}, got {array.shape}; "
            "check that the data set is not empty"
        )


def _check_finite(name: str, array: Floats) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        raise ConfigError(_not_finite(name, array, bad, "finite"))


def _not_finite(name: str, array: Floats, bad: npt.NDArray[np.bool_], allowed: str) -> str:
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"{name} must be {allowed}, got {array[where]} at {where} and {int(bad.sum())} such values "
        "in all; look for a diverged sample or an overflow in the model"
    )


def _check_row_sums(name: str, array: Floats, slack: float) -> None:
    sums = array.sum(axis=-1)
    worst = np.unravel_index(np.abs(sums - 1).argmax(), sums.shape)
    if abs(sums[worst] - 1) > slack:
        row = tuple(int(i) for i in worst)
        raise ConfigError(
            f"{name} must sum to 1 over its last axis within {slack:g}, got {sums[worst]:g} in row "
            f"{row}; apply softmax over the last axis, or divide each row by its sum"
        )


def _wrong_dtype(name: str, dtype: object, allowed: str, remedy: str) -> ConfigError:
    return ConfigError(f"{name} must hold {allowed}, got dtype {dtype}; {remedy}")
