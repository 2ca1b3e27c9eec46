"""Trials of a search: the same number for every method, spread evenly over its ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def latin(name: str, space: Mapping[str, Sequence[float]], count: int) -> list[dict[str, float]]:
    """A Latin hypercube on the logarithms: each hyper-parameter takes `count` evenly spaced values.

    >>> sorted(trial["lr"] for trial in latin("sgd", {"lr": (0.01, 1.0)}, 2))
    [0.03162, 0.3162]
    """
    draws = np.random.default_rng(np.frombuffer(name.encode(), dtype=np.uint8).tolist())
    middle = (np.arange(count) + 0.5) / count
    columns = {
        key: [float(f"{v:.4g}") for v in low * (high / low) ** draws.permutation(middle)]
        for key, (low, high) in space.items()
    }
    return [{key: columns[key][i] for key in space} for i in range(count)]
