r"""How many independent networks the average of correlated ones is worth.

.. math:: K = \frac{S}{1 + (S-1)\bar\rho}, \qquad
   \bar\rho = \Big(1 - \frac{d_\mathrm{within}}{d_\mathrm{between}}\Big)
   \cdot \frac{\text{pairs within chains}}{\text{all pairs}}

with d the mean squared distance of the predictions of two samples, of one chain or of two. Two
independent networks differ by twice the variance of one, two samples of a chain by a share 1 − ρ of
that; so the variance of the average is that of K independent networks. Copies give K = 1 for each
chain, independent networks K = S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from entropy_mcmc.errors import ConfigError


@dataclass(frozen=True)
class EffectiveNetworks:
    """K of S samples.

    Attributes:
        value: K, between 1 and S.
        samples: S.
        correlation: ρ of two samples of one chain, between 0 and 1.
        chains: Chains that were compared.
    """

    value: float
    samples: int
    correlation: float
    chains: int


def effective_networks(
    predictions: Tensor | npt.NDArray[Any], chains: Sequence[Any]
) -> EffectiveNetworks | None:
    """K of the predictions of samples; None with a single chain, which has nothing to compare.

    Args:
        predictions: (samples, rows, classes) of probabilities, or (samples, rows) of means.
        chains: The chain of each sample. Cycles of one chain may stand for chains: they are less
            independent than chains, and K is then an upper bound.

    >>> same = np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> effective_networks(same, [0, 0, 1, 1]).value
    2.0
    """
    values = np.asarray(predictions, dtype=np.float64)
    if len(values) != len(chains):
        raise ConfigError(
            f"chains must have one entry for each of {len(values)} samples, got {len(chains)}"
        )
    samples, groups = len(values), list(dict.fromkeys(chains))
    if len(groups) < 2:
        return None
    flat = values.reshape(samples, -1)
    flat = flat - flat.mean(axis=0)  # against cancellation
    members = [flat[[label == group for label in chains]] for group in groups]
    within, inside = map(sum, zip(*(_pairs(part) for part in members), strict=True))
    total, pairs = _pairs(flat)
    between = (total - within) / (pairs - inside)
    if not between:  # every network predicts the same
        return EffectiveNetworks(1.0, samples, 1.0, len(groups))
    # Without a pair in any chain (an ensemble) nothing is shared.
    correlation = min(max(1 - within / inside / between, 0.0), 1.0) if inside else 0.0
    shared = correlation * inside / pairs
    value = samples / (1 + (samples - 1) * shared)
    return EffectiveNetworks(value, samples, correlation, len(groups))


def _pairs(vectors: npt.NDArray[np.float64]) -> tuple[float, int]:
    """Sum of squared distances over all pairs, and their number."""
    count = len(vectors)
    squares = float(np.square(vectors).sum())
    total = float(np.square(vectors.sum(axis=0)).sum())
    return max(count * squares - total, 0.0), count * (count - 1) // 2
