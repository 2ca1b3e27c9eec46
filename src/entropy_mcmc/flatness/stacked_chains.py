"""The chains of `localised.run_chains` in one stack: one forward pass and one step for all.

Chain k draws the batches and the noise of its own seed, so that it is the chain that runs alone,
but for the rounding of batched products.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from entropy_mcmc import stacked_layers
from entropy_mcmc.chains.stacked_optimizer import stacked_optimizer
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness.given_data import Batch
from entropy_mcmc.flatness.localised import (
    Plan,
    Target,
    Trace,
    counted_temperatures,
    show,
    zeros_like,
)
from entropy_mcmc.flatness.model_and_batches import Loss, batches, parameters
from entropy_mcmc.samplers import SGLD


@dataclass(frozen=True)
class Networks:
    """Copies of a feed-forward network: `weights` are those that move, with a leading dimension.

    `fixed` are frozen weights and buffers, the same for all.
    """

    layers: list[stacked_layers.Layer]
    weights: dict[str, Tensor]
    fixed: Mapping[str, Tensor]

    @classmethod
    def of(cls, model: nn.Module, count: int, inputs: Tensor) -> Networks:
        """Copies of a model that can be called with a stack of such inputs."""
        layers = stacked_layers.known_layers(model, training=False)
        held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        wide = {k: t.detach().expand(count, *t.shape) for k, t in held.items()}
        known = layers is not None and stacked_layers.has_all(wide, layers)
        if layers is None or not known or not stacked_layers.takes(layers, inputs[None]):
            raise ConfigError(
                "stacked=True needs a feed-forward network of linear layers, activations, batch "
                f"norm and dropout, got {type(model).__name__}; use stacked=False"
            )
        moving = {k: wide.pop(k).clone().requires_grad_() for k in parameters(model)}
        return cls(layers, moving, wide)

    def __call__(self, members: Sequence[int], inputs: Tensor) -> Tensor:
        """Outputs of some of the networks, each for its own rows."""
        state = {**self.weights, **self.fixed}
        if len(members) < len(next(iter(state.values()))):
            state = {name: tensor[list(members)] for name, tensor in state.items()}
        return stacked_layers.run(self.layers, inputs, state)


def run_stack(model: nn.Module, loss: Loss, plan: Plan, seeds: Sequence[int]) -> list[Trace]:
    """A chain for each seed from w*, the model's parameters, which stay there."""
    parts, target = plan.parts, plan.target
    networks = Networks.of(model, len(seeds), parts.get(0)[0])
    weights = list(networks.weights.values())
    center = [p.detach().clone() for p in weights]
    moved = [zeros_like(p) for p in weights]
    sampler = stacked_optimizer(SGLD, seeds, lambda kind: kind(moved, **target.sampler_settings))
    drawn = [parts.draw(target.steps, seed) for seed in seeds]
    traces = [Trace([], [], [], []) for _ in seeds]
    ended: dict[int, int] = {}  # chain → the step at which it diverged
    for step, numbers in enumerate(zip(*drawn, strict=True)):
        values, slopes = losses_and_gradients(networks, loss, [parts.get(i) for i in numbers])
        for k, value in enumerate(values):
            if not math.isfinite(value):
                ended.setdefault(k, max(step, 1))
        if len(ended) == len(seeds):
            break
        for u, slope, s in zip(moved, slopes, target.scale, strict=True):
            u.grad = slope.to(u) * s.to(u)
        if step >= plan.burn_in:
            excess = [value - plan.starts[i] for value, i in zip(values, numbers, strict=True)]
            _note(traces, ended, excess, moved, target)
        sampler.step()
        show(weights, center, target.scale, moved)
    return [replace(trace, diverged=ended.get(k, 0)) for k, trace in enumerate(traces)]


@torch.enable_grad()
def losses_and_gradients(
    networks: Networks, loss: Loss, own: Sequence[Batch]
) -> tuple[list[float], list[Tensor]]:
    """The mean loss of each network on its own batch, and its gradients, a few rows at a time."""
    weights = list(networks.weights.values())
    values, slopes = [0.0] * len(own), [torch.zeros_like(p) for p in weights]
    for rows in sorted({len(x) for x, _ in own}):  # batches of one length go together
        members = [k for k, (x, _) in enumerate(own) if len(x) == rows]
        for parts in zip(*(batches(own[k], weights[0].device) for k in members), strict=True):
            outputs = networks(members, torch.stack([x for x, _ in parts]))
            share = len(parts[0][0]) / rows
            each = [loss(out, y) * share for out, (_, y) in zip(outputs, parts, strict=True)]
            total = torch.stack([value.reshape(()) for value in each]).sum()
            gradients = torch.autograd.grad(
                total, weights, allow_unused=True, materialize_grads=True
            )
            torch._foreach_add_(slopes, gradients)
            for k, value in zip(members, each, strict=True):
                values[k] += float(value.detach())
    return values, slopes


def _note(
    traces: Sequence[Trace],
    ended: Mapping[int, int],
    excess: Sequence[float],
    moved: Sequence[nn.Parameter],
    target: Target,
) -> None:
    """Append the readings of a step to the chains that have not diverged."""
    distance, temperature = _readings(moved, target)
    counted = counted_temperatures(moved, target, stacked=True).tolist()
    for k, trace in enumerate(traces):
        if k not in ended:
            trace.excess.append(excess[k])
            trace.distance.append(distance[k])
            trace.temperature.append(temperature[k])
            trace.counted.append(counted[k])


@torch.no_grad()
def _readings(moved: Sequence[nn.Parameter], target: Target) -> tuple[list[float], list[float]]:
    """‖u‖² and the configurational temperature u·∇U/d of each chain."""
    decay = target.sampler_settings["weight_decay"]
    u = torch.cat([p.flatten(1) for p in moved], dim=1)
    slope = torch.cat([p.grad.flatten(1) for p in moved if p.grad is not None], dim=1).double()
    work = (u.double() * (slope + decay * u.double())).sum(1)
    return u.square().sum(1).tolist(), (target.num_data * work / u.shape[1]).tolist()
