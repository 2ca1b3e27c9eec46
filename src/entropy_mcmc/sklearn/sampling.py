"""The loop: C chains of EntropyMCMC in one optimizer, in memory, from a table.

The sampler's rule is elementwise and its noise is a function of the element, so one step on the
stacked tensors is one step of C independent chains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.samplers import EntropyMCMC
from entropy_mcmc.sklearn.likelihood import Likelihood
from entropy_mcmc.sklearn.network import draw_networks, forward

Floats = npt.NDArray[np.float32]

LEAST_LR = 0.05  # of the first lr: a chain that stands still gives the same sample again


@dataclass(frozen=True)
class Plan:
    """Everything that a run needs besides the table and the likelihood."""

    sizes: tuple[int, ...]
    activation: str
    chains: int
    steps: int
    samples: int  # kept of each chain
    batch: int
    lr: float
    momentum: float
    horizon: float  # steps over which the guide averages
    temperature: float
    prior_variance: float
    burn_in: float
    roles: str
    seed: int

    def is_due(self, step: int) -> bool:
        """Whether the state after this step is kept: evenly spaced, the last one included."""
        first = math.ceil(self.burn_in * self.steps)
        after = step + 1 - first
        room = self.steps - first
        return after > 0 and after * self.samples // room > (after - 1) * self.samples // room


@dataclass(frozen=True)
class Draws:
    """Kept networks: one array (samples, in, out) for each parameter, and their heats."""

    params: list[Floats]
    heats: Floats


def run(
    plan: Plan,
    x: Tensor,
    y: Tensor,
    likelihood: Likelihood,
    *,
    rows: Tensor | None = None,
    priors: Tensor | None = None,
) -> Draws:
    """Run the chains on the table (x, y) and return what was kept.

    Chains share the table and the prior unless `rows` (C, n) gives each its own rows, and
    `priors` (C,) its own prior variance.
    """
    generator = torch.Generator().manual_seed(plan.seed)
    params = draw_networks(plan.sizes, plan.chains, generator)
    for param in params:
        param.requires_grad_()
    num_data = len(x) if rows is None else rows.shape[1]
    sampler = _sampler(plan, params, num_data)
    batches = _batches(plan, num_data, generator)
    kept: list[list[Tensor]] = []
    heats: list[float] = []
    for step in range(plan.steps):
        batch = next(batches)
        chosen = batch if rows is None else rows.gather(1, batch.expand(plan.chains, -1))
        loss = likelihood.loss(forward(params, x[chosen], plan.activation), y[chosen])
        _set_scales(sampler, plan, step, likelihood.heat)
        if priors is not None:
            sampler.param_groups[0]["weight_decay"] = 0.0
            loss = loss + likelihood.heat * _log_prior(params, priors) / num_data
        sampler.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sampler.step()
        if plan.is_due(step):
            states = _states(sampler, params, plan.roles)
            kept += states
            heats += [likelihood.heat] * len(states) * plan.chains
    return _check(Draws(_stack(kept), np.array(heats, dtype=np.float32)))


def _log_prior(params: list[Tensor], variances: Tensor) -> Tensor:
    """½‖θ‖²/variance, summed over chains: minus the log-density of the prior."""
    squares = torch.stack([p.square().sum(dim=(1, 2)) for p in params]).sum(dim=0)
    return 0.5 * (squares / variances).sum()


def _sampler(plan: Plan, params: list[Tensor], num_data: int) -> EntropyMCMC:
    return EntropyMCMC(
        params,
        lr=plan.lr,
        num_data=num_data,
        eta=plan.horizon * plan.lr / num_data,
        temperature=plan.temperature,
        weight_decay=1 / (num_data * plan.prior_variance),
        momentum=plan.momentum,
        seed=plan.seed,
    )


def _set_scales(sampler: EntropyMCMC, plan: Plan, step: int, heat: float) -> None:
    group = sampler.param_groups[0]
    wave = 0.5 * (1 + math.cos(math.pi * step / plan.steps))
    group["lr"] = plan.lr * (LEAST_LR + (1 - LEAST_LR) * wave)
    group["temperature"] = plan.temperature * heat
    group["weight_decay"] = heat / (group["num_data"] * plan.prior_variance)


def _batches(plan: Plan, rows: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Row numbers (C, batch), without repetition within a pass; all rows if they fit a batch."""
    if rows <= plan.batch:
        while True:
            yield torch.arange(rows)
    while True:
        order = torch.rand(plan.chains, rows, generator=generator).argsort(dim=1)
        for start in range(0, rows - plan.batch + 1, plan.batch):
            yield order[:, start : start + plan.batch]


def _states(sampler: EntropyMCMC, params: list[Tensor], roles: str) -> list[list[Tensor]]:
    states = []
    if roles in ("theta", "both"):
        states.append([p.detach().clone() for p in params])
    if roles in ("guide", "both"):
        states.append([sampler.state[p]["guide"].clone() for p in params])
    return states


def _stack(kept: list[list[Tensor]]) -> list[Floats]:
    return [torch.cat(tensors).numpy() for tensors in zip(*kept, strict=True)]


def _check(draws: Draws) -> Draws:
    if not all(np.isfinite(p).all() for p in draws.params):
        raise NonFiniteError("the chains diverged: a kept network is not finite; use a smaller lr")
    return draws
