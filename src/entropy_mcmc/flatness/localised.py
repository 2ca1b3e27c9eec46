r"""SGLD around a trained network, held there by a Gaussian.

The chain moves :math:`u = (w - w^*)/s`, with one scale s per weight or tensor, and targets

.. math:: p(u) \propto \exp\{-n\beta L(w^* + s u) - \tfrac\gamma2\|u\|^2\}.

In the units of the samplers that is exp(−U/T) with T = 1/β and U = n(L + ½λ‖u‖²), λ = γT/n: plain
`SGLD` in u, whose prior is the localisation. With the learning rate lr its step on the energy
nβL + ½γ‖u‖² is α = lr·T/n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc.diagnostics import configurational_temperature
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness.given_data import Batch, Source, is_pair
from entropy_mcmc.flatness.localisation_effect import LocalisationEffect
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    batches,
    device_of,
    generator,
    move_to,
    parameters,
    plain_mean,
    vector,
)
from entropy_mcmc.samplers import SGLD


@dataclass(frozen=True)
class Target:
    """The localised target, and the step with which it is sampled."""

    num_data: int
    temperature: float
    localisation: float
    scale: Sequence[Tensor]  # one per parameter tensor, each a number or of the tensor's shape
    steps: int
    lr: float = math.nan
    effect: LocalisationEffect | None = None  # of γ, where the Hessian was measured
    directions: Tensor = field(default_factory=lambda: torch.empty(0, 0))  # `counted_directions`

    @property
    def inverse(self) -> float:
        """nβ = n/T, the weight of the mean loss in the energy."""
        return self.num_data / self.temperature

    @property
    def step_size(self) -> float:
        """α = lr/(nβ), the step on the energy nβL + ½γ‖u‖²."""
        return self.lr / self.inverse

    @property
    def sampler_settings(self) -> dict[str, Any]:
        """Of `SGLD` in u, whose prior is the localisation."""
        return {
            "lr": self.lr,
            "num_data": self.num_data,
            "temperature": self.temperature,
            "weight_decay": self.localisation / self.inverse,
            "check_every": 0,  # the loss is looked at in every step
        }


@dataclass(frozen=True)
class MiniBatches:
    """A fixed partition of the data; `get(i)` is batch i, `sizes` are the numbers of rows."""

    get: Callable[[int], Batch]
    sizes: Sequence[int]

    @property
    def rows(self) -> int:
        """Number of rows in all."""
        return sum(self.sizes)

    def draw(self, count: int, seed: int) -> list[int]:
        """Independent batches, drawn in proportion to their rows: unbiased for the mean loss."""
        weights = torch.tensor(self.sizes, dtype=torch.float64)
        return torch.multinomial(weights, count, True, generator=generator(seed)).tolist()

    def first(self, rows: int) -> list[Batch]:
        """Batches from the beginning, until they hold `rows` rows."""
        taken: list[Batch] = []
        for i in range(len(self.sizes)):
            if sum(len(x) for x, _ in taken) >= rows:
                break
            taken.append(self.get(i))
        return taken


def partition(
    data: Source, batch_size: int | None, device: torch.device, seed: int | None
) -> MiniBatches:
    """Shuffled rows of (x, y) in batches; an iterable keeps its own batches, held in memory."""
    if is_pair(data) and batch_size is not None and batch_size < len(data[0]):
        x, y = data
        order = torch.randperm(len(x), generator=generator(seed))
        rows = torch.split(order, int(batch_size))
        return MiniBatches(
            lambda i: (x[rows[i].to(x.device)], y[rows[i].to(y.device)]), list(map(len, rows))
        )
    own = list(batches(data, device, size=2**62))
    if not own:
        raise ConfigError("data must hold at least one row, got none")
    return MiniBatches(own.__getitem__, [len(x) for x, _ in own])


def start_losses(model: nn.Module, loss: Loss, parts: MiniBatches) -> list[float]:
    """The loss of every batch at w*: subtracted from the same batch's loss along the chain."""
    return [plain_mean(model, loss, parts.get(i)) for i in range(len(parts.sizes))]


