r"""The coupling at which replicas diverge from a guide that moves in every k-th round only.

On a flat energy the mean of y replicas, which is :math:`\theta_a + D`, and the guide are a linear
map of (D, v, v_a), c = lr/(ηN) the coupling of one replica. A round is

.. math:: W \leftarrow W + yD, \qquad v \leftarrow \mu v - cD, \qquad D \leftarrow D + v

and the k-th is followed by :math:`v_a \leftarrow \mu v_a + cW`, :math:`D \leftarrow D - v_a`,
:math:`W \leftarrow 0`. (`baoab` is another map of the same eigenvalues.) The chain diverges where
one of these leaves the unit circle. At k = 1 that is c = 2(1+μ)/(y+1); without momentum it is
:math:`c = 1 - ((y-1)/(y+1))^{1/k}`; otherwise it has no closed form, and is found here.

On a curvature h the replicas are also drawn to the minimum, :math:`v \leftarrow v - \alpha
h(\theta_a+D)`, α = lr/N, so that their pull does not die away before the guide moves. With momentum
some curvatures then have a limit far below that of the flat energy: for y = 2, k = 50, μ = 0.9 it
is 0.04 instead of 3.5.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
GRID = 2000  # couplings looked at
LEAST = 0.01  # of the limit at k = 1, over k: the least of them
ROUNDING = 1e-9  # of an eigenvalue's modulus
CURVATURES = tuple(10 ** (-place / 4) for place in range(13))  # lr/N·h from 1 down to 0.001
COARSE = 400  # couplings looked at on each of them


@lru_cache(maxsize=64)
def critical_coupling(replicas: int, every: int, momentum: float) -> float:
    """The least c = lr/(ηN) at which replicas and their guide diverge on any energy.

    >>> round(critical_coupling(2, 1, 0.9), 3), round(critical_coupling(3, 2, 0.0), 3)
    (1.267, 0.293)
    """
    low, high = _range(replicas, every, momentum)
    for _ in range(3):  # each narrows the first crossing by the number of points
        grid = np.geomspace(low, high, GRID)
        beyond = growth(grid, replicas, every, momentum) > 1 + ROUNDING
        beyond[-1] = True
        first = int(beyond.argmax())
        low, high = float(grid[max(first - 1, 0)]), float(grid[first])
    return low


@lru_cache(maxsize=64)
def safe_coupling(replicas: int, every: int, momentum: float) -> float:
    """The least c, to a few per cent, at which they diverge on a curvature h of at most N/lr.

    >>> round(safe_coupling(2, 50, 0.9), 2)
    0.04
    """
    low, _ = _range(replicas, every, momentum)
    grid = np.geomspace(low, critical_coupling(replicas, every, momentum), COARSE)
    largest = [growth(grid, replicas, every, momentum, h) for h in CURVATURES]
    beyond = np.max(largest, axis=0) > 1 + ROUNDING
    beyond[-1] = True
    return float(grid[max(int(beyond.argmax()) - 1, 0)])


def _range(replicas: int, every: int, momentum: float) -> tuple[float, float]:
    """Couplings between which a limit is sought."""
    alone = 2 * (1 + momentum)  # beyond it a replica leaves a guide at rest
    return LEAST * alone / ((replicas + 1) * every), alone


def growth(
    couplings: Floats, replicas: int, every: int, momentum: float, curvature: float = 0.0
) -> Floats:
    """Largest modulus of an eigenvalue of k rounds and one move of the guide; curvature: lr/N·h."""
    one = np.ones_like(couplings)
    zero = 0 * one
    h = curvature * one
    # Columns: D, v, v_a, W, and θ_a, on which nothing else depends if the energy is flat.
    a_round = _matrices(
        [one - couplings - h, momentum * one, zero, zero, -h],
        [-couplings - h, momentum * one, zero, zero, -h],
        [zero, zero, one, zero, zero],
        [replicas * one, zero, zero, one, zero],
        [zero, zero, zero, zero, one],
    )
    guide = _matrices(
        [one, zero, -momentum * one, -couplings, zero],
        [zero, one, zero, zero, zero],
        [zero, zero, momentum * one, couplings, zero],
        [zero, zero, zero, zero, zero],
        [zero, zero, momentum * one, couplings, one],
    )
    size = 5 if curvature else 4
    maps = (guide @ np.linalg.matrix_power(a_round, every))[..., :size, :size]
    largest: Floats = np.abs(np.linalg.eigvals(maps)).max(-1)
    return largest


def _matrices(*rows: list[Floats]) -> Floats:
    return np.stack([np.stack(row, -1) for row in rows], -2)
