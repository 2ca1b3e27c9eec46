"""Weather: snow, frost, fog and spatter. Images are float32 (N, H, W, C) on 0 … 1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from entropy_mcmc.data.corruptions import severities
from entropy_mcmc.data.corruptions.blur import clipped_zoom, gaussian, smear
from entropy_mcmc.data.corruptions.random_fields import Draws, Floats

Doubles = npt.NDArray[np.float64]

_LUMA: Floats = np.array([0.299, 0.587, 0.114], dtype=np.float32)
_WATER: Floats = np.array([175, 238, 238], dtype=np.float32) / np.float32(255)
_MUD: Floats = np.array([63, 42, 20], dtype=np.float32) / np.float32(255)
_ICE = np.array([0.86, 0.93, 1.0], dtype=np.float32)


def grey(images: Floats) -> Floats:
    """Return the luma (N, H, W, 1)."""
    luma: Floats = images @ _LUMA[: images.shape[-1]] if images.shape[-1] == 3 else images[..., 0]
    return luma[..., None]


def fog(images: Floats, severity: int, draws: Draws) -> Floats:
    """Add a plasma fractal and scale back to the image's largest value."""
    strength, decay = severities.FOG[severity - 1]
    height, width = images.shape[1:3]
    haze = plasma(max(height, width), decay, draws)[:, :height, :width, None]
    peak: Floats = images.max(axis=(1, 2, 3), keepdims=True)
    return (images + np.float32(strength) * haze) * peak / (peak + np.float32(strength))


