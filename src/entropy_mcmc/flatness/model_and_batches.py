"""What every measure shares: batches, the flat parameter vector, a model left as it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor, nn

from entropy_mcmc.errors import ConfigError, NonFiniteError, check_count
from entropy_mcmc.flatness.given_data import (
    Batch,
    Data,
    Source,
    as_tensors,
    is_pair,
    pairs,
    refuse_non_finite,
)
from entropy_mcmc.noise import draw_seed

Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
State: TypeAlias = Mapping[str, Tensor]
Refresh: TypeAlias = str | Callable[[nn.Module], object]

_BATCH = 256


def batches(data: Source, device: torch.device, size: int = _BATCH) -> Iterator[Batch]:
    """Batches of at most `size` on `device`, from (x, y) tensors or an iterable of batches."""
    for x, y in pairs(data):
        for part in zip(torch.split(x, size), torch.split(y, size), strict=True):
            yield part[0].to(device), part[1].to(device)


def subset(data: Data, count: int, *, seed: int | None = 0) -> Batch:
    """A fixed random subset of (x, y): the same for every state that is compared.

    >>> x, y = subset((torch.arange(10.0), torch.arange(10)), 3)
    >>> len(x), torch.equal(x, y.float())
    (3, True)
    """
    pair = as_tensors(data, torch.get_default_dtype())
    if not is_pair(pair):
        raise ConfigError(f"data must be (x, y), got {type(data).__name__}, whose rows are unknown")
    x, y = pair
    if check_count("count", count) > len(x):
        raise ConfigError(f"count must be at most {len(x)}, the size of the data, got {count}")
    index = torch.randperm(len(x), generator=generator(seed))[:count].sort().values
    return x[index.to(x.device)], y[index.to(y.device)]


def generator(seed: int | None) -> torch.Generator:
    """A CPU generator: the same numbers on every device; None draws a seed from torch's own."""
    return torch.Generator().manual_seed(draw_seed() if seed is None else seed)


def check_model(model: nn.Module) -> None:
    """Refuse what is no network, such as a loss in its place."""
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"model must be a torch.nn.Module, got {type(model).__name__}; the order is "
            "(model, loss, data)"
        )


def parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters; frozen ones are no part of the basin."""
    check_model(model)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not trained:
        kind = type(model).__name__
        raise ConfigError(
            f"model must have a parameter with requires_grad=True, got none in {kind}"
        )
    return trained


def device_of(model: nn.Module) -> torch.device:
    """The device of the first trainable parameter."""
    return next(iter(parameters(model).values())).device


def check_weights(weights: Mapping[str, Tensor], owner: str) -> None:
    """Refuse NaN or infinity among named weights."""
    for name, p in weights.items():
        bad = int((~p.detach().isfinite()).sum())
        if bad:
            raise NonFiniteError(
                f"{owner} must have finite weights, got NaN or infinity in {bad} of the "
                f"{p.numel()} of {name!r}; use weights from before the training diverged"
            )


def vector(model: nn.Module) -> Tensor:
    """θ as one flat tensor (a copy)."""
    return torch.cat([p.detach().reshape(-1) for p in parameters(model).values()])


def check_state(model: nn.Module, state: State, owner: str = "a state") -> None:
    """Refuse a stored state without all trainable parameters, or with NaN or infinity in them."""
    missing = [name for name in parameters(model) if name not in state]
    if missing:
        raise ConfigError(f"{owner} must hold every trainable parameter, missing {missing[:3]}")
    check_weights({name: state[name] for name in parameters(model)}, owner)


def state_vector(model: nn.Module, state: State) -> Tensor:
    """The same for a stored state, in the model's order, device and dtype."""
    check_state(model, state)
    return torch.cat([state[name].reshape(-1).to(p) for name, p in parameters(model).items()])


