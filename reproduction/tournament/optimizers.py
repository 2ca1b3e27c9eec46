"""The optimizer of a trajectory, made from its settings by the library's own classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from entropy_mcmc import BSAM, SAM, SGHMC, SGLD, EntropyMCMC, EntropySGD, EntropySGLD, units
from tournament.ivon import IVON, beta2_of
from tournament.settings import NESTED, Settings
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
    common: dict[str, Any] = {"weight_decay": decay, "num_data": rows}
    if settings.optimizer == "sam":
        return SAM(params, settings.lr, rho=settings.rho, momentum=settings.momentum, **common)
    common["seed"] = seed
    if settings.optimizer == "ivon":
        common["num_data"] = rows / temperature  # the precision is N(h + δ)/T
        common["beta2"] = beta2_of(steps)
        return IVON(params, settings.lr, initial_scale=settings.scale, **common)
    common["temperature"] = temperature
    if settings.optimizer == "bsam":
        return BSAM(params, settings.lr, rho=settings.rho, initial_scale=settings.scale, **common)
    if settings.optimizer in NESTED:
        eta = units.eta_of_horizon(units.nested_horizon(settings.inner_steps), settings.lr, rows)
        inner = {"inner_lr": settings.lr, "inner_steps": settings.inner_steps}
        make = EntropySGD if settings.optimizer == "entropy-sgd" else EntropySGLD
        return make(params, peak_lr(settings), eta=eta, **inner, **common)
    if settings.optimizer == "sgld":
        return SGLD(params, settings.lr, **common)
    common["momentum"] = settings.momentum
    if settings.optimizer == "sghmc":
        return SGHMC(params, settings.lr, **common)
    return EntropyMCMC(
        params,
        settings.lr,
        eta=units.eta_of_horizon(max(LEAST_HORIZON, settings.horizon * steps), settings.lr, rows),
        replicas=replicas,
        guide_update=settings.guide_update,
        **common,
    )


def peak_lr(settings: Settings) -> float:
    """Peak of the lr that the schedule moves.

    The nested methods' is the outer one, which moves θ onto the mean of its inner chain; the inner
    lr stays.
    """
    if settings.optimizer in NESTED:
        # ηN, by the η above.
        return units.nested_horizon(settings.inner_steps) * settings.lr
    return settings.lr
