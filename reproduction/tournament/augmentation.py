"""Random crops and flips of normalised pictures: a pure function of (seed, gradient, row)."""

from __future__ import annotations

from torch import Tensor

from entropy_mcmc.data.augment import crop_tensor, draws


def augmented(x: Tensor, black: Tensor | None, seed: int, step: int) -> Tensor:
    """Pictures padded with black by an eighth of their side, cropped and flipped at random.

    `black` is the normalised value of a black pixel, by channel; tables have none.
    """
    if black is None or x.dim() != 4:
        raise ValueError(
            f"augmented needs pictures (rows, channels, …), got shape {tuple(x.shape)}"
        )
    padding = x.shape[-1] // 8
    return (
        crop_tensor(x - black, *draws(len(x), seed=seed, step=step, padding=padding), padding)
        + black
    )