def plasma(side: int, decay: float, draws: Draws) -> Floats:
    """Diamond-square fractals on a torus, scaled to 0 … 1 (N, S, S), S the next power of two."""
    size = 1 << max(side - 1, 1).bit_length()
    count = len(draws.uniform(0, 1))
    field = np.zeros((count, size, size), dtype=np.float64)
    step, wobble = size, 100.0
    while step >= 2:
        half = step // 2
        # The published noise is wobble × uniform(−wobble, wobble): quadratic in wobble.
        reach = wobble * wobble
        corners = field[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=1)
        centres = (pairs + np.roll(pairs, -1, axis=2)) / 4
        field[:, half::step, half::step] = centres + draws.uniform(
            -reach, reach, *centres.shape[1:]
        )
        middle = field[:, half::step, half::step]
        across = middle + np.roll(middle, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        field[:, ::step, half::step] = across / 4 + draws.uniform(-reach, reach, *across.shape[1:])
        along = middle + np.roll(middle, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        field[:, half::step, ::step] = along / 4 + draws.uniform(-reach, reach, *along.shape[1:])
        step, wobble = half, wobble / decay
    return _stretched(field).astype(np.float32)


def _stretched(field: Doubles) -> Doubles:
    raised: Doubles = field - field.min(axis=(1, 2), keepdims=True)
    stretched: Doubles = raised / raised.max(axis=(1, 2), keepdims=True)
    return stretched


def frost(images: Floats, severity: int, draws: Draws) -> Floats:
    """Lay ice over the image: PROCEDURAL, not the published photographs.

    CIFAR-10-C blends in crops of six photographs of frosted windows, which are not part of this
    library. Here the ice is drawn: crystal needles in three directions on a cloudy ground, pale
    blue, with the published blending weights. Error rates under this frost are not comparable
    with published ones.
    """
    keep, cover = severities.FROST[severity - 1]
    ice = _ice(images.shape[1], images.shape[2], draws)[..., None]
    colour = _ICE if images.shape[-1] == 3 else np.ones(images.shape[-1], dtype=np.float32)
    return np.float32(keep) * images + np.float32(cover) * ice * colour


def _ice(height: int, width: int, draws: Draws) -> Floats:
    ground = plasma(max(height, width), 2.0, draws)[:, :height, :width]
    seeds = np.maximum(draws.normal(height, width) - 1.6, 0)[..., None]
    turn = draws.uniform(0, 60)
    needles = sum(
        smear(seeds, 5, 4.0, turn + offset) + smear(seeds, 5, 4.0, turn + offset + 180)
        for offset in (0.0, 60.0, 120.0)
    )
    return np.clip(0.25 + 0.55 * ground + 2.5 * np.asarray(needles)[..., 0], 0, 1)


def snow(images: Floats, severity: int, draws: Draws) -> Floats:
    """Whiten the image and let two layers of streaks fall over it."""
    mean, deviation, zoom, threshold, radius, sigma, keep = severities.SNOW[severity - 1]
    height, width = images.shape[1:3]
    flakes = np.float32(mean) + np.float32(deviation) * draws.normal(height, width)
    flakes = clipped_zoom(flakes[..., None], zoom)
    flakes = np.floor(np.clip(np.where(flakes < threshold, 0, flakes), 0, 1) * 255) / 255
    streaks = smear(flakes.astype(np.float32), radius, sigma, draws.uniform(-135, -45))
    pale = np.maximum(images, grey(images) * 1.5 + 0.5)
    white = np.float32(keep) * images + np.float32(1 - keep) * pale
    snowy: Floats = white + streaks + streaks[:, ::-1, ::-1]
    return snowy


def spatter(images: Floats, severity: int, draws: Draws) -> Floats:
    """Splash water (severity 1 to 3) or mud (4 and 5) on the lens."""
    mean, deviation, sigma, threshold, strength, mud = severities.SPATTER[severity - 1]
    noise = np.float32(mean) + np.float32(deviation) * draws.normal(*images.shape[1:3])
    liquid = gaussian(noise, sigma)
    liquid = np.where(liquid < threshold, np.float32(0), liquid).astype(np.float32)
    if mud:
        cover = gaussian((liquid > threshold).astype(np.float32), strength)
        cover = np.where(cover < 0.8, np.float32(0), cover)[..., None]
        muddy: Floats = images * (1 - cover) + cover * _tint(_MUD, images.shape[-1])
        return muddy
    drops = _relief(liquid) * np.float32(strength)
    return images + drops[..., None] * _tint(_WATER, images.shape[-1])


def _tint(colour: Floats, channels: int) -> Floats:
    return colour if channels == 3 else np.full(1, colour.mean(), dtype=np.float32)


def _relief(liquid: Floats) -> Floats:
    # Published: edges, distance to them, histogram equalisation, an emboss kernel that lights
    # drops from the upper left. Edges are found by a threshold of the gradient, not by Canny.
    from scipy.ndimage import correlate, uniform_filter

    distance = np.stack([_edge_distance(layer) for layer in np.floor(liquid * 255)])
    level = uniform_filter(np.minimum(distance, 20), (1, 3, 3), mode="mirror").astype(np.uint8)
    even = np.stack([_equalised(layer) for layer in level])
    kernel = np.array([[[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]], dtype=np.float32)
    emboss = np.clip(correlate(even, kernel, mode="mirror"), 0, 255)
    lit = liquid * uniform_filter(emboss, (1, 3, 3), mode="mirror")
    peak = lit.max(axis=(1, 2), keepdims=True)
    # An image without a drop stays as it is (0 / 0 in the published code).
    relief: Floats = np.divide(lit, peak, out=np.zeros_like(lit), where=peak > 0)
    return relief


def _edge_distance(layer: Floats) -> Floats:
    from scipy.ndimage import distance_transform_edt, sobel

    gradient = np.abs(sobel(layer, 0, mode="mirror")) + np.abs(sobel(layer, 1, mode="mirror"))
    flat = gradient <= 150
    if flat.all():
        return np.full(layer.shape, 20, dtype=np.float32)
    distance: Floats = distance_transform_edt(flat).astype(np.float32)
    return distance


def _equalised(layer: npt.NDArray[np.uint8]) -> Floats:
    counts = np.bincount(layer.ravel(), minlength=256)
    total = counts.cumsum()
    lowest = counts[counts > 0][0]
    if total[-1] == lowest:
        return layer.astype(np.float32)
    table = np.rint(np.clip(total - lowest, 0, None) * 255 / (total[-1] - lowest))
    even: Floats = table[layer].astype(np.float32)
    return even
