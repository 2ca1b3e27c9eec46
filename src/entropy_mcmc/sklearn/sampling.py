"""The loop behind the estimators: C chains of EntropyMCMC at once, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from entropy_mcmc import units
from entropy_mcmc.chains.stack import Stack
from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.samplers import EntropyMCMC
from entropy_mcmc.sklearn.likelihood import Likelihood
from entropy_mcmc.sklearn.mlp import draw_networks, forward
from entropy_mcmc.sklearn.plan import Plan

Floats = npt.NDArray[np.float32]
Watch = Callable[[int, Sequence[Tensor]], None]

CHECK_EVERY = 50  # steps between two looks for a chain that diverged


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
    watch: Watch | None = None,
) -> Draws:
    """Run the chains on inputs x and targets y, and return what was kept.

    Chains share the rows and the prior unless `rows` (C, n) gives each its own rows, and
    `priors` (C,) its own prior variance. `watch(step, layers)` is called after every step.
    """
    generator = torch.Generator().manual_seed(plan.seed)
    num_data = len(x) if rows is None else rows.shape[1]
    if priors is None:
        priors = torch.full((plan.chains,), plan.prior_variance)
    stack = make_stack(plan, priors, num_data, generator)
    decay: Any = units.weight_decay(priors, num_data)
    kept: list[list[Tensor]] = []
    heats: list[Tensor] = []
    for step, (inputs, targets) in zip(
        range(plan.steps), _batches(plan, x, y, rows, generator), strict=False
    ):
        losses = likelihood.losses(forward(stack.layers, inputs, plan.activation), targets)
        stack.grad.zero_()
        losses.sum().backward()  # type: ignore[no-untyped-call]
        take_step(stack, plan, step, likelihood.heats, decay, generator)
        if step % CHECK_EVERY == 0:
            _check(losses, step)
        if watch:
            watch(step, stack.layers)
        if plan.is_due(step):
            kept += [stack.copy(name) for name in plan.variables]
            heats += [likelihood.heats.expand(plan.chains)] * len(plan.variables)
    _check(stack.flat, plan.steps)
    params = [torch.cat(tensors).numpy() for tensors in zip(*kept, strict=True)]
    return Draws(params, torch.cat(heats).numpy())


def make_stack(plan: Plan, priors: Tensor, num_data: int, generator: torch.Generator) -> Stack:
    """Networks drawn from their priors, at most N(0, 1), for a sampler of temperature 1."""
    return Stack(
        draw_networks(plan.sizes, priors.clamp(max=1).sqrt(), generator),
        EntropyMCMC,
        lr=plan.lr,
        num_data=num_data,
        eta=units.eta_of_horizon(plan.horizon, plan.lr, num_data),
        momentum=plan.momentum,
        seed=plan.seed,
    )


def take_step(
    stack: Stack,
    plan: Plan,
    step: int,
    heats: Tensor,
    weight_decay: Tensor,
    generator: torch.Generator,
) -> None:
    """Move all chains, chain c at temperature T·heats[c], with its own weight decay.

    The noise comes from a generator, at a fifth of the cost of counter-based noise for networks
    this small: a fit is never resumed in the middle.
    """
    update = stack.update(plan.lr_at(step))
    c = update.coefficients
    first, second = torch.randn(2, stack.flat.numel(), generator=generator)
    stack.step(
        update,
        (first, second),
        decay=c.lr * heats * weight_decay,
        noise=c.noise * (plan.temperature * heats).sqrt(),
    )


def _batches(
    plan: Plan, x: Tensor, y: Tensor, rows: Tensor | None, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets of each step: all rows if they fit a batch."""
    count = len(x) if rows is None else rows.shape[1]
    if count <= plan.batch:
        everything = (x, y) if rows is None else (x[rows], y[rows])
        while True:
            yield everything
    for chosen in row_numbers(plan, count, generator):
        own = chosen if rows is None else rows.gather(1, chosen)
        yield x[own], y[own]


def row_numbers(plan: Plan, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Row numbers (C, batch) without end, without repetition within a pass."""
    while True:
        order = torch.rand(plan.chains, count, generator=generator).argsort(dim=1)
        for start in range(0, count - plan.batch + 1, plan.batch):
            yield order[:, start : start + plan.batch]


def _check(values: Tensor, step: int) -> None:
    if not bool(torch.isfinite(values).all()):
        raise NonFiniteError(f"the chains diverged before step {step}; use a smaller lr")
