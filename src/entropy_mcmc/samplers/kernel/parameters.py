"""Checks of what a user hands to a sampler: parameters, gradients, a closure, a state dict."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.samplers import registry
from entropy_mcmc.samplers.hyper_parameters import hyper_parameters
from entropy_mcmc.units import decay_of_prior

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
Closure = Callable[[], Any]
Group = dict[str, Any]


def read_once(params: Params) -> Params:
    """The parameters as a list; an empty one is mostly a generator that was read before."""
    if isinstance(params, Tensor | dict):
        return params  # torch refuses these, and says why
    listed: Any = list(params)
    if not listed:
        raise ConfigError(
            "params must hold at least one parameter, got none; a generator can be read only once: "
            "pass model.parameters() itself, or a list"
        )
    return listed  # type: ignore[no-any-return]


def check_parameter(param: Tensor) -> None:
    """Refuse dtypes and layouts for which the distribution would be silently wrong."""
    if param.dtype == torch.float16:
        raise ConfigError(
            "parameters must be float32, float64 or bfloat16, got torch.float16, in which a step "
            "rounds to nothing; keep the model in float32 and use torch.autocast, or bfloat16"
        )
    if param.is_sparse or param.layout != torch.strided:
        raise ConfigError(f"parameters must be dense, got layout={param.layout}; call .to_dense()")
    if param.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        raise ConfigError(
            f"parameters must be float32, float64 or bfloat16, got {param.dtype}; "
            f"for a complex parameter register torch.view_as_real of it"
        )


def check_gradient(grad: Tensor | None) -> None:
    """Refuse sparse gradients."""
    if grad is not None and grad.is_sparse:
        raise ConfigError(
            f"gradients must be dense, got a sparse one of shape {tuple(grad.shape)}; "
            f"use sparse=False in the embedding"
        )


def check_closure(sampler: object, closure: Closure | None) -> None:
    """Refuse a step without the closure that it needs."""
    if closure is None:
        raise ConfigError(
            f"{type(sampler).__name__}.step needs a closure that clears the gradients, computes "
            f"the loss, calls backward and returns the loss, got closure=None; "
            f"pass step(closure)"
        )


def warn_of_no_gradient() -> None:
    """Say that a step moved nothing, at the line of the user's loop."""
    warnings.warn(
        "no parameter of the sampler has a gradient, so that this step moved nothing; call "
        "loss.backward() before step(), and give the sampler the parameters of the model that "
        "computed the loss",
        UserWarning,
        stacklevel=6,
    )


def state_prior(group: Group, num_data: object) -> None:
    """Turn a group's `prior_variance` into its `weight_decay`, the entry that is kept."""
    variance = group.pop("prior_variance", None)
    if variance is None:
        return
    if group.get("weight_decay"):
        raise ConfigError(
            f"prior_variance and weight_decay state the same prior, got prior_variance="
            f"{variance!r} and weight_decay={group['weight_decay']!r}; give one of them"
        )
    group["weight_decay"] = decay_of_prior(variance, num_data)


def names(groups: Iterable[Group]) -> list[str]:
    """What to call each parameter in a message: its own name, or its place."""
    described: list[str] = []
    for number, group in enumerate(groups):
        given = group.get("param_names")
        for i, p in enumerate(group["params"]):
            plain = f"parameter {len(described)} (group {number}, shape {tuple(p.shape)})"
            described.append(repr(given[i]) if given else plain)
    return described


# Entries that state dicts of earlier versions lack, and what those versions did.
LATER_ENTRIES: Mapping[str, Any] = {
    "integrator": "euler",
    "coupled": True,
    "replicas": 1,
    "exchange_every": 1,
    "replica": 0,
    "round_lr": 0.0,
    "exchange_lr": 0.0,
    "rests": [],
}


def with_later_entries(state_dict: dict[str, Any], groups: Iterable[Group]) -> dict[str, Any]:
    """A state dict with the entries that its groups lack because an earlier version saved it."""
    given = state_dict["param_groups"]
    whole = [
        # Behind the others, whose order a checkpoint repeats.
        {**saved, **{n: v for n, v in LATER_ENTRIES.items() if n in group and n not in saved}}
        for saved, group in zip(given, groups, strict=False)
    ]
    return {**state_dict, "param_groups": [*whole, *given[len(whole) :]]}


def saved_variables(
    state_dict: dict[str, Any], groups: Iterable[Group]
) -> Iterator[tuple[Tensor, str, Tensor]]:
    """Parameter, name and value of each saved variable, in the precision in which it was saved.

    torch casts state to the parameter's dtype, which would round the float32 variables.
    """
    params = [p for group in groups for p in group["params"]]
    order = [i for group in state_dict["param_groups"] for i in group["params"]]
    for param, i in zip(params, order, strict=True):
        for name, value in state_dict["state"].get(i, {}).items():
            yield param, name, value


def check_origin(sampler: object, saved: Mapping[str, Any], group: Group) -> None:
    """Refuse a group of a state dict that another class of sampler has saved."""
    missing = sorted(set(group) - set(saved) - {"params", "param_names"})
    if missing:
        raise ConfigError(
            f"state_dict must come from {type(sampler).__name__}, but lacks {missing}; "
            f"it was saved by another optimizer"
        )
    # Schedulers and users may add entries of their own; hyper-parameters tell whose state it is.
    known = {name for other in registry.SAMPLERS for name in hyper_parameters(registry.load(other))}
    foreign = sorted((set(saved) - set(group)) & known)
    if foreign:
        raise ConfigError(
            f"state_dict must come from {type(sampler).__name__}, which has no {foreign}; "
            f"load it into a sampler of the class that saved it"
        )