def unflatten(model: nn.Module, flat: Tensor) -> dict[str, Tensor]:
    """A flat tensor back into named shapes (views)."""
    named = parameters(model)
    parts = torch.split(flat, [p.numel() for p in named.values()])
    return {n: part.view_as(p) for (n, p), part in zip(named.items(), parts, strict=True)}


@torch.no_grad()
def move_to(model: nn.Module, flat: Tensor) -> None:
    """Write a flat tensor into the parameters, in place."""
    parts = unflatten(model, flat)
    for name, p in parameters(model).items():
        p.copy_(parts[name])


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode (batch norm uses its stored statistics, no dropout), then as before."""
    check_model(model)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def restoring(model: nn.Module) -> Iterator[None]:
    """Whatever happens inside, parameters, buffers and modes are put back bit for bit."""
    check_model(model)
    kept = [(t, t.detach().clone()) for t in (*model.parameters(), *model.buffers())]
    try:
        with evaluating(model):
            yield
    finally:
        with torch.no_grad():
            for tensor, copy in kept:
                tensor.copy_(copy)


@torch.no_grad()
def load(model: nn.Module, state: State) -> None:
    """Copy a stored state in: every trainable parameter, and the buffers that it holds."""
    move_to(model, state_vector(model, state))
    for name, buffer in model.named_buffers():
        if name in state:
            buffer.copy_(state[name])


def refreshed(model: nn.Module, refresh: Refresh) -> None:
    """Re-estimate batch-norm statistics with the caller's function, or leave them (`"fixed"`)."""
    if callable(refresh):
        refresh(model)
        model.eval()


def refresh_name(refresh: Refresh) -> str:
    """How a result states the choice."""
    if callable(refresh):
        return "refreshed at every point"
    if refresh != "fixed":
        raise ConfigError(f"refresh must be 'fixed' or a function of the model, got {refresh!r}")
    return "fixed"


def mean_over(model: nn.Module, score: Loss, data: Source) -> float:
    """Mean over all samples of a score that is a mean over its batch.

    It may be NaN or infinite, far away from the trained weights, unless the data are.
    """
    mean = plain_mean(model, score, data)
    if not math.isfinite(mean):
        refuse_non_finite(data)
    return mean


@torch.no_grad()
def plain_mean(model: nn.Module, score: Loss, data: Source) -> float:
    """`mean_over` whatever the data hold."""
    total, count = 0.0, 0
    for x, y in batches(data, device_of(model)):
        total += float(score(model(x), y)) * len(x)
        count += len(x)
    if count == 0:
        raise ConfigError("data must hold at least one sample, got none")
    return total / count


@torch.enable_grad()
def mean_gradient(model: nn.Module, loss: Loss, data: Source) -> Tensor:
    """∇ of the mean loss as one flat tensor; `.grad` is not touched."""
    params = list(parameters(model).values())
    total, count = torch.zeros_like(vector(model)), 0
    for x, y in batches(data, device_of(model)):
        grads = torch.autograd.grad(
            loss(model(x), y), params, allow_unused=True, materialize_grads=True
        )
        total += torch.cat([g.reshape(-1) for g in grads]) * len(x)
        count += len(x)
    return total / count


def check_measured(what: str, value: Tensor | float, data: Source) -> None:
    """Refuse a measure at finite weights that is NaN or infinite, with its place in the data."""
    if bool(value.isfinite().all()) if isinstance(value, Tensor) else math.isfinite(value):
        return
    refuse_non_finite(data)
    raise NonFiniteError(
        f"{what} is NaN or infinite at the model's weights, though these and the data are finite; "
        "look at the loss (a logarithm of 0, a root at 0) and at buffers, such as those of batch "
        "norm"
    )


def classification_error(output: Tensor, target: Tensor) -> Tensor:
    """Share of wrong classes.

    >>> classification_error(torch.eye(2), torch.tensor([0, 0])).item()
    0.5
    """
    return (output.argmax(-1) != target).float().mean()
