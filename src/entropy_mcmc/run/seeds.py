"""Independent seeds for everything random in a run, each a pure function of its name."""

from __future__ import annotations

from hashlib import blake2b


def derive(seed: int, *names: object) -> int:
    """A seed in [0, 2^63) for this use of the run's seed.

    >>> derive(0, "noise", 1) == derive(0, "noise", 1) != derive(0, "noise", 2)
    True
    """
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
