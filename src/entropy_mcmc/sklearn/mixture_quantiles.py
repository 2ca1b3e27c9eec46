"""Quantiles of a mixture of Gaussians."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

HALVINGS = 45  # of a bracket of a few standard deviations: far below any use of a quantile


def mixture_quantiles(means: Doubles, stds: Doubles, probability: float) -> Doubles:
    """The quantile of each column of `means` (components, rows), component i with `stds[i]`.

    It lies between the smallest and the largest quantile of the components; bisection does the
    rest.

    >>> mixture_quantiles(np.zeros((3, 1)), np.ones(3), 0.975).round(3).tolist()
    [1.96]
    """
    from scipy.special import ndtr, ndtri

    parts = means + stds[:, None] * ndtri(probability)
    low, high = parts.min(axis=0), parts.max(axis=0)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        below = ndtr((middle - means) / stds[:, None]).mean(axis=0) < probability
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    quantiles: Doubles = 0.5 * (low + high)
    return quantiles
