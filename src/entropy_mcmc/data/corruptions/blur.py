"""Blur: defocus, glass, motion, zoom and Gaussian. Images are float32 (N, H, W, C) on 0 … 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from entropy_mcmc.data.corruptions import severities
from entropy_mcmc.data.corruptions.random_fields import Draws, Floats


def gaussian(images: Floats, sigma: float, truncate: float = 4.0) -> Floats:
    """Smooth axes 1 and 2 with a Gaussian, edges repeated."""
    from scipy.ndimage import gaussian_filter1d

    if sigma * truncate < 0.5:  # the kernel is a single tap
        return images
    rows = gaussian_filter1d(images, sigma, axis=1, mode="nearest", truncate=truncate)
    smooth: Floats = gaussian_filter1d(rows, sigma, axis=2, mode="nearest", truncate=truncate)
    return smooth


def gaussian_blur(images: Floats, severity: int, draws: Draws) -> Floats:
    """Smooth with a Gaussian."""
    return gaussian(images, severities.GAUSSIAN_BLUR[severity - 1])


def defocus_blur(images: Floats, severity: int, draws: Draws) -> Floats:
    """Convolve with a softened disk, edges mirrored."""
    from scipy.ndimage import correlate

    kernel = disk(*severities.DEFOCUS_BLUR[severity - 1])
    blurred: Floats = correlate(images, kernel[None, :, :, None], mode="mirror")
    return blurred


def disk(radius: float, sigma: float) -> Floats:
    """Return a disk of total 1, softened by a 3 × 3 Gaussian.

    >>> disk(0.3, 0.4).shape
    (5, 5)
    """
    from scipy.ndimage import correlate

    reach = math.floor(radius) + 2
    axis = np.arange(-reach, reach + 1)
    shape = (axis[:, None] ** 2 + axis**2 <= radius**2).astype(np.float32)
    taps = np.exp(-0.5 * (np.arange(-1, 2) / sigma) ** 2)
    taps = (taps / taps.sum()).astype(np.float32)
    soft: Floats = correlate(shape / shape.sum(), taps[:, None] * taps, mode="constant")
    return soft


def glass_blur(images: Floats, severity: int, draws: Draws) -> Floats:
    """Smooth, take each pixel from a near one, smooth again.

    The published loop reads as an exchange of two pixels, but it exchanges views of one array and
    so copies the second over the first; what it does is followed, not what it says (not compared
    with the official arrays). Its order, from
    the lower right with sources above and to the left, lets every copy see the original: the
    loop is one gather for each round.
    """
    sigma, reach, rounds = severities.GLASS_BLUR[severity - 1]
    count, height, width = images.shape[:3]
    pixels = np.floor(gaussian(images, sigma) * np.float32(255)) / np.float32(255)
    moving = np.zeros((height, width), dtype=np.bool_)
    moving[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1] = True
    each = np.arange(count)[:, None, None]
    for _ in range(rounds):
        shifts = np.floor(draws.uniform(-reach, reach, 2, height, width)).astype(np.int64) * moving
        rows = np.arange(height)[:, None] + shifts[:, 0]
        columns = np.arange(width) + shifts[:, 1]
        pixels = pixels[each, rows, columns]
    return gaussian(pixels, sigma)


def motion_blur(images: Floats, severity: int, draws: Draws) -> Floats:
    """Smear along a direction within 45° of the horizontal."""
    radius, sigma = severities.MOTION_BLUR[severity - 1]
    return smear(images, radius, sigma, draws.uniform(-45, 45))


def smear(images: Floats, radius: int, sigma: float, degrees: Floats) -> Floats:
    """Average 2·radius + 1 points behind each pixel, with the weights of half a Gaussian.

    Modelled on ImageMagick's motion blur (points rounded to pixels, edges repeated), but never
    compared with its output.
    """
    height, width = images.shape[1:3]
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2)).astype(np.float32)
    weights /= weights.sum()
    angle = np.deg2rad(degrees.astype(np.float64))[:, None]
    down, right = (_rounded(steps * turn(angle)) for turn in (np.sin, np.cos))
    each = np.arange(len(images))[:, None, None]
    result = np.zeros_like(images)
    for step, weight in enumerate(weights):
        rows = np.clip(np.arange(height) + down[:, step, None], 0, height - 1)
        columns = np.clip(np.arange(width) + right[:, step, None], 0, width - 1)
        result += weight * images[each, rows[:, :, None], columns[:, None, :]]
    return result


def _rounded(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.ceil(values - 0.5).astype(np.int64)


def zoom_blur(images: Floats, severity: int, draws: Draws) -> Floats:
    """Average the image with its enlargements by 0, 1, 2, … %."""
    count = severities.ZOOM_BLUR[severity - 1]
    total = images.copy()
    for percent in range(count):
        total += clipped_zoom(images, 1 + percent / 100)
    return total / np.float32(count + 1)


def clipped_zoom(images: Floats, factor: float) -> Floats:
    """Enlarge the centre by `factor`, linearly, and cut back to the size.

    The centre is cut out first and its side rounded up, as published, so that the corners of
    the cut fall on the corners of the enlargement. One sparse matrix per axis does all images.
    """
    rows = _zoom_matrix(images.shape[1], factor)
    columns = _zoom_matrix(images.shape[2], factor)
    wide = np.einsum("ij,njwc->niwc", rows, images, optimize=True)
    zoomed: Floats = np.einsum("ij,nhjc->nhic", columns, wide, optimize=True)
    return zoomed


def _zoom_matrix(side: int, factor: float) -> Floats:
    cut = math.ceil(side / factor)
    enlarged = round(cut * factor)
    first, trim = (side - cut) // 2, (enlarged - side) // 2
    at = np.arange(trim, trim + side) * ((cut - 1) / (enlarged - 1)) + first
    low = np.minimum(np.floor(at).astype(np.int64), first + cut - 1)
    part = at - low
    matrix = np.zeros((side, side), dtype=np.float32)
    matrix[np.arange(side), low] += 1 - part
    matrix[np.arange(side), np.minimum(low + 1, side - 1)] += part
    return matrix
