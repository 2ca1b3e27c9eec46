"""Pilot runs that hold rows out: folds, a shorter plan, and outputs on the held-out rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from entropy_mcmc.sklearn.mlp import forward
from entropy_mcmc.sklearn.plan import Plan
from entropy_mcmc.sklearn.sampling import Draws

FOLDS = 3
SHARE = 0.4  # of the steps of the run that follows


def pilot_plan(plan: Plan, chains: int, samples: int) -> Plan:
    """A shorter run of other chains, of whose second half some samples are kept."""
    steps = max(2 * samples, int(SHARE * plan.steps))
    return replace(plan, chains=chains, steps=steps, samples=samples, burn_in=0.5, roles="theta")


def folds(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Training rows and held-out rows of each fold, (FOLDS, …); held-out rows never overlap.

    >>> train, held_out = folds(10, torch.Generator().manual_seed(0))
    >>> train.shape, held_out.shape
    (torch.Size([3, 7]), torch.Size([3, 3]))
    """
    order = torch.randperm(rows, generator=generator)
    size = rows // FOLDS
    turned = torch.stack([order.roll(-fold * size) for fold in range(FOLDS)])
    return turned[:, size:], turned[:, :size]


def held_out_outputs(draws: Draws, plan: Plan, x: Tensor, rows: Tensor) -> Tensor:
    """Outputs of every sample of each chain on the chain's own `rows`: (samples, C, rows, out)."""
    outputs = []
    with torch.no_grad():
        for start in range(0, plan.samples * plan.chains, plan.chains):
            params = [torch.from_numpy(p[start : start + plan.chains]) for p in draws.params]
            outputs.append(forward(params, x[rows], plan.activation))
    return torch.stack(outputs)