@dataclass(frozen=True)
class Trace:
    """One chain after its burn-in, a number per draw.

    Attributes:
        excess: Loss above that of w* on the same batch.
        distance: ‖u‖².
        temperature: Readings of the configurational temperature.
        counted: Readings of `counted_temperatures`.
        diverged: Step at which the loss was no longer finite; 0 if it always was.
    """

    excess: list[float]
    distance: list[float]
    temperature: list[float]
    counted: list[float]
    diverged: int = 0


@dataclass(frozen=True)
class Plan:
    """What all chains share; `starts` are the losses of the batches at w*."""

    parts: MiniBatches
    starts: Sequence[float]
    target: Target
    burn_in: int


def run_chains(model: nn.Module, loss: Loss, plan: Plan, seeds: Sequence[int]) -> list[Trace]:
    """A chain for each seed, one after another, from w*, the model's parameters.

    The model is left where the last chain ended.
    """
    center, traces = vector(model), []
    for seed in seeds:
        move_to(model, center)
        traces.append(_run_chain(model, loss, plan, seed))
    return traces


def _run_chain(model: nn.Module, loss: Loss, plan: Plan, seed: int) -> Trace:
    target = plan.target
    weights = list(parameters(model).values())
    center = [p.detach().clone() for p in weights]
    moved = [zeros_like(p) for p in weights]
    sampler = SGLD(moved, seed=seed, **target.sampler_settings)
    excess: list[float] = []
    distance: list[float] = []
    heat: list[float] = []
    counted: list[float] = []
    for step, i in enumerate(plan.parts.draw(target.steps, seed)):
        value, slopes = loss_and_gradients(model, loss, plan.parts.get(i))
        if not math.isfinite(value):
            return Trace(excess, distance, heat, counted, diverged=max(step, 1))
        for u, slope, s in zip(moved, slopes, target.scale, strict=True):
            u.grad = slope.to(u) * s.to(u)
        if step >= plan.burn_in:
            excess.append(value - plan.starts[i])
            distance.append(sum(float(u.detach().square().sum()) for u in moved))
            heat.append(configurational_temperature(sampler).value)
            counted.append(float(counted_temperatures(moved, target)))
        sampler.step()
        show(weights, center, target.scale, moved)
    return Trace(excess, distance, heat, counted)


@torch.no_grad()
def counted_temperatures(
    moved: Sequence[nn.Parameter], target: Target, stacked: bool = False
) -> Tensor:
    r"""T(1 + α/2 Σ s_v z_v²) over the counted directions v of share s, z the gradient of a step.

    In a stationary chain a step u − αz + √(2α)ξ leaves E[u_v²] as it is, so that
    E[u_v z_v] = 1 + αE[z_v²]/2: the configurational temperature along v, of which only the heat
    that the step and the mini-batches add is read.
    """
    first = 1 if stacked else 0
    decay = target.sampler_settings["weight_decay"]
    slope = torch.cat(
        [(p.grad + decay * p).flatten(first) for p in moved if p.grad is not None], -1
    )
    z = target.inverse * (slope @ target.directions.to(slope).mT).double()
    return target.temperature * (1 + target.step_size / 2 * z.square().sum(-1))


@torch.enable_grad()
def loss_and_gradients(model: nn.Module, loss: Loss, batch: Batch) -> tuple[float, list[Tensor]]:
    """The mean loss of a batch and its gradients, a few rows at a time."""
    weights = list(parameters(model).values())
    total, slopes, rows = 0.0, [torch.zeros_like(p) for p in weights], len(batch[0])
    for x, y in batches(batch, device_of(model)):
        value = loss(model(x), y) * (len(x) / rows)
        parts = torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
        torch._foreach_add_(slopes, parts)
        total += float(value.detach())
    return total, slopes


@torch.no_grad()
def show(
    weights: Sequence[Tensor],
    center: Sequence[Tensor],
    scale: Sequence[Tensor],
    moved: Sequence[Tensor],
) -> None:
    """Write w* + s·u into the weights."""
    for p, c, s, u in zip(weights, center, scale, moved, strict=True):
        p.copy_(c + s.to(u) * u)


def zeros_like(p: Tensor) -> nn.Parameter:
    """Where a chain begins, in at least single precision."""
    dtype = torch.float64 if p.dtype == torch.float64 else torch.float32
    return nn.Parameter(torch.zeros_like(p, dtype=dtype))
