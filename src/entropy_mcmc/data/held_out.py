"""Which rows of a user's own data are held out for the test."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from entropy_mcmc.data.batches import order
from entropy_mcmc.errors import ConfigError


def held_out(rows: int, fraction: float, index: int) -> npt.NDArray[np.bool_]:
    """Flags of the test rows: the same for everyone, another choice for every index."""
    count = round(rows * fraction)
    if not 0 < count < rows:
        raise ConfigError(
            f"test={fraction:g} of {rows} rows leaves {rows - count} rows to train and {count} to "
            "test; both need at least one"
        )
    flags = np.zeros(rows, dtype=np.bool_)
    flags[order(index, 0, rows)[:count].numpy()] = True
    return flags
