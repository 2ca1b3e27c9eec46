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
    """Rows of the Hessian; chains, steps, rows of a batch and γ of the learning coefficient.

    γ is that of `emcmc flatness`, for weights relative to their tensor's size.
    """

    hessian_rows: int = 512
    chains: int = 2
    steps: int = 200
    batch_size: int = 256
    localisation: float = 200.0


NETWORKS = ("theta", "guide", "ema")  # of a run, of which a method has one or more
# A gradient of `cifar` costs a hundred times the MLP's. With γ = 200 chains would need a burn-in of
# 100 to 230 steps there, and some estimates of the first seed were negative.
EFFORT = {"cifar": Effort(256, 2, 100, 128, 2000.0)}


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
            localisation=effort.localisation,
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
        "localisation": effort.localisation,
        "notes": list(estimate.warnings),
    }
