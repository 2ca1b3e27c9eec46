"""Scores of predictive mixtures: equal parts N(output of a network, one noise variance)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from entropy_mcmc_reproduction.regression_data import Splits

GRID = torch.logspace(-6, 0.5, 131, dtype=torch.float64)  # noise variances of standardised targets
SCORES = {"log_likelihood": "log-likelihood", "rmse": "RMSE", "coverage": "95 % coverage"}


def log_density(means: Tensor, targets: Tensor, noise: Tensor) -> Tensor:
    """Mean over rows of the log-density of each run.

    Means (networks, runs, rows), targets (runs, rows), noise variances (runs,).
    """
    variance = noise[:, None]
    logs = -0.5 * ((targets - means).square() / variance + variance.log() + math.log(2 * math.pi))
    return (logs.logsumexp(0) - math.log(len(means))).mean(1)


def fitted_noise(means: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """For each run the noise variance with the highest log-density, and that log-density.

    A run that diverged has the log-density −∞.
    """
    means, targets = means.double(), targets.double()
    scores = torch.stack([log_density(means, targets, g.expand(len(targets))) for g in GRID])
    scores = scores.nan_to_num(nan=-math.inf, posinf=-math.inf)
    best, where = scores.max(0)
    return GRID[where], best


def judge(means: Tensor, splits: Splits, noise: Tensor) -> dict[str, list[float]]:
    """Log-likelihood, RMSE and 95 % coverage of each split, in the units of the target."""
    means, targets = means.double(), splits.judged_targets.double()
    units, noise = splits.units.double(), noise.double()
    level = torch.special.ndtr((targets - means) / noise.sqrt()[:, None]).mean(0)
    found = {
        "log_likelihood": log_density(means, targets, noise) - units.log(),
        "rmse": (targets - means.mean(0)).square().mean(1).sqrt() * units,
        "coverage": ((level >= 0.025) & (level <= 0.975)).double().mean(1),
    }
    return {name: [float(v) for v in values] for name, values in found.items()}
