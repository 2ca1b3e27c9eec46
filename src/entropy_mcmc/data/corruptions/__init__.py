"""The 19 corruption types of CIFAR-10-C at 5 severities, for any batch of uint8 images.

Own code with the published constants and no ImageMagick, OpenCV or scikit-image, so the pictures
are like the official ones but not equal to them: `frost` is procedural (no photographs), `spatter`
finds its edges by a gradient threshold. For published comparisons read the official arrays with
`load("cifar10-c")`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from entropy_mcmc.data.corruptions import blur, digital, noise, weather
from entropy_mcmc.data.corruptions.random_fields import Draws, Floats
from entropy_mcmc.data.official_files import CORRUPTION_FILES
from entropy_mcmc.errors import ConfigError, check_choice

Corruption = Callable[[Floats, int, Draws], Floats]

_CHUNK = 512


def names() -> tuple[str, ...]:
    """Return the 19 types: the 15 of the benchmark, then the 4 extra ones.

    >>> len(names()), names()[0]
    (19, 'gaussian_noise')
    """
    return CORRUPTION_FILES


def corrupt(
    images: Tensor, name: str, severity: int, seed: int = 0, *, indices: Sequence[int] | None = None
) -> Tensor:
    """Corrupt uint8 images (N, C, H, W), C 1 or 3, of at least 8 × 8 pixels.

    Args:
        images: The clean images.
        name: One of `names()`.
        severity: 1 … 5.
        seed: Of the randomness.
        indices: The number of each image in its set, by default 0, 1, …: what an image becomes
            depends on (seed, number, name, severity) only, so subsets give the same pictures.
    """
    check_choice("name", name, names())
    check_choice("severity", severity, (1, 2, 3, 4, 5))
    _check(images)
    numbers = np.arange(len(images)) if indices is None else np.asarray(indices, dtype=np.int64)
    if len(numbers) != len(images) or (numbers < 0).any():
        raise ConfigError(f"indices must be {len(images)} numbers from 0 on, got {len(numbers)}")
    kind = 8 * names().index(name) + severity
    result = torch.empty_like(images, device="cpu", memory_format=torch.contiguous_format)
    # In chunks: the float copies of a whole test set would not fit beside a network.
    for start in range(0, len(images), _CHUNK):
        part = slice(start, start + _CHUNK)
        draws = Draws(seed, numbers[part], kind)
        result[part] = _apply(images[part], _function(name), severity, draws)
    return result.to(images.device)


def _function(name: str) -> Corruption:
    for module in (noise, blur, weather, digital):
        if name in vars(module):
            function: Corruption = vars(module)[name]
            return function
    raise AssertionError(name)


def _apply(images: Tensor, function: Corruption, severity: int, draws: Draws) -> Tensor:
    pixels = images.cpu().permute(0, 2, 3, 1).contiguous().numpy()
    clean = pixels.astype(np.float32) / np.float32(255)
    changed = np.clip(function(clean, severity, draws), 0, 1) * 255
    # Truncated, as published; the small lift keeps exact byte values from rounding down.
    return torch.from_numpy(np.floor(changed + 1e-3).astype(np.uint8)).permute(0, 3, 1, 2)


def _check(images: Tensor) -> None:
    small = images.dim() == 4 and min(images.shape[2:]) < 8
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] not in (1, 3) or small:
        raise ConfigError(
            "images must be uint8 of shape (N, 1 or 3, H ≥ 8, W ≥ 8), got "
            f"{images.dtype} of shape {tuple(images.shape)}"
        )
