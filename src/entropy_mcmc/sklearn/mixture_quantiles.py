"""Quantiles of a mixture of Gaussians, or of Student's t."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

HALVINGS = 45  # of a bracket of a few standard deviations: far below any use of a quantile


def mixture_cdf(points: Doubles, means: Doubles, scales: Doubles, degrees: float) -> Doubles:
    """Share of each column's mixture below its point.

    >>> mixture_cdf(np.zeros(1), np.array([[-1.0], [1.0]]), np.ones((2, 1)), math.inf).tolist()
    [0.5]
    """
    from scipy.special import ndtr, stdtr

    places = (points - means) / scales
    shares = ndtr(places) if math.isinf(degrees) else stdtr(degrees, places)
    cdf: Doubles = shares.mean(axis=0)
    return cdf


def mixture_quantiles(
    means: Doubles, scales: Doubles, probability: float, degrees: float = math.inf
) -> Doubles:
    """The quantile of each column of `means` and `scales`, (components, rows) or broadcast to it.

    It lies between the smallest and the largest quantile of the components; bisection does the
    rest.

    >>> mixture_quantiles(np.zeros((3, 1)), np.ones((3, 1)), 0.975).round(3).tolist()
    [1.96]
    """
    from scipy.special import ndtri, stdtrit

    z = ndtri(probability) if math.isinf(degrees) else stdtrit(degrees, probability)
    parts = means + scales * z
    low, high = parts.min(axis=0), parts.max(axis=0)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        below = mixture_cdf(middle, means, scales, degrees) < probability
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    quantiles: Doubles = 0.5 * (low + high)
    return quantiles
