"""Random crop and flip of a whole batch at once: a pure function of (seed, step, row)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from entropy_mcmc.data import streams
from entropy_mcmc.errors import ConfigError, check_count

Ints = npt.NDArray[np.int64]


def augment(
    batch: Tensor, *, seed: int, step: int, padding: int = 4, flip: bool = True, first: int = 0
) -> Tensor:
    """Pad with zeros, crop at a random place, flip left-right with probability ½.

    Row i gets the numbers of (seed, step, first + i), so that a rank that holds rows
    `first` … of the global batch makes the very images that one process would make.

    >>> batch = torch.arange(18, dtype=torch.uint8).view(2, 1, 3, 3)
    >>> torch.equal(augment(batch, seed=0, step=7)[1:], augment(batch[1:], seed=0, step=7, first=1))
    True
    """
    _check(batch)
    check_count("padding", padding, least=0)
    if not len(batch):
        return batch.clone()
    top, left, mirror = draws(len(batch), seed=seed, step=step, padding=padding, first=first)
    mirror &= flip
    crop = _crop_bytes if batch.device.type == "cpu" else crop_tensor
    return crop(batch, top, left, mirror, padding)


def draws(
    count: int, *, seed: int, step: int, padding: int, first: int = 0
) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Return top and left of the crop (0 … 2·padding) and whether to flip, for each row."""
    bits = streams.words(seed, streams.AUGMENT, (step, 0), first + count)[first:]
    side = 2 * padding + 1
    top = streams.below(bits, side)
    left = streams.below(bits >> np.uint64(31), side)
    return top, left, bits >= np.uint64(2**63)


def crop_tensor(
    batch: Tensor, top: Ints, left: Ints, mirror: npt.NDArray[np.bool_], padding: int
) -> Tensor:
    """Crop by tensor indexing: the path of every device but the CPU."""
    height, width = batch.shape[-2:]
    flip = torch.from_numpy(mirror).to(batch.device)[:, None, None, None]
    padded = F.pad(torch.where(flip, batch.flip(-1), batch), (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    rows = torch.arange(len(batch), device=batch.device)
    down, right = (torch.from_numpy(place).to(batch.device) for place in (top, left))
    return windows[rows, :, down, right]


def _crop_bytes(
    batch: Tensor, top: Ints, left: Ints, mirror: npt.NDArray[np.bool_], padding: int
) -> Tensor:
    # One image row is one opaque element of `width` bytes, so that a crop is a gather of a few
    # thousand elements: six times faster than tensor indexing, which walks pixel by pixel.
    count, channels, height, width = batch.shape
    row = np.dtype((np.void, width))
    tall, wide = height + 2 * padding, width + 2 * padding
    padded = np.zeros((count, channels, tall, wide), dtype=np.uint8)
    image, plane = channels * tall * wide, tall * wide
    inner = np.ndarray(
        (count, channels, height), row, padded, padding * (wide + 1), (image, plane, wide)
    )
    inner[:] = _rows(batch, row)
    flipped = np.flatnonzero(mirror)
    if len(flipped):
        inner[flipped] = _rows(batch.index_select(0, torch.from_numpy(flipped)).flip(-1), row)
    places = 2 * padding + 1
    shape, strides = (count, channels, places, places, height), (image, plane, wide, 1, wide)
    windows = np.ndarray(shape, row, padded, 0, strides)
    cropped = windows[np.arange(count), :, top, left]
    return torch.from_numpy(cropped.view(np.uint8).reshape(batch.shape))


def _rows(batch: Tensor, row: np.dtype[np.void]) -> npt.NDArray[np.void]:
    view: npt.NDArray[np.void] = batch.contiguous().numpy().view(row)
    return view[..., 0]


def _check(batch: Tensor) -> None:
    if batch.dtype != torch.uint8 or batch.dim() != 4 or 0 in batch.shape[1:]:
        raise ConfigError(
            "batch must be uint8 images of shape (N, C, H, W), got "
            f"{batch.dtype} of shape {tuple(batch.shape)}; augment before normalising"
        )
