"""Choice of the classifier's network and prior variance by 3-fold validation, in one run.

A prior on a fold is one or more chains of a stacked run, with their own rows and their own prior.
The held-out NLL of the average over their samples, averaged over folds, decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from entropy_mcmc.sklearn.likelihood import Categorical
from entropy_mcmc.sklearn.plan import Network, Plan
from entropy_mcmc.sklearn.sampling import Draws, run
from entropy_mcmc.sklearn.validation import folds, held_out_outputs, pilot_plan

CANDIDATES = (3.0, 10.0, 30.0, 100.0, 300.0)
FALLBACK = 10.0  # for data too small to hold rows out
LEAST_ROWS = 30
FEW_ROWS = 500  # up to here the rows are divided twice, and networks are compared
MOST_HELD_OUT = 2000  # rows judged in a fold: enough to tell candidates apart
SAMPLES = 4


def choose(
    plan: Plan, x: Tensor, labels: Tensor, networks: Sequence[Network], priors: Sequence[float]
) -> tuple[Network, float]:
    """The network and the prior variance of the lowest held-out NLL.

    Small data choose between the networks, larger ones take the first: a smooth and shallow one is
    better on some data of a hundred rows, and the cost would double.
    """
    if len(x) < LEAST_ROWS:
        return networks[0], FALLBACK if len(priors) > 1 else priors[0]
    if len(x) > FEW_ROWS:
        networks = networks[:1]
    if len(networks) * len(priors) == 1:
        return networks[0], priors[0]
    losses = [held_out_losses(plan.using(network), x, labels, priors) for network in networks]
    best = int(torch.stack([each.mean(dim=1).min() for each in losses]).argmin())
    return networks[best], priors[cautious(losses[best])]


def cautious(losses: Tensor) -> int:
    """The first candidate whose mean is within one standard error of the lowest.

    Candidates are in order, rows (candidates, rows) are compared in pairs. Too broad a prior costs
    far more than too narrow a one, and small data often cannot tell them apart.

    >>> cautious(torch.tensor([[2.0, 2.1, 1.9], [1.0, 1.2, 1.0], [0.9, 1.3, 0.9], [1.5, 1.5, 1.5]]))
    1
    """
    excess = losses - losses[losses.mean(dim=1).argmin()]
    errors = excess.std(dim=1) / math.sqrt(losses.shape[1])
    return int((excess.mean(dim=1) <= errors).int().argmax())


def held_out_losses(plan: Plan, x: Tensor, labels: Tensor, priors: Sequence[float]) -> Tensor:
    """NLL of every row while it was held out, (priors, rows); equal seeds divide rows equally."""
    generator = torch.Generator().manual_seed(plan.seed)
    # In small data the best candidate of one division is often not that of another.
    divisions = [folds(len(x), generator) for _ in range(2 if len(x) <= FEW_ROWS else 1)]
    train, held_out = (torch.cat(rows) for rows in zip(*divisions, strict=True))
    pilot = pilot_plan(plan, len(priors) * len(train), SAMPLES)
    each = torch.tensor(priors).repeat_interleave(len(train))
    rows = train.repeat(len(priors), 1)
    draws = run(pilot, x, labels, Categorical(), rows=rows, priors=each)
    judged = held_out[:, :MOST_HELD_OUT]
    losses = held_out_nll(draws, pilot, x, labels, judged.repeat(len(priors), 1))
    return mean_by_row(losses.view(len(priors), -1), judged.flatten(), len(x))


def mean_by_row(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """Columns that belong to the same one of `count` rows, averaged; rows without any left out.

    >>> mean_by_row(torch.tensor([[1.0, 2.0, 5.0]]), torch.tensor([2, 0, 2]), 3)
    tensor([[2., 3.]])
    """
    times = torch.zeros(count).index_add_(0, rows, torch.ones(len(rows)))
    sums = torch.zeros(len(values), count).index_add_(1, rows, values)
    return (sums / times)[:, times > 0]


def held_out_nll(draws: Draws, plan: Plan, x: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    """NLL of each chain's average prediction on its own `rows`, (chains, rows)."""
    outputs = held_out_outputs(draws, plan, x, rows).log_softmax(dim=-1)
    wanted = labels[rows][None, ..., None].expand(plan.samples, -1, -1, 1)
    logs = outputs.gather(3, wanted).squeeze(-1)
    return math.log(plan.samples) - logs.logsumexp(dim=0)
