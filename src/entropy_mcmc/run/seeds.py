"""Independent seeds for everything random in a run, each a pure function of its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b


def derive(seed: int, *names: object) -> int:
    """A seed in [0, 2^63) for this use of the run's seed.

    >>> derive(0, "noise", 1) == derive(0, "noise", 1) != derive(0, "noise", 2)
    True
    """
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Start the global generators of Python, NumPy and torch from `seed`, and put them back."""
    import random

    import numpy as np
    import torch

    # The transforms of a user's data set draw from the global generators: there is no other way.
    python, array = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(array)  # noqa: NPY002
