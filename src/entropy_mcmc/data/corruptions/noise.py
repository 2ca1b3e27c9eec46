"""Noise: Gaussian, shot, impulse and speckle. Images are float32 (N, H, W, C) on 0 … 1."""

from __future__ import annotations

import numpy as np

from entropy_mcmc.data.corruptions import severities
from entropy_mcmc.data.corruptions.random_fields import Draws, Floats


def gaussian_noise(images: Floats, severity: int, draws: Draws) -> Floats:
    """Add normal noise."""
    scale = severities.GAUSSIAN_NOISE[severity - 1]
    return images + np.float32(scale) * draws.normal(*images.shape[1:])


def shot_noise(images: Floats, severity: int, draws: Draws) -> Floats:
    """Count photons: a Poisson number for each value."""
    photons = np.float32(severities.SHOT_NOISE[severity - 1])
    return draws.poisson(images * photons) / photons


def impulse_noise(images: Floats, severity: int, draws: Draws) -> Floats:
    """Replace a fraction of the values by 0 or 1 (salt and pepper)."""
    amount = severities.IMPULSE_NOISE[severity - 1]
    number = draws.uniform(0, 1, *images.shape[1:])
    salted = np.where(number < amount / 2, np.float32(1), images)
    return np.where((number >= amount / 2) & (number < amount), np.float32(0), salted)


def speckle_noise(images: Floats, severity: int, draws: Draws) -> Floats:
    """Multiply by 1 + normal noise."""
    scale = severities.SPECKLE_NOISE[severity - 1]
    return images * (1 + np.float32(scale) * draws.normal(*images.shape[1:]))
