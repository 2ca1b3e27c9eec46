r"""Loss and error along straight lines in parameter space (the paper's Fig. 5).

.. math:: \theta_\delta = (1-\delta/\|\theta-\theta_\epsilon\|)\,\theta
          + (\delta/\|\theta-\theta_\epsilon\|)\,\theta_\epsilon
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entropy_mcmc.errors import ConfigError, check_choice, check_count
from entropy_mcmc.flatness.given_data import Data, Source
from entropy_mcmc.flatness.input_checks import checked, checked_data
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    Refresh,
    State,
    classification_error,
    generator,
    load,
    mean_over,
    move_to,
    parameters,
    refresh_name,
    refreshed,
    restoring,
    state_vector,
    unflatten,
    vector,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Interpolation:
    """Training loss and test error, one row per direction, one column per distance.

    `unit` says what a distance of 1 is, `batchnorm` which statistics were used on the way.
    """

    distances: Array
    loss: Array
    error: Array | None
    unit: str
    batchnorm: str

    @property
    def mean_loss(self) -> Array:
        """Mean over the directions."""
        return np.asarray(self.loss.mean(0))

    @property
    def spread(self) -> Array:
        """Standard deviation of the loss over the directions (0 for one direction)."""
        return np.asarray(self.loss.std(0, ddof=1 if len(self.loss) > 1 else 0))


def random_direction(
    model: nn.Module, generator: torch.Generator, normalise: str = "euclidean"
) -> Tensor:
    """A random flat direction: of length 1, or filter by filter as long as the model's own.

    With `normalise="filter"` each output row of a weight gets the norm of that row in θ, and
    biases and norm parameters (one dimension) do not move: networks that differ only by the
    scale of their filters become comparable.
    """
    check_choice("normalise", normalise, ("euclidean", "filter"))
    point = vector(model)
    raw = torch.randn(point.numel(), generator=generator).to(point)
    if normalise == "euclidean":
        return torch.nn.functional.normalize(raw, dim=0)
    noise = unflatten(model, raw)
    return torch.cat([_like(noise[n], p.detach()) for n, p in parameters(model).items()])


def _like(noise: Tensor, weight: Tensor) -> Tensor:
    if weight.ndim < 2:
        return torch.zeros_like(weight).reshape(-1)
    lengths = torch.linalg.vector_norm(weight.flatten(1), dim=1, keepdim=True)
    rows: Tensor = torch.nn.functional.normalize(noise.flatten(1), dim=1) * lengths
    return rows.reshape(-1)


def interpolate_random(
    model: nn.Module,
    loss: Loss,
    data: Data,
    distances: Sequence[float],
    *,
    directions: int = 10,
    normalise: str = "euclidean",
    test: Data | None = None,
    error: Loss = classification_error,
    refresh: Refresh = "fixed",
    seed: int | None = 0,
) -> Interpolation:
    """Loss along lines from θ in random directions; `error` is measured on `test` if given.

    `refresh` is "fixed" (the model's own batch-norm statistics everywhere) or a function of the
    model that re-estimates them at every point.
    """
    draws = generator(seed)
    lines = [
        random_direction(model, draws, normalise)
        for _ in range(check_count("directions", directions))
    ]
    scales = np.asarray(distances, dtype=np.float64)
    unit = "Euclidean distance" if normalise == "euclidean" else "norm of each filter"
    start = vector(model)
    with restoring(model):
        sets = _checked_sets(model, loss, data, test)
        rows = [_along(model, loss, sets, start, v, scales, error, refresh) for v in lines]
    return _result(scales, rows, unit, refresh)


def interpolate_between(
    model: nn.Module,
    loss: Loss,
    data: Data,
    start: State,
    end: State,
    *,
    fractions: Iterable[float] = tuple(np.linspace(0, 1, 21)),
    test: Data | None = None,
    error: Loss = classification_error,
    refresh: Refresh = "fixed",
) -> Interpolation:
    """Loss along the line from one state to another, such as θ and θ_a, and beyond outside [0, 1].

    With `refresh="fixed"` the buffers are those of `start` on the whole line, the end included:
    with batch norm, pass a function that re-estimates them.
    """
    origin = state_vector(model, start)
    gap = state_vector(model, end) - origin
    length = float(gap.norm())
    if length == 0:
        raise ConfigError("start and end must differ, got the same parameters twice")
    scales = np.asarray(list(fractions), dtype=np.float64) * length
    with restoring(model):
        load(model, start)
        sets = _checked_sets(model, loss, data, test)
        row = _along(model, loss, sets, origin, gap / length, scales, error, refresh)
    return _result(scales, [row], "Euclidean distance", refresh)


_Row = tuple[list[float], list[float]]
_Sets = tuple[Source, Source | None]  # training and test data


def _checked_sets(model: nn.Module, loss: Loss, data: Data, test: Data | None) -> _Sets:
    return checked(model, loss, data), None if test is None else checked_data(model, test)


def _along(
    model: nn.Module,
    loss: Loss,
    sets: _Sets,
    origin: Tensor,
    direction: Tensor,
    scales: Array,
    error: Loss,
    refresh: Refresh,
) -> _Row:
    losses, errors = [], []
    refresh_name(refresh)
    for scale in scales:
        move_to(model, origin + float(scale) * direction)
        refreshed(model, refresh)
        losses.append(mean_over(model, loss, sets[0]))
        if sets[1] is not None:
            errors.append(mean_over(model, error, sets[1]))
    return losses, errors


def _result(scales: Array, rows: list[_Row], unit: str, refresh: Refresh) -> Interpolation:
    errors = np.array([row[1] for row in rows]) if rows[0][1] else None
    return Interpolation(
        scales, np.array([row[0] for row in rows]), errors, unit, refresh_name(refresh)
    )
