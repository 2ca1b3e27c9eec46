"""The loop behind the estimators: C chains of EntropyMCMC at once, in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc import units
from entropy_mcmc.chains.stack import move
from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.samplers import EntropyMCMC
from entropy_mcmc.samplers.rule import Update
from entropy_mcmc.sklearn.chain_plan import Plan
from entropy_mcmc.sklearn.likelihood import Likelihood
from entropy_mcmc.sklearn.networks import backward, forward

Watch = Callable[[int, Tensor], None]

PASSES = 8  # over the rows between two shuffles, which cost as much as a few steps
CHECK_EVERY = 50  # steps between two looks for a chain that diverged


@dataclass(frozen=True)
class Table:
    """Standardised inputs (rows, in), targets (rows, out), and weights (rows,) of mean 1 or None.

    `num_data` is N of the posterior: the number of rows, or the sum of their weights.
    """

    x: Tensor
    y: Tensor
    weights: Tensor | None = None
    num_data: float = 0.0

    def __len__(self) -> int:
        return len(self.x)

    @property
    def per_row(self) -> float:
        """N for each row: 1 without weights."""
        return self.num_data / len(self) if self.num_data else 1.0

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Inputs, targets and weights of rows (C, n)."""
        return self.x[rows], self.y[rows], None if self.weights is None else self.weights[rows]

    def whole(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """All of them, as those of one chain."""
        return self.x[None], self.y[None], None if self.weights is None else self.weights[None]


@dataclass(frozen=True)
class Draws:
    """Kept networks (samples, C, P), those of both roles one after the other, and their heats."""

    flat: Tensor
    heats: Tensor  # (samples, C)


def run(
    plan: Plan,
    table: Table,
    likelihood: Likelihood,
    *,
    rows: Tensor | None = None,
    priors: Tensor | None = None,
    temperatures: Tensor | None = None,
    watch: Watch | None = None,
) -> Draws:
    """Run the chains and return what was kept.

    Chains share rows, prior and temperature unless `rows` (C, n) gives each its own rows, `priors`
    (C,) its own prior variance, and `temperatures` (C,) its own T. `watch(step, flat)` is called
    after every step.
    """
    with no_denormals():
        generator = torch.Generator().manual_seed(plan.seed)
        count = len(table) if rows is None else rows.shape[1]
        if priors is None:
            priors = torch.full((plan.chains,), plan.prior_variance)
        if temperatures is None:
            temperatures = torch.full((plan.chains,), plan.temperature)
        chains = ChainStack(plan, priors, temperatures, count * table.per_row, generator)
        form, grad = plan.architecture, torch.empty_like(chains.flat)
        layers, grads = form.layers(chains.flat), form.layers(grad)
        kept, heats = [], []
        batches = _batches(plan, table, rows, generator)
        for step, (x, y, weights) in zip(range(plan.steps), batches, strict=False):
            outputs, trace = forward(form, layers, x)
            slope = likelihood.slopes(outputs, y, weights)
            backward(form, layers, x, trace, slope, grads)
            chains.step(grad, plan.lr_at(step), likelihood.heats, plan.is_noisy(step))
            if step % CHECK_EVERY == 0:
                _check(chains.flat, step)
            if watch:
                watch(step, chains.flat)
            if plan.is_due(step):
                kept += [chains.copy(name, likelihood.heats) for name in plan.variables]
                heats += [likelihood.heats.expand(plan.chains)] * len(plan.variables)
        _check(chains.flat, plan.steps)
    return Draws(torch.stack(kept), torch.stack(heats))


class ChainStack:
    """θ of C chains as rows (C, P), moved by Entropy-MCMC's rule with a collapsed guide.

    The distribution of θ does not depend on the guide: θ moves alone, and θ_a ~ N(θ, ηT·I) is drawn
    when it is kept. The noise comes from a generator, at a fifth of the cost of counter-based noise
    for networks this small: a fit is never resumed in the middle.
    """

    def __init__(
        self,
        plan: Plan,
        priors: Tensor,
        temperatures: Tensor,
        num_data: float,
        generator: torch.Generator,
    ) -> None:
        """Networks drawn from their priors, at most N(0, 1)."""
        self.flat = plan.architecture.draw(priors.clamp(max=1).sqrt(), generator)
        self._generator = generator
        self._group: dict[str, Any] = EntropyMCMC.settings(
            lr=plan.lr,
            num_data=num_data,
            eta=units.eta_of_horizon(plan.horizon, plan.lr, num_data),
            momentum=plan.momentum,
            guide_update="collapsed",
            seed=plan.seed,
        )
        self._decay: Any = units.weight_decay(priors, num_data)
        self._temperatures = temperatures
        self._variables = EntropyMCMC.update(self._group).begin(self.flat, self._group)

    def step(self, grad: Tensor, lr: float, heats: Tensor, noisy: bool) -> None:
        """Move all chains, chain c at temperature T[c]·heats[c], with its own weight decay."""
        self._group["lr"], self._group["noise"] = lr, noisy
        update: Update = EntropyMCMC.update(self._group)
        c = update.coefficients
        own = {"decay": (c.lr * heats * self._decay)[:, None]}
        eps = None
        if noisy:
            eps = (torch.randn(self.flat.shape, generator=self._generator), self.flat)
            own["noise"] = (c.noise * (self._temperatures * heats).sqrt())[:, None]
        moved = move(update, self._variables, grad, eps, **own)
        self.flat.copy_(moved.theta)  # in place: views of the layers stay valid
        self._variables = moved._replace(theta=self.flat)
        self._group["step"] += 1
        self._group["last_lr"] = lr

    def copy(self, variable: str, heats: Tensor) -> Tensor:
        """θ as it is now, or a guide drawn around it."""
        if variable == "theta":
            return self.flat.clone()
        spread = math.sqrt(self._group["eta"]) * (self._temperatures * heats).sqrt()[:, None]
        return self.flat + spread * torch.randn(self.flat.shape, generator=self._generator)


@contextmanager
def no_denormals() -> Iterator[None]:
    """Flush denormal numbers to zero: products with probabilities of 1e-40 cost 100 times more."""
    already = bool((torch.tensor(1e-40) * 1).item() == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)


def _batches(
    plan: Plan, table: Table, rows: Tensor | None, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Inputs, targets and weights of each step: all rows if they fit a batch."""
    count = len(table) if rows is None else rows.shape[1]
    if count <= plan.batch:
        x, y, weights = table.whole() if rows is None else table.take(rows)
        y = y.mT.contiguous().mT  # likelihoods read it as (C, out, rows)
        while True:
            yield x, y, weights
    for numbers in row_numbers(plan, count, generator):
        yield table.take(numbers if rows is None else rows.gather(1, numbers))


def row_numbers(plan: Plan, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Row numbers (C, batch) without end, each row equally often; a new order every few passes.

    Batches go round the order: one that reaches its end goes on at its beginning.
    """
    while True:
        order = torch.rand(plan.chains, count, generator=generator).argsort(dim=1)
        ring = torch.cat([order, order[:, : plan.batch]], dim=1)
        for number in range(PASSES * count // plan.batch):
            start = number * plan.batch % count
            yield ring[:, start : start + plan.batch]


def _check(values: Tensor, step: int) -> None:
    if not bool(torch.isfinite(values).all()):
        raise NonFiniteError(f"the chains diverged before step {step}; use a smaller lr")
