"""`diagnostics_` of a fitted estimator: whether its chains agree, and what was chosen.

Networks of different chains lie in different modes, so that R-hat of predictions is rarely 1: what
matters is how far the average over chains would move if other chains had been run. `chain_error`
is the standard error of that average, from the spread of the chains' own averages.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from entropy_mcmc.diagnostics.ess_rhat import Mixing, mixing

Doubles = npt.NDArray[np.float64]

LEAST_ROWS = 30  # below which nobody is warned
PROBED = 100  # rows on which chains are compared


@dataclass(frozen=True)
class FitDiagnostics:
    """What a fit did.

    Attributes:
        mixing: ESS and R-hat of the predictions across chains.
        chain_error: standard error of a prediction that the choice of chains leaves, root mean
            square over rows: of a probability, or relative to the predictive standard deviation.
        limit: of `chain_error`, above which a fit warns: 0.1 of probabilities, 0.5 of regressions.
        chosen: the candidate that was taken.
        scores: held-out NLL of every candidate that was tried.
        lr, steps: of the chains, after restarts.
    """

    mixing: Mixing
    chain_error: float | None
    limit: float
    chosen: str
    scores: dict[str, float]
    lr: float
    steps: int

    @property
    def agree(self) -> bool | None:
        """Whether `chain_error` is within its limit; None for a single chain."""
        return None if self.chain_error is None else self.chain_error <= self.limit

    def __str__(self) -> str:
        lines = [f"chosen: {self.chosen}; {self.steps} steps from lr = {self.lr:g}"]
        lines.append(f"mixing: {self.mixing}")
        if self.chain_error is not None:
            word = "agree" if self.agree else "disagree"
            lines.append(f"chains {word}: standard error of a prediction {self.chain_error:.3g}")
        for name, score in sorted(self.scores.items(), key=lambda item: item[1]):
            lines.append(f"held-out NLL {score:.4f}: {name}")
        return "\n".join(lines)


def chain_error(predictions: Doubles, chains: int, unit: Doubles | float = 1.0) -> float | None:
    """Standard error that the choice of chains leaves in the average of (networks, rows, …).

    >>> chain_error(np.array([[0.0], [0.0], [1.0], [1.0]]), chains=2)
    0.5
    """
    if chains < 2:
        return None
    own = predictions.reshape(chains, -1, *predictions.shape[1:]).mean(axis=1)
    errors = own.std(axis=0, ddof=1) / np.sqrt(chains) / unit
    return float(np.sqrt(np.mean(errors**2)))


def probe(x: Tensor) -> Tensor:
    """Rows halfway between training rows: on these themselves, chains that overfit agree.

    >>> import torch
    >>> probe(torch.tensor([[0.0], [1.0], [4.0], [5.0]])).tolist()
    [[2.0], [3.0]]
    """
    half = len(x) // 2
    first, second = x[:half], x[half : 2 * half]
    step = max(1, math.ceil(half / PROBED))
    return ((first + second) / 2)[::step].double() if half else x.double()


def warn_if_apart(name: str, rows: int, error: float | None, limit: float) -> None:
    """Warn of chains that disagree; on few rows they may."""
    if error is not None and error > limit and rows >= LEAST_ROWS:
        warnings.warn(
            f"the chains of {name} disagree: predictions would move by about {error:.2f} with "
            f"other chains (probabilities, or predictive standard deviations), more than {limit}; "
            f"use more n_chains or n_steps, or a narrower prior_variance; see diagnostics_",
            ConvergenceWarning,
            stacklevel=4,
        )


def described(
    predictions: Doubles, chains: int, error: float | None, limit: float, **chosen: object
) -> FitDiagnostics:
    """Diagnostics from the predictions (networks, rows, …) of chains, one after the other."""
    each = predictions.reshape(chains, -1, *predictions.shape[1:])
    return FitDiagnostics(mixing(list(each)), error, limit, **chosen)  # type: ignore[arg-type]
