"""The state of a chain as flat tensors and plain numbers, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.posterior.model_tensors import for_disk, gather, layout
from entropy_mcmc.samplers.base import Sampler


def pack(
    model: nn.Module, sampler: Sampler, average: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Whole CPU tensors by name, and the sampler's groups; a collective call when sharded."""
    saved = sampler.state_dict()
    named = {f"model/{name}": slot.tensor for name, slot in layout(model).stored.items()}
    for index, state in saved["state"].items():
        named |= {f"sampler/{index}/{name}": value for name, value in state.items()}
    named |= {f"average/{name}": value for name, value in average.items()}
    return {name: for_disk(gather(value), None) for name, value in named.items()}, saved[
        "param_groups"
    ]


def unpack(
    tensors: Mapping[str, Tensor], groups: list[dict[str, Any]], model: nn.Module, sampler: Sampler
) -> dict[str, Tensor]:
    """Put a packed state into model and sampler; returns the average."""
    fill(model, _under(tensors, "model/"))
    params = [param for group in sampler.param_groups for param in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in _under(tensors, "sampler/").items():
        index, _, variable = name.partition("/")
        state.setdefault(int(index), {})[variable] = like(params[int(index)], value)
    sampler.load_state_dict({"state": state, "param_groups": groups})
    return _under(tensors, "average/")


@torch.no_grad()
def fill(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Copy values into a model's parameters and buffers in place."""
    slots = layout(model).stored
    for name, value in values.items():
        if name in slots:
            slots[name].tensor.copy_(like(slots[name].tensor, value))


def like(tensor: Tensor, value: Tensor) -> Tensor:
    """`value` sharded as `tensor` is."""
    if not hasattr(tensor, "device_mesh"):
        return value
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = tensor
    return distribute_tensor(
        value.to(tensor.device), sharded.device_mesh, sharded.placements, src_data_rank=None
    )


def refuse_non_finite(tensors: Mapping[str, Tensor], step: int) -> None:
    """Raise rather than write a state that is lost."""
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise NonFiniteError(f"{name} is NaN or infinite at step {step}; lower sampler.lr")


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
