"""Digital: brightness, contrast, elastic, pixelate, JPEG, saturate. float32 (N, H, W, C), 0 … 1."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from entropy_mcmc.data.corruptions import severities
from entropy_mcmc.data.corruptions.random_fields import Draws, Floats

if TYPE_CHECKING:
    from PIL.Image import Image

_TINY = np.float32(1e-6)


def contrast(images: Floats, severity: int, draws: Draws) -> Floats:
    """Shrink the distance from each channel's mean."""
    mean: Floats = images.mean(axis=(1, 2), keepdims=True)
    return (images - mean) * np.float32(severities.CONTRAST[severity - 1]) + mean


def brightness(images: Floats, severity: int, draws: Draws) -> Floats:
    """Raise the value of HSV."""
    value: Floats = images.max(axis=-1, keepdims=True)
    raised = np.minimum(value + np.float32(severities.BRIGHTNESS[severity - 1]), 1)
    # With hue and saturation fixed, RGB is proportional to the value; black has neither: grey.
    lit: Floats = np.where(value > 0, images * raised / np.maximum(value, _TINY), raised)
    return lit


def saturate(images: Floats, severity: int, draws: Draws) -> Floats:
    """Scale and shift the saturation of HSV; a grey pixel has hue 0 and so turns red."""
    factor, added = severities.SATURATE[severity - 1]
    value: Floats = images.max(axis=-1, keepdims=True)
    chroma: Floats = value - images.min(axis=-1, keepdims=True)
    old = chroma / np.maximum(value, _TINY)
    new: Floats = np.clip(old * np.float32(factor) + np.float32(added), 0, 1)
    # With hue and value fixed, the distance from the value is proportional to the saturation.
    pure = np.where(
        chroma > 0, (value - images) / np.maximum(chroma, _TINY), _red(images.shape[-1])
    )
    coloured: Floats = value * (1 - new * pure)
    return coloured


def _red(channels: int) -> Floats:
    return np.array([0, 1, 1] if channels == 3 else [0] * channels, dtype=np.float32)


def jpeg_compression(images: Floats, severity: int, draws: Draws) -> Floats:
    """Save and reload as JPEG."""
    from PIL import Image as pillow

    quality = severities.JPEG_COMPRESSION[severity - 1]

    def one(picture: Image) -> Image:
        buffer = BytesIO()
        picture.save(buffer, "JPEG", quality=quality)
        return pillow.open(buffer)

    return np.stack([_array(one(picture)) for picture in _pictures(images)]).reshape(images.shape)


def pixelate(images: Floats, severity: int, draws: Draws) -> Floats:
    """Shrink and enlarge by averaging boxes."""
    from PIL import Image as pillow

    height, width = images.shape[1:3]
    part = severities.PIXELATE[severity - 1]
    small, full = (int(width * part), int(height * part)), (width, height)
    box = pillow.Resampling.BOX
    rows = [_array(picture.resize(small, box).resize(full, box)) for picture in _pictures(images)]
    return np.stack(rows).reshape(images.shape)


def _pictures(images: Floats) -> list[Image]:
    from PIL import Image as pillow

    pixels = np.rint(images * 255).astype(np.uint8)
    return [pillow.fromarray(image[..., 0] if image.shape[-1] == 1 else image) for image in pixels]


def _array(picture: Image) -> Floats:
    return np.asarray(picture, dtype=np.float32) / np.float32(255)


def elastic_transform(images: Floats, severity: int, draws: Draws) -> Floats:
    """Jitter three points (an affine map), then displace the pixels smoothly."""
    height, width = images.shape[1:3]
    shift, smooth, jitter = (
        min(height, width) * c for c in severities.ELASTIC_TRANSFORM[severity - 1]
    )
    moved = _sample(images, _affine_grid(height, width, jitter, draws))
    noise = draws.uniform(-1, 1, 2, height, width)
    smoothed = np.stack([gaussian_reflected(noise[:, axis], smooth) for axis in (0, 1)], axis=1)
    grid = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"))
    return _sample(moved, grid + np.float32(shift) * smoothed)


def gaussian_reflected(field: Floats, sigma: float) -> Floats:
    """Smooth axes 1 and 2 with a Gaussian cut at 3 sigma, edges reflected."""
    from scipy.ndimage import gaussian_filter

    if sigma == 0:
        return field
    smooth: Floats = gaussian_filter(field, (0, sigma, sigma), mode="reflect", truncate=3)
    return smooth


def _affine_grid(height: int, width: int, jitter: float, draws: Draws) -> npt.NDArray[np.float64]:
    # Each image gets the affine map that takes its jittered points back to the regular ones.
    centre, arm = np.array([width // 2, height // 2]), min(height, width) // 3
    points = centre + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    target = points + draws.uniform(-jitter, jitter, 3, 2)
    lifted = np.concatenate([target, np.ones((*target.shape[:2], 1))], axis=2)
    back = np.linalg.solve(lifted, np.broadcast_to(points.astype(np.float64), target.shape))
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    places = np.stack([x, y, np.ones_like(x)], axis=-1) @ back[:, None]
    return np.moveaxis(places.astype(np.float64), -1, 1)[:, ::-1]


def _sample(images: Floats, grid: npt.NDArray[np.floating]) -> Floats:
    # Linear interpolation at (row, column) grids (N, 2, H, W), edges mirrored.
    height, width = images.shape[1:3]
    low = np.floor(grid).astype(np.int64)
    part = (grid - low).astype(np.float32)[..., None]
    each = np.arange(len(images))[:, None, None]
    top, bottom = (_mirrored(low[:, 0] + k, height) for k in (0, 1))
    left, right = (_mirrored(low[:, 1] + k, width) for k in (0, 1))
    down, across = part[:, 0], part[:, 1]
    upper = images[each, top, left] * (1 - across) + images[each, top, right] * across
    lower = images[each, bottom, left] * (1 - across) + images[each, bottom, right] * across
    sampled: Floats = upper * (1 - down) + lower * down
    return sampled


def _mirrored(places: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    period = max(2 * (size - 1), 1)
    inside = np.abs(places) % period
    mirrored: npt.NDArray[np.int64] = np.minimum(inside, period - inside)
    return mirrored
