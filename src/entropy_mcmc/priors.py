"""Priors of a network: parameter groups whose variances follow the kind of parameter.

Three kinds: weights (two dimensions and more), biases (one or none), and all parameters of
normalisation layers (modules with "Norm" in their class's name).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from torch import Tensor, nn

from entropy_mcmc.errors import check_choice
from entropy_mcmc.units import check_variance, decay_of_prior

SCALES = ("none", "fan-in")


class Model(Protocol):
    """Anything with parameters, such as a `torch.nn.Module`."""

    def parameters(self) -> Iterable[Tensor]:
        """Tensors to sample."""
        ...


def prior_groups(
    model: nn.Module,
    variance: float,
    *,
    scale: str = "none",
    biases: float | None = None,
    norms: float | None = None,
    num_data: int | None = None,
) -> list[dict[str, Any]]:
    """Parameter groups of the trainable parameters, each with its `prior_variance`.

    Parameters of equal variance share a group, in the model's order; with one variance for all it
    is one group. Samplers take the groups in place of `model.parameters()`.

    Args:
        model: The network.
        variance: Of the prior of a weight; `math.inf` is no prior.
        scale: "none", or "fan-in": a weight has `variance` over the inputs of its unit.
        biases: Variance of biases; None: `variance`, `math.inf`: no prior.
        norms: Variance of scales and shifts of normalisation layers, likewise.
        num_data: N; the groups then state `weight_decay` = 1/(N·variance), for torch's optimizers.

    >>> net = nn.Sequential(nn.Linear(50, 2), nn.BatchNorm1d(2))
    >>> groups = prior_groups(net, 20.0, scale="fan-in", biases=1.0, norms=math.inf)
    >>> [(group["prior_variance"], [name for name, _ in group["params"]]) for group in groups]
    [(0.4, ['0.weight']), (1.0, ['0.bias']), (inf, ['1.weight', '1.bias'])]
    """
    check_choice("scale", scale, SCALES)
    check_variance("variance", variance)
    own = {"bias": biases, "norm": norms}
    for kind, given in own.items():
        if given is not None:
            check_variance(f"{kind}s" if kind == "norm" else "biases", given)
    groups: dict[float, list[tuple[str, Tensor]]] = {}
    for name, param, kind in trainable(model):
        value = variance if own.get(kind) is None else own[kind]
        if scale == "fan-in" and kind == "weight":
            value = variance / fan_in(param)
        groups.setdefault(float(value), []).append((name, param))  # type: ignore[arg-type]
    return [{"params": params, **_stated(v, num_data)} for v, params in groups.items()]


def _stated(variance: float, num_data: int | None) -> dict[str, float]:
    if num_data is None:
        return {"prior_variance": variance}
    return {"weight_decay": decay_of_prior(variance, num_data)}


def trainable(model: nn.Module) -> Iterator[tuple[str, Tensor, str]]:
    """Name, tensor and kind ("weight", "bias" or "norm") of each trainable parameter, once."""
    norms = {
        id(param)
        for module in model.modules()
        if "norm" in type(module).__name__.lower()
        for param in module.parameters(recurse=False)
    }
    for name, param in model.named_parameters():
        if param.requires_grad:
            plain = "weight" if param.dim() > 1 else "bias"
            yield name, param, "norm" if id(param) in norms else plain


def fan_in(weight: Tensor) -> float:
    """Inputs of a unit: entries of one row.

    >>> fan_in(nn.Conv2d(16, 32, 3).weight)
    144.0
    """
    return math.prod(weight.shape[1:]) * 1.0


def mean_fan_in(model: Model) -> float | None:
    """Inputs of a unit, averaged over all trainable weights; None for a model without weights.

    >>> mean_fan_in(nn.Conv2d(16, 32, 3))
    144.0
    """
    weights = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    total = sum(p.numel() for p in weights)
    return sum(p.numel() * fan_in(p) for p in weights) / total if total else None
