"""The loop: C chains of EntropyMCMC at once, in memory, from a table.

The sampler's rule is elementwise, so one call of it on the stacked networks is one step of C
independent chains, each with its own heat and prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from entropy_mcmc import units
from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.samplers import EntropyMCMC
from entropy_mcmc.sklearn.likelihood import Likelihood
from entropy_mcmc.sklearn.network import draw_networks, forward

Floats = npt.NDArray[np.float32]
Watch = Callable[[int, Sequence[Tensor]], None]
Network = tuple[tuple[int, ...], str]  # widths of the hidden layers, activation

CHECK_EVERY = 50  # steps between two looks for a chain that diverged


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
    least_lr: float = 0.05  # of the first lr: a chain that stands still gives the same again

    def is_due(self, step: int) -> bool:
        """Whether the state after this step is kept: evenly spaced, the last one included."""
        first = math.ceil(self.burn_in * self.steps)
        after = step + 1 - first
        room = self.steps - first
        return after > 0 and after * self.samples // room > (after - 1) * self.samples // room

    def using(self, network: Network) -> Plan:
        """The plan with other hidden layers between the same inputs and outputs."""
        hidden, activation = network
        return replace(self, sizes=(self.sizes[0], *hidden, self.sizes[-1]), activation=activation)

    def lr_at(self, step: int) -> float:
        """The learning rate falls by a cosine, to a small share of the first."""
        wave = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.lr * (self.least_lr + (1 - self.least_lr) * wave)


@dataclass(frozen=True)
class Draws:
    """Kept networks: one array (samples, in, out) for each parameter, and their heats."""

    params: list[Floats]
    heats: Floats


class Stack:
    """C networks in one flat tensor per variable: the rule is then one call, not one per layer.

    The noise comes from a generator, at a fifth of the cost of counter-based noise for networks
    this small: a fit is never resumed in the middle.
    """

    def __init__(self, plan: Plan, priors: Tensor, num_data: int, generator: torch.Generator):
        start = draw_networks(plan.sizes, priors.clamp(max=1).sqrt(), generator)
        self.flat = torch.cat([p.reshape(-1) for p in start])
        self.grad = torch.zeros_like(self.flat)
        self.layers = views(self.flat, start)
        for layer, grad in zip(self.layers, views(self.grad, start), strict=True):
            layer.requires_grad_()
            layer.grad = grad
        self._shapes = start
        self._chains = torch.arange(plan.chains)
        self._chain_of = torch.cat([self._chains.repeat_interleave(p[0].numel()) for p in start])
        self._group = settings(plan, num_data)
        # The guide, and velocities if there is momentum.
        _, *self._others = EntropyMCMC.update(self._group).begin(self.flat, self._group)
        self._decay: Any = units.weight_decay(priors, num_data)
        self._temperature = plan.temperature
        self._generator = generator

    @torch.no_grad()
    def step(self, lr: float, heats: Tensor) -> None:
        """Move all chains by the sampler's rule, chain c at temperature T·heats[c]."""
        self._group["lr"] = lr
        update = EntropyMCMC.update(self._group)
        self._group["last_lr"] = lr
        c = update.coefficients
        c = c._replace(
            decay=self._spread(lr * heats * self._decay),
            noise=self._spread(c.noise * (self._temperature * heats).sqrt()),
        )
        first, second = torch.randn(2, self.flat.numel(), generator=self._generator)
        variables = update.variables(self.flat, *self._others)
        theta, *self._others = update.rule(variables, self.grad, (first, second), c)
        self.flat.copy_(theta)

    def _spread(self, each: Tensor) -> Tensor:
        """A number for each chain, repeated for each of its weights; for equal chains, one."""
        each = each.expand(len(self._chains))
        return each[0] if bool((each == each[0]).all()) else each[self._chain_of]

    def states(self, roles: str) -> list[list[Tensor]]:
        """Copies of the networks of the roles."""
        shown = {"theta": [self.flat], "guide": self._others[:1]}
        chosen = shown["theta"] + shown["guide"] if roles == "both" else shown[roles]
        return [views(flat.clone(), self._shapes) for flat in chosen]


def views(flat: Tensor, shapes: Sequence[Tensor]) -> list[Tensor]:
    """Consecutive parts of `flat`, each in the shape of one of `shapes`."""
    parts = torch.split(flat, [p.numel() for p in shapes])
    return [part.detach().view(p.shape) for part, p in zip(parts, shapes, strict=True)]


def settings(plan: Plan, num_data: int) -> dict[str, Any]:
    """The group of hyper-parameters of `EntropyMCMC`, after its checks, at temperature 1."""
    return EntropyMCMC.settings(
        lr=plan.lr,
        num_data=num_data,
        eta=units.eta_of_horizon(plan.horizon, plan.lr, num_data),
        momentum=plan.momentum,
        seed=plan.seed,
    )


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
    """Run the chains on the table (x, y) and return what was kept.

    Chains share the table and the prior unless `rows` (C, n) gives each its own rows, and
    `priors` (C,) its own prior variance. `watch(step, layers)` is called after every step.
    """
    generator = torch.Generator().manual_seed(plan.seed)
    num_data = len(x) if rows is None else rows.shape[1]
    if priors is None:
        priors = torch.full((plan.chains,), plan.prior_variance)
    stack = Stack(plan, priors, num_data, generator)
    kept: list[list[Tensor]] = []
    heats: list[Tensor] = []
    for step, (inputs, targets) in zip(
        range(plan.steps), _batches(plan, x, y, rows, generator), strict=False
    ):
        losses = likelihood.losses(forward(stack.layers, inputs, plan.activation), targets)
        stack.grad.zero_()
        losses.sum().backward()  # type: ignore[no-untyped-call]
        stack.step(plan.lr_at(step), likelihood.heats)
        if step % CHECK_EVERY == 0:
            _check(losses, step)
        if watch:
            watch(step, stack.layers)
        if plan.is_due(step):
            states = stack.states(plan.roles)
            kept += states
            heats += [likelihood.heats.expand(plan.chains)] * len(states)
    _check(stack.flat, plan.steps)
    params = [torch.cat(tensors).numpy() for tensors in zip(*kept, strict=True)]
    return Draws(params, torch.cat(heats).numpy())


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
