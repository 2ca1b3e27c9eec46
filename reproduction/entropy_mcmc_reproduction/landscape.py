"""The paper's landscape of two modes, ½N([−2,−1], ½I) + ½N([2,1], I), and its smoothed forms.

Smoothing by N(0, ηI) adds η to both variances, so that everything here is in closed form.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

SHARP, FLAT = (-2.0, -1.0), (2.0, 1.0)
VARIANCES = (0.5, 1.0)
REACH = math.hypot(*FLAT)  # of each mode from the origin


def density(points: Array, eta: float = 0.0) -> Array:
    """Density at points (…, 2).

    >>> float(density(np.array(SHARP)).round(4))
    0.1592
    """
    sharp, flat = (_part(points, mean, variance + eta) for mean, variance in _modes())
    return (sharp + flat) / 2


def _modes() -> list[tuple[tuple[float, float], float]]:
    return list(zip((SHARP, FLAT), VARIANCES, strict=True))


def _part(points: Array, mean: tuple[float, float], variance: float) -> Array:
    squares = np.square(points - np.array(mean)).sum(-1)
    part: Array = np.exp(-squares / (2 * variance)) / (2 * math.pi * variance)
    return part


def flat_mass(eta: float = 0.0) -> float:
    """Mass nearer the flat mode.

    >>> round(flat_mass(), 4), round(flat_mass(0.5), 4)
    (0.4941, 0.4894)
    """
    sharp, flat = (math.erf(REACH / math.sqrt(2 * (v + eta))) for v in VARIANCES)
    return (1 - sharp) / 4 + (1 + flat) / 4


def energy(theta: Tensor) -> Tensor:
    """−log of the density of one point, up to a constant."""
    logs = [
        -(theta - theta.new_tensor(m)).square().sum() / (2 * v) - math.log(v) for m, v in _modes()
    ]
    return -torch.logaddexp(logs[0], logs[1])


def nearer_flat(points: Tensor) -> Tensor:
    """Whether each of (…, 2) is nearer the flat mode than the sharp one."""
    return points @ points.new_tensor(FLAT) > 0
