"""Random bits of the data pipeline: pure functions of (seed, stream, place), the same everywhere.

Philox-4x64 is counter-based, so any place of any stream is reached without running up to it.
Only its raw 64-bit words are used: NumPy fixes them for ever, while its derived methods
(`permutation`, `integers`) may change between versions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from entropy_mcmc.errors import ConfigError, check_count

Words = npt.NDArray[np.uint64]

# One key word per use, so that order, augmentation and corruptions never share numbers.
ORDER, AUGMENT, IMAGE, CORRUPTION = 1, 2, 3, 4

_LOW31 = np.uint64(0x7FFFFFFF)


def philox(seed: int, stream: int, place: tuple[int, int]) -> np.random.Philox:
    """Return the generator at `place` of `stream`; two places never overlap below 2**128 words."""
    if check_count("seed", seed, least=0) >= 2**64:
        raise ConfigError(f"seed must be below 2**64, got seed={seed}")
    key = np.array([seed, stream], dtype=np.uint64)
    counter = np.array([0, 0, *place], dtype=np.uint64)
    return np.random.Philox(key=key, counter=counter)


def words(seed: int, stream: int, place: tuple[int, int], count: int) -> Words:
    """Return `count` 64-bit words.

    >>> words(0, ORDER, (0, 0), 2).tolist() == words(0, ORDER, (0, 0), 5)[:2].tolist()
    True
    """
    return philox(seed, stream, place).random_raw(count)


def below(bits: Words, bound: int) -> npt.NDArray[np.int64]:
    """Map the low 31 bits of each word to 0 … bound−1 (bias below bound / 2**31)."""
    return (((bits & _LOW31) * np.uint64(bound)) >> np.uint64(31)).astype(np.int64)


def unit(bits: Words) -> npt.NDArray[np.float64]:
    """Map each word to [0, 1) with 53 bits."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
