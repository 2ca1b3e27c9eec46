"""How flat a network is: the largest eigenvalue of the Hessian and the learning coefficient."""

from __future__ import annotations

import warnings
from typing import Any

import torch.nn.functional as F
from torch import nn

from entropy_mcmc import flatness
from tournament.data import Rows

HESSIAN_ROWS = 512
CHAINS, STEPS = 2, 200
LOCALISATION = 200.0  # that of `emcmc flatness`, for weights relative to their tensor's size


def measured(model: nn.Module, train: Rows, seed: int, rows: int | None = None) -> dict[str, Any]:
    """λ_max on 512 training rows, and the local learning coefficient on all of them.

    Both are of the mean loss without the prior, in evaluation mode.
    """
    model.eval()
    some = train.x[:HESSIAN_ROWS], train.y[:HESSIAN_ROWS]
    top = flatness.top_eigenvalues(model, F.cross_entropy, some, k=1, tolerance=0.01, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is kept below
        estimate = flatness.local_learning_coefficient(
            model,
            F.cross_entropy,
            (train.x[:rows], train.y[:rows]),
            localisation=LOCALISATION,
            scale="rms",
            chains=CHAINS,
            steps=STEPS,
            seed=seed,
        )
    return {
        "largest_eigenvalue": float(top[0]),
        "learning_coefficient": float(estimate.value),
        "learning_coefficient_error": float(estimate.standard_error),
        "notes": list(estimate.warnings),
    }
