"""Loss on the plane through three states, and where samples fall on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entropy_mcmc.errors import ConfigError, check_count, check_not_negative
from entropy_mcmc.flatness.given_data import Data, Source
from entropy_mcmc.flatness.input_checks import checked
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    Refresh,
    State,
    load,
    mean_over,
    move_to,
    refresh_name,
    refreshed,
    restoring,
    state_vector,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Surface:
    """Loss on a grid; coordinates are Euclidean distances from the first point.

    `points` are the three states, `samples` the projections of the others, and `residuals` how
    far those are from the plane: a large residual means that the picture says little about it.
    """

    x: Array
    y: Array
    loss: Array
    points: Array
    samples: Array
    residuals: Array
    names: tuple[str, ...]
    batchnorm: str


def loss_surface(
    model: nn.Module,
    loss: Loss,
    data: Data,
    points: Sequence[State],
    *,
    samples: Mapping[str, State] | None = None,
    resolution: int = 21,
    margin: float = 0.3,
    refresh: Refresh = "fixed",
) -> Surface:
    """Loss on the plane through three states, `margin` of the larger extent beyond them all around.

    With `refresh="fixed"` the buffers are those of the first point everywhere.
    """
    if len(points) != 3:
        raise ConfigError(f"points must be three states, got {len(points)}")
    check_count("resolution", resolution, least=2)
    named = samples or {}
    origin, axes, corners = _plane([state_vector(model, p) for p in points])
    placed, residuals = _project([state_vector(model, s) for s in named.values()], origin, axes)
    shown = np.concatenate([corners, placed])
    # The same margin on all sides, so that three points almost on a line leave no thin strip.
    extra = check_not_negative("margin", margin) * float(np.ptp(shown, axis=0).max())
    x, y = (_axis(shown[:, i], extra, resolution) for i in (0, 1))
    with restoring(model):
        load(model, points[0])
        source = checked(model, loss, data)
        places = [(float(a), float(b)) for b in y for a in x]
        values = [_loss_at(model, loss, source, origin, axes, place, refresh) for place in places]
    grid = np.array(values).reshape(len(y), len(x))
    names = tuple(named)
    return Surface(x, y, grid, corners, placed, residuals, names, refresh_name(refresh))


def _plane(points: list[Tensor]) -> tuple[Tensor, Tensor, Array]:
    """Origin, two orthonormal rows, and the three points in these coordinates."""
    origin, first, second = points[0], points[1] - points[0], points[2] - points[0]
    u = first / first.norm()
    rest = second - (second @ u) * u
    if not float(rest.norm()) > 1e-5 * float(second.norm()):
        raise ConfigError("points must span a plane, got three states on one line")
    axes = torch.stack([u, rest / rest.norm()])
    corners, _ = _project(points, origin, axes)
    return origin, axes, corners


def _project(states: list[Tensor], origin: Tensor, axes: Tensor) -> tuple[Array, Array]:
    if not states:
        return np.zeros((0, 2)), np.zeros(0)
    offsets = torch.stack(states) - origin
    placed = offsets @ axes.T
    residuals = (offsets - placed @ axes).norm(dim=1)
    return np.asarray(placed.double().cpu()), np.asarray(residuals.double().cpu())


def _axis(values: Array, extra: float, resolution: int) -> Array:
    return np.linspace(values.min() - extra, values.max() + extra, resolution)


def _loss_at(
    model: nn.Module,
    loss: Loss,
    data: Source,
    origin: Tensor,
    axes: Tensor,
    place: tuple[float, float],
    refresh: Refresh,
) -> float:
    refresh_name(refresh)
    move_to(model, origin + place[0] * axes[0] + place[1] * axes[1])
    refreshed(model, refresh)
    return mean_over(model, loss, data)
