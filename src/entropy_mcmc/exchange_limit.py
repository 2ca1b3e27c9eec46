r"""The coupling at which replicas diverge from a guide that moves in every k-th round only.

On a flat energy the mean of y replicas, which is :math:`\theta_a + D`, and the guide are a linear
map of (D, v, v_a), c = lr/(ηN) the coupling of one replica. A round is

.. math:: W \leftarrow W + yD, \qquad v \leftarrow \mu v - cD, \qquad D \leftarrow D + v

and the k-th is followed by :math:`v_a \leftarrow \mu v_a + cW`, :math:`D \leftarrow D - v_a`,
:math:`W \leftarrow 0`. (`baoab` is another map of the same eigenvalues.) The chain diverges where
one of these leaves the unit circle. At k = 1 that is c = 2(1+μ)/(y+1); without momentum it is
:math:`c = 1 - ((y-1)/(y+1))^{1/k}`; otherwise it has no closed form, and is found here.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
GRID = 2000  # couplings looked at
LEAST = 0.01  # of the limit at k = 1, over k: the least of them
ROUNDING = 1e-9  # of an eigenvalue's modulus


@lru_cache(maxsize=64)
def critical_coupling(replicas: int, every: int, momentum: float) -> float:
    """The least c = lr/(ηN) at which replicas and their guide diverge on any energy.

    >>> round(critical_coupling(2, 1, 0.9), 3), round(critical_coupling(3, 2, 0.0), 3)
    (1.267, 0.293)
    """
    alone = 2 * (1 + momentum)  # beyond it a replica leaves a guide at rest
    low, high = LEAST * alone / ((replicas + 1) * every), alone
    for _ in range(3):  # each narrows the first crossing by the number of points
        grid = np.geomspace(low, high, GRID)
        beyond = growth(grid, replicas, every, momentum) > 1 + ROUNDING
        beyond[-1] = True
        first = int(beyond.argmax())
        low, high = float(grid[max(first - 1, 0)]), float(grid[first])
    return low


def growth(couplings: Floats, replicas: int, every: int, momentum: float) -> Floats:
    """Largest modulus of an eigenvalue of k rounds and one move of the guide."""
    one = np.ones_like(couplings)
    zero = 0 * one
    # Columns: D, v, v_a, W.
    a_round = _matrices(
        [one - couplings, momentum * one, zero, zero],
        [-couplings, momentum * one, zero, zero],
        [zero, zero, one, zero],
        [replicas * one, zero, zero, one],
    )
    guide = _matrices(
        [one, zero, -momentum * one, -couplings],
        [zero, one, zero, zero],
        [zero, zero, momentum * one, couplings],
        [zero, zero, zero, zero],
    )
    maps = guide @ np.linalg.matrix_power(a_round, every)
    largest: Floats = np.abs(np.linalg.eigvals(maps)).max(-1)
    return largest


def _matrices(*rows: list[Floats]) -> Floats:
    return np.stack([np.stack(row, -1) for row in rows], -2)
