"""How flat a network is: the largest eigenvalue of the Hessian and the learning coefficient."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import nn

from entropy_mcmc import flatness
from tournament.data import Rows


@dataclass(frozen=True)
class Effort:
    """Rows of the Hessian; chains, steps and rows of a batch of the learning coefficient."""

    hessian_rows: int = 512
    chains: int = 2
    steps: int = 200
    batch_size: int = 256


EFFORT = {"cifar": Effort(256, 2, 100, 128)}  # by task; a gradient costs a hundred times the MLP's
LOCALISATION = 200.0  # that of `emcmc flatness`, for weights relative to their tensor's size


def measured(model: nn.Module, train: Rows, seed: int, task: str) -> dict[str, Any]:
    """λ_max on some training rows, and the local learning coefficient on all of them.

    Both are of the mean loss without the prior, in evaluation mode.
    """
    model.eval()
    effort = EFFORT.get(task, Effort())
    some = train.x[: effort.hessian_rows], train.y[: effort.hessian_rows]
    top = flatness.top_eigenvalues(model, F.cross_entropy, some, k=1, tolerance=0.01, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is kept below
        estimate = flatness.local_learning_coefficient(
            model,
            F.cross_entropy,
            (train.x, train.y),
            localisation=LOCALISATION,
            scale="rms",
            chains=effort.chains,
            steps=effort.steps,
            batch_size=effort.batch_size,
            seed=seed,
        )
    return {
        "largest_eigenvalue": float(top[0]),
        "learning_coefficient": float(estimate.value),
        "learning_coefficient_error": float(estimate.standard_error),
        "notes": list(estimate.warnings),
    }
