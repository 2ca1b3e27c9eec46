"""Choose the prior variance from the training rows: all candidates and folds in one run.

A candidate on a fold is one or more chains of a stacked run, with their own rows and their own
prior. The held-out NLL of the average over their samples, averaged over folds, decides.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from entropy_mcmc.sklearn.likelihood import Categorical
from entropy_mcmc.sklearn.network import forward
from entropy_mcmc.sklearn.sampling import Draws, Plan, run

CANDIDATES = (3.0, 10.0, 30.0, 100.0, 300.0)
FALLBACK = 10.0  # for tables too small to hold rows out
LEAST_ROWS = 30
FEW_ROWS = 500  # up to here the rows are divided into folds twice
FOLDS = 3
MOST_HELD_OUT = 2000  # rows judged in a fold: enough to tell candidates apart
SAMPLES = 4
SHARE = 0.4  # of the steps of the run that follows


def choose_prior(plan: Plan, x: Tensor, labels: Tensor) -> float:
    """The candidate with the lowest held-out NLL."""
    if len(x) < LEAST_ROWS:
        return FALLBACK
    generator = torch.Generator().manual_seed(plan.seed)
    # In a small table the best candidate of one division is often not that of another.
    divisions = [folds(len(x), generator) for _ in range(2 if len(x) <= FEW_ROWS else 1)]
    train, held_out = (torch.cat(rows) for rows in zip(*divisions, strict=True))
    pilot = pilot_plan(plan, len(CANDIDATES) * len(train), SAMPLES)
    priors = torch.tensor(CANDIDATES).repeat_interleave(len(train))
    rows = train.repeat(len(CANDIDATES), 1)
    draws = run(pilot, x, labels, Categorical(), rows=rows, priors=priors)
    judged = held_out[:, :MOST_HELD_OUT].repeat(len(CANDIDATES), 1)
    losses = held_out_nll(draws, pilot, x, labels, judged)
    return CANDIDATES[int(losses.view(len(CANDIDATES), -1).mean(dim=1).argmin())]


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


def held_out_nll(draws: Draws, plan: Plan, x: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """NLL of each chain's average prediction on its own `rows`, (chains,)."""
    outputs = held_out_outputs(draws, plan, x, rows).log_softmax(dim=-1)
    wanted = labels[rows][None, ..., None].expand(plan.samples, -1, -1, 1)
    logs = outputs.gather(3, wanted).squeeze(-1)
    return math.log(plan.samples) - logs.logsumexp(dim=0).mean(dim=1)
