"""Quantiles of a mixture of Gaussians, or of Student's t."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from entropy_mcmc.errors import ConfigError, check_number
from entropy_mcmc.sklearn.noise_models import log_density

Doubles = npt.NDArray[np.float64]

LIKE = "pass probabilities like (0.1, 0.5, 0.9)"
MOST_STEPS = 60  # as many halvings would leave nothing of the bracket; Newton's steps need about 6
CLOSE = 1e-9  # of the smallest scale: a row whose step is this small is done


def check_quantiles(quantiles: Any) -> None:
    """Raise unless these are probabilities, at least one of them."""
    if not np.iterable(quantiles) or not len(quantiles):  # type: ignore[arg-type]
        raise ConfigError(f"quantiles must be several numbers, got {quantiles!r}; {LIKE}")
    for q in quantiles:
        if not 0 < check_number("quantiles", q) < 1:
            raise ConfigError(f"quantiles must be between 0 and 1, got {q!r}; {LIKE}")


def mixture_cdf(points: Doubles, means: Doubles, scales: Doubles, degrees: float) -> Doubles:
    """Share of each column's mixture below its point.

    >>> mixture_cdf(np.zeros(1), np.array([[-1.0], [1.0]]), np.ones((2, 1)), math.inf).tolist()
    [0.5]
    """
    from scipy.special import ndtr

    places = (points - means) / scales
    shares = ndtr(places) if math.isinf(degrees) else student_cdf(places, int(degrees))
    cdf: Doubles = shares.mean(axis=0)
    return cdf


def student_cdf(places: Doubles, degrees: int) -> Doubles:
    """CDF of Student's t with an even number of degrees of freedom, a polynomial in t²/(n + t²).

    Several times as fast as the incomplete beta function; right to 1e-15, not to as many digits.

    >>> student_cdf(np.array([0.0, 2.7764451]), 4).round(6).tolist()
    [0.5, 0.975]
    """
    total = degrees + places**2
    cosine = degrees / total
    series, factor = np.ones_like(places), 1.0
    power = np.ones_like(places)
    for k in range(1, degrees // 2):
        factor *= (2 * k - 1) / (2 * k)
        power *= cosine
        series += factor * power
    return 0.5 + 0.5 * series * places / np.sqrt(total)


def mixture_density(points: Doubles, means: Doubles, scales: Doubles, degrees: float) -> Doubles:
    """Density of each column's mixture at its point, never zero.

    >>> mixture_density(np.zeros(1), np.zeros((2, 1)), np.ones((2, 1)), math.inf).round(4).tolist()
    [0.3989]
    """
    squares = torch.from_numpy(((points - means) / scales) ** 2)
    densities = log_density(squares, degrees).exp().numpy() / scales
    density: Doubles = np.maximum(densities.mean(axis=0), np.finfo(np.float64).tiny)
    return density


def mixture_quantiles(
    means: Doubles, scales: Doubles, probability: float, degrees: float = math.inf
) -> Doubles:
    """The quantile of each column of `means` and `scales`, (components, rows) or broadcast to it.

    It lies between the smallest and the largest quantile of the components. Newton's steps find it
    there; where one would leave what is known to hold the quantile, that is halved instead.

    >>> mixture_quantiles(np.zeros((3, 1)), np.ones((3, 1)), 0.975).round(3).tolist()
    [1.96]
    """
    from scipy.special import ndtri, stdtrit

    z = ndtri(probability) if math.isinf(degrees) else stdtrit(degrees, probability)
    means, scales = np.broadcast_arrays(means, scales)
    parts = means + scales * z
    low, high = parts.min(axis=0), parts.max(axis=0)
    quantiles: Doubles = parts.mean(axis=0)
    open_rows = np.arange(len(quantiles))
    for _ in range(MOST_STEPS):
        points = quantiles[open_rows]
        missing = probability - mixture_cdf(points, means, scales, degrees)
        low, high = np.where(missing > 0, points, low), np.where(missing > 0, high, points)
        stepped = points + missing / mixture_density(points, means, scales, degrees)
        inside = (low < stepped) & (stepped < high)
        quantiles[open_rows] = np.where(inside, stepped, 0.5 * (low + high))
        go_on = np.abs(quantiles[open_rows] - points) > CLOSE * scales.min(axis=0)
        if not go_on.any():
            break
        open_rows, low, high = open_rows[go_on], low[go_on], high[go_on]
        means, scales = means[:, go_on], scales[:, go_on]
    return quantiles
