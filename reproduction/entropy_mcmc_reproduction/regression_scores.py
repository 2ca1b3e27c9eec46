"""Scores of predictive mixtures: networks in equal parts, noise averaged over its posterior."""

from __future__ import annotations

from torch import Tensor

from entropy_mcmc_reproduction.regression_data import Splits
from entropy_mcmc_reproduction.regression_noise import NoisePosterior
from entropy_mcmc_reproduction.regression_shape import Shape

SCORES = {"log_likelihood": "log-likelihood", "rmse": "RMSE", "coverage": "95 % coverage"}


def judge(
    means: Tensor, splits: Splits, noise: NoisePosterior, shape: Shape | None = None
) -> dict[str, list[float]]:
    """Log-likelihood, RMSE and 95 % coverage of each split, in the units of the target.

    `means` are outputs (networks, splits, rows); RMSE is that of their mean.
    """
    relative = None if shape is None else shape.relative(means, splits.judged_inputs)
    means, targets, units = means.double(), splits.judged_targets.double(), splits.units.double()
    level = noise.level(means, targets, relative)
    scored = {
        "log_likelihood": noise.log_density(means, targets, relative) - units.log(),
        "rmse": (targets - means.mean(0)).square().mean(1).sqrt() * units,
        "coverage": ((level >= 0.025) & (level <= 0.975)).double().mean(1),
    }
    return {name: [float(v) for v in values] for name, values in scored.items()}
