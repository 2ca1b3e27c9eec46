"""Batch-norm statistics that belong to the weights they are used with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from entropy_mcmc.errors import ConfigError, check_count
from entropy_mcmc.posterior import ranks
from entropy_mcmc.posterior.model_inputs import call, home, inputs_of, to_device
from entropy_mcmc.posterior.model_tensors import unwrap

_Norm = _BatchNorm | _InstanceNorm


def norm_layers(model: nn.Module) -> list[_Norm]:
    """The layers that keep running statistics (batch norm, and instance norm that tracks)."""
    return [m for m in model.modules() if isinstance(m, _Norm) and m.running_mean is not None]


def refresh_batchnorm(
    model: nn.Module, loader: Iterable[Any], *, max_batches: int | None = None
) -> None:
    """Give a model the batch-norm statistics of its present weights, by one pass over `loader`.

    The new statistics are the plain average of the batches' (over all ranks, where there are
    several), not an exponential one. Only these layers see training mode: dropout stays off.
    Batches are x, (x, y), or dicts. Without batch norm nothing happens, and nothing is read.
    If anything fails, the model keeps its old statistics.

    Args:
        model: Its weights, modes and gradients are left as they are.
        loader: Training data, as the network saw it in training.
        max_batches: Stop after this many batches; those of a loader that shuffles are enough.

    >>> model = nn.BatchNorm1d(1, affine=False)
    >>> refresh_batchnorm(model, [torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [7.0]])])
    >>> model.running_mean, model.running_var
    (tensor([4.]), tensor([2.]))
    """
    refresh_with(call, unwrap(model), first_batches(loader, max_batches))


class _FirstBatches:
    """The first batches of a loader, each time it is read."""

    def __init__(self, loader: Iterable[Any], count: int) -> None:
        self._loader, self._count = loader, count

    def __iter__(self) -> Iterator[Any]:
        return islice(self._loader, self._count)


def first_batches(loader: Iterable[Any], max_batches: int | None) -> Iterable[Any]:
    """A loader cut after `max_batches` batches; None leaves it whole."""
    if max_batches is None:
        return loader
    return _FirstBatches(loader, check_count("max_batches", max_batches))


def refresh_with(
    forward: Callable[[nn.Module, Any], Any], model: nn.Module, loader: Iterable[Any]
) -> None:
    """`refresh_batchnorm` of a model that is called as `forward(model, inputs)`."""
    layers = norm_layers(model)
    if not layers:
        return
    totals = [_Total(layer) for layer in layers]
    old = [{k: v.clone() for k, v in layer.named_buffers(recurse=False)} for layer in layers]
    done = False
    try:
        with _eager(), torch.no_grad(), _measuring(model, layers, totals):
            _one_pass(forward, model, loader)
        for layer, total in zip(layers, totals, strict=True):
            total.write(layer)
        done = True
    finally:
        if not done:
            _put_back(layers, old)


def _eager() -> AbstractContextManager[Any]:
    """Code that is compiled already does not see new hooks; an eager pass does."""
    # The compiler takes seconds to import: where it is not, nothing is compiled.
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def _one_pass(
    forward: Callable[[nn.Module, Any], Any], model: nn.Module, loader: Iterable[Any]
) -> None:
    device, dtype = home(model)
    count = 0
    for batch in loader:
        forward(model, to_device(inputs_of(batch), device, dtype))
        count += 1
    if not count:
        raise ConfigError(
            "the loader gave no batch to refresh batch norm with; "
            "pass a loader that can be read once per sample, such as a DataLoader"
        )


class _Total:
    """Sum of one layer's batch statistics, in float64: bfloat16 could not add the small terms."""

    def __init__(self, layer: _Norm) -> None:
        width = layer.num_features
        device = next(layer.buffers()).device
        self.sums = torch.zeros(2, width, dtype=torch.float64, device=device)
        self.calls = 0

    def __call__(self, layer: nn.Module, inputs: Any, result: Any) -> None:
        mean, var = _statistics(layer)
        self.sums += torch.stack([mean, var]).to(self.sums)
        self.calls += 1

    def write(self, layer: _Norm) -> None:
        calls = torch.tensor(float(self.calls), dtype=torch.float64, device=self.sums.device)
        if ranks.several():
            dist.all_reduce(self.sums)
            dist.all_reduce(calls)
        mean, var = _statistics(layer)
        if calls > 0:
            mean.copy_(self.sums[0] / calls)
            var.copy_(self.sums[1] / calls)
            if layer.num_batches_tracked is not None:
                layer.num_batches_tracked.fill_(int(calls))


def _statistics(layer: nn.Module) -> tuple[Tensor, Tensor]:
    mean, var = layer.running_mean, layer.running_var
    assert isinstance(mean, Tensor)
    assert isinstance(var, Tensor)
    return mean, var


@contextmanager
def _measuring(model: nn.Module, layers: list[_Norm], totals: list[_Total]) -> Iterator[None]:
    """Make each call of a layer leave that batch's own statistics in it, and add them up."""
    modes = [(module, module.training) for module in model.modules()]
    momenta = [layer.momentum for layer in layers]
    hooks = [layer.register_forward_hook(t) for layer, t in zip(layers, totals, strict=True)]
    try:
        model.eval()
        for layer in layers:
            layer.training = True
            layer.momentum = 1.0
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for module, mode in modes:
            module.training = mode


def _put_back(layers: list[_Norm], old: list[dict[str, Tensor]]) -> None:
    for layer, buffers in zip(layers, old, strict=True):
        for name, buffer in layer.named_buffers(recurse=False):
            buffer.copy_(buffers[name])
