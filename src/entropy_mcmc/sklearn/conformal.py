"""Conformal sets and intervals: coverage that holds for exchangeable rows, whatever the model.

The rank of a new row's score among those of n calibration rows is uniform, so the score at rank
⌈(n+1)·level⌉ bounds it with probability at least `level` (Vovk et al., 2005).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from entropy_mcmc.errors import ConfigError, check_number

Doubles = npt.NDArray[np.float64]


def conformal_bound(scores: Doubles, level: float) -> float:
    """The score that a new row's exceeds with probability at most 1 − level.

    >>> conformal_bound(np.arange(1.0, 20.0), 0.9)
    18.0
    """
    if not 0 < check_number("level", level) < 1:
        raise ConfigError(f"level must be between 0 and 1, got level={level!r}")
    rank = math.ceil((len(scores) + 1) * level)
    if rank > len(scores):
        least = math.ceil(level / (1 - level))
        raise ConfigError(
            f"level={level} needs at least {least} rows to calibrate with, got {len(scores)}; "
            f"pass more rows to calibrate(), or a lower level"
        )
    return float(np.sort(scores)[rank - 1])
