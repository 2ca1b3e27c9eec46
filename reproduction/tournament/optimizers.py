"""The optimizer of a trajectory, made from its settings by the library's own classes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_mcmc import SGHMC, SGLD, EntropyMCMC, units
from tournament.settings import Settings
from tournament.tasks import NOISE_VARIANCE, Task

LEAST_HORIZON = 4.0  # steps; shorter ones make θ and θ_a oscillate


def unit(task: Task) -> float:
    """Energy of one unit of loss: the squared loss is divided by the noise variance."""
    return NOISE_VARIANCE if task.regression else 1.0


def weight_decay(variance: float | None, rows: int, energy_unit: float) -> float:
    """λ of the prior N(0, variance); None is no prior.

    >>> round(weight_decay(0.04, 3000, 1.0), 5)
    0.00833
    """
    return 0.0 if variance is None else energy_unit * units.weight_decay(variance, rows)


def build(
    settings: Settings,
    task: Task,
    params: Iterable[Tensor],
    rows: int,
    steps: int,
    replicas: int = 1,
) -> Optimizer:
    """The optimizer; its noise comes from the seed and the number of the chain."""
    decay = weight_decay(settings.prior_variance, rows, unit(task))
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(params, lr=settings.lr, weight_decay=settings.weight_decay)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            params, lr=settings.lr, momentum=settings.momentum, weight_decay=decay
        )
    temperature, seed = settings.temperature * unit(task), 1000 * settings.seed + settings.chain
    if settings.optimizer == "sgld":
        return SGLD(
            params,
            settings.lr,
            num_data=rows,
            temperature=temperature,
            weight_decay=decay,
            seed=seed,
        )
    if settings.optimizer == "sghmc":
        return SGHMC(
            params,
            settings.lr,
            num_data=rows,
            momentum=settings.momentum,
            temperature=temperature,
            weight_decay=decay,
            seed=seed,
        )
    return EntropyMCMC(
        params,
        settings.lr,
        num_data=rows,
        eta=units.eta_of_horizon(max(LEAST_HORIZON, settings.horizon * steps), settings.lr, rows),
        momentum=settings.momentum,
        temperature=temperature,
        weight_decay=decay,
        replicas=replicas,
        guide_update=settings.guide_update,
        seed=seed,
    )
