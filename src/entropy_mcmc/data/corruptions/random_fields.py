"""Random fields, one generator per image: image i of a set looks the same in every subset."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from entropy_mcmc.data import streams

Floats = npt.NDArray[np.float32]


class Draws:
    """Random numbers for a batch: row k holds those of image `indices[k]`.

    The place in the stream is (image, type and severity), so that no two pictures share numbers.
    """

    def __init__(self, seed: int, indices: npt.NDArray[np.int64], kind: int) -> None:
        self._generators = [
            np.random.Generator(streams.philox(seed, streams.CORRUPTION, (int(index), kind)))
            for index in indices
        ]

    def normal(self, *shape: int) -> Floats:
        """Standard normal numbers (images, *shape)."""
        return self._each(lambda rng: rng.standard_normal(shape, dtype=np.float32))

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """Uniform numbers (images, *shape)."""
        return low + (high - low) * self._each(lambda rng: rng.random(shape, dtype=np.float32))

    def poisson(self, rates: Floats) -> Floats:
        """Poisson numbers with the given rates (images, …)."""
        pairs = zip(self._generators, rates, strict=True)
        return np.stack([rng.poisson(rate) for rng, rate in pairs]).astype(np.float32)

    def _each(self, draw: Callable[[np.random.Generator], Floats]) -> Floats:
        return np.stack([draw(rng) for rng in self._generators])
