"""The predictive average as one `nn.Module`, which `torch.export` and ONNX can take.

It holds a network for each sample and calls them one after another. What is the same in all
samples is there once: a frozen part of the network (a backbone under a sampled last layer) is one
module, and runs once per call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc.posterior.forward import Load, Output, tensor_of
from entropy_mcmc.posterior.model_inputs import call
from entropy_mcmc.posterior.model_tensors import layout
from entropy_mcmc.posterior.predictive import moments, probabilities
from entropy_mcmc.posterior.private_copy import Workspace


class AveragedModule(nn.Module):
    """Inputs → class probabilities (rows, classes), or mean and variance (rows, 2).

    Made by `Posterior.as_module`. It stays in eval mode, and its parameters need no gradients.

    Args:
        networks: One for each sample.
        likelihood: "classification" or "regression".
        output: Maps a network's result to a tensor.
        temperature: τ of a `TemperatureScaling`, for classification.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module],
        likelihood: str,
        output: Output | None,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.likelihood = likelihood
        self.temperature = temperature
        self._output = output
        self._once = [m.forward for m in self.modules() if isinstance(m.forward, _Once)]
        self.requires_grad_(False)
        self.train(False)

    def forward(self, inputs: Any) -> Tensor:
        """The average of all samples' predictions; `inputs` as in `Posterior.predict_proba`."""
        for once in self._once:
            once.forget()
        results = [tensor_of(call(network, inputs), self._output) for network in self.networks]
        for once in self._once:
            once.forget()
        meaning = probabilities if self.likelihood == "classification" else moments
        return self.average([meaning(result) for result in results])

    def average(self, each: Sequence[Tensor] | Tensor) -> Tensor:
        """The average of the samples' own predictions, each as `Posterior.sample_predictions`."""
        if self.likelihood == "regression":
            return _mixture(each)
        return _scaled(_mean(each), self.temperature)

    def train(self, mode: bool = True) -> AveragedModule:
        """Stay in eval mode: a sample predicts without dropout and with its own statistics."""
        super().train(False)
        return self


def _mean(values: Sequence[Tensor] | Tensor) -> Tensor:
    """One sum after another, as the stream of `Posterior.predict_proba` takes them."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total / len(values)


def _scaled(probs: Tensor, temperature: float) -> Tensor:
    """Probabilities ∝ p^(1/τ), as `TemperatureScaling` makes them."""
    if temperature == 1.0:
        return probs
    logs = probs.clamp_min(torch.finfo(torch.float32).tiny).log()
    return torch.softmax(logs / temperature, dim=1)


def _mixture(values: Sequence[Tensor] | Tensor) -> Tensor:
    """Mean and variance of the samples' Gaussians; the mean where there is no variance."""
    stacked = torch.stack(list(values))
    if stacked.ndim == 2:
        return stacked.mean(0)
    means, noise = stacked[..., 0], stacked[..., 1]
    variance = noise.mean(0) + means.var(0, correction=0)
    return torch.stack([means.mean(0), variance], dim=1)


def filled_networks(blank: nn.Module, loads: Iterable[Load]) -> list[nn.Module]:
    """A network for each sample; what is the same in all samples is the same object.

    Args:
        blank: A network that nobody else uses.
        loads: The samples.
    """
    states = []
    work = Workspace(blank)
    for _, fill in loads:
        fill(work)
        states.append({n: s.tensor.detach().clone() for n, s in work.layout.slots.items()})
    same = {n for n, t in states[0].items() if all(torch.equal(t, s[n]) for s in states[1:])}
    frozen = _frozen_modules(blank, same) if len(states) > 1 else []
    for module in frozen:
        module.forward = _Once(module.forward)
    return [_with_state(blank, states.pop(0), same, frozen) for _ in range(len(states))]


def _frozen_modules(model: nn.Module, same: set[str]) -> list[nn.Module]:
    """The largest submodules that have parameters, all of them the same in every sample."""
    kept = {id(layout(model).slots[name].tensor) for name in same}
    modules: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        tensors = [*module.parameters(), *module.buffers()]
        if tensors and module is not model and all(id(t) in kept for t in tensors):
            modules.append(module)
            return
        for child in module.children():
            visit(child)

    visit(model)
    return list({id(module): module for module in modules}.values())


def _with_state(
    blank: nn.Module, state: dict[str, Tensor], same: set[str], frozen: Sequence[nn.Module]
) -> nn.Module:
    """A copy of the network with a sample's tensors, sharing what is the same in all samples."""
    shared: dict[int, Any] = {id(module): module for module in frozen}
    slots = layout(blank).slots
    shared |= {id(slots[name].tensor): slots[name].tensor for name in same}
    network = copy.deepcopy(blank, shared)
    with torch.no_grad():
        for name, slot in layout(network).slots.items():
            if slot.tensor is not slots[name].tensor:
                slot.tensor.copy_(state[name])
    return network


class _Once:
    """A module's forward that is computed once for the same inputs: the networks share it.

    Inputs are compared as objects, so that a result is used again only where it must be equal;
    both are read and replaced together, so that threads can only miss each other's results.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        self._forward = forward
        self._last: tuple[tuple[Any, ...], Any] | None = None

    def forget(self) -> None:
        """Begin or end a call of the averaged module."""
        self._last = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        given, last = (*args, *kwargs, *kwargs.values()), self._last
        if last is not None and _same_objects(last[0], given):
            return last[1]
        result = self._forward(*args, **kwargs)
        self._last = given, result
        return result


def _same_objects(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))
