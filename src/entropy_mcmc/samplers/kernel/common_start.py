"""What processes that share a sampler must have in common before the first step.

Values are those of process 0, as in DistributedDataParallel: the seed, all tensors. What cannot be
taken over, hyper-parameters and shapes, is compared, and all processes raise together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from entropy_mcmc.errors import ConfigError

# A process may have its own way to compute the same step.
OWN = frozenset({"params", "seed", "fused", "check_every"})
PLAIN = (str, int, float, list, type(None))  # entries of another type are a user's own
MISSING = "none"

Description = Mapping[str, str]


def share_start(sampler: Optimizer, model: nn.Module | None, ranks: Any) -> None:
    """Give every process the seeds and tensors of process 0; refuse what differs otherwise."""
    seeds = [group["seed"] for group in sampler.param_groups]
    gathered: list[Any] = [None] * torch.distributed.get_world_size(ranks)
    own = (described(sampler, model), seeds)
    torch.distributed.all_gather_object(gathered, own, group=ranks)
    refuse_differences([description for description, _ in gathered])
    for group, seed in zip(sampler.param_groups, gathered[0][1], strict=True):
        group["seed"] = seed
    with torch.no_grad():
        for tensor in shared_tensors(sampler, model):
            tensor.copy_(broadcast(tensor, 0, ranks))


def broadcast(value: Tensor, number: int, ranks: Any) -> Tensor:
    """A copy of the value that process `number` of a group has."""
    copy = value.detach().clone(memory_format=torch.contiguous_format)
    source = torch.distributed.get_global_rank(ranks, number)
    torch.distributed.broadcast(copy, source, group=ranks)
    return copy


def shared_tensors(sampler: Optimizer, model: nn.Module | None) -> list[Tensor]:
    """Parameters and variables of a sampler, then what else a model has; each tensor once."""
    params = [p for group in sampler.param_groups for p in group["params"]]
    tensors: list[Tensor] = list(params)
    for p in params:
        tensors += [value for _, value in sorted(sampler.state.get(p, {}).items())]
    if model is not None:
        tensors += [*model.parameters(), *model.buffers()]
    return list({id(tensor): tensor for tensor in tensors}.values())


def described(sampler: Optimizer, model: nn.Module | None) -> Description:
    """All that must be equal: each item by the name that an error gives it."""
    told: dict[str, str] = {"number of parameter groups": repr(len(sampler.param_groups))}
    for place, group in enumerate(sampler.param_groups):
        where = f" of group {place}" if place else ""
        plain = {n: v for n, v in group.items() if n not in OWN and isinstance(v, PLAIN)}
        told |= {f"{name}{where}": repr(value) for name, value in plain.items()}
        for number, p in enumerate(group["params"]):
            of = f"parameter {number} of group {place}"
            told[f"shape of {of}"] = _shape(p)
            told[f"variables beside {of}"] = ", ".join(sorted(sampler.state.get(p, {}))) or MISSING
    if model is not None:
        inside = [*model.named_parameters(), *model.named_buffers()]
        told |= {f"shape of {name} in the model": _shape(tensor) for name, tensor in inside}
    return told


def refuse_differences(descriptions: Sequence[Description]) -> None:
    """Raise for the first item that is not the same on all processes.

    >>> refuse_differences([{"lr": "0.1"}, {"lr": "0.1"}])
    """
    first = descriptions[0]
    for rank, other in enumerate(descriptions):
        for name in {**first, **other}:
            here, there = first.get(name, MISSING), other.get(name, MISSING)
            if here != there:
                raise ConfigError(
                    f"{name} must be the same on all processes, got {here} on process 0 and "
                    f"{there} on process {rank}; make the same model and sampler on each, and "
                    f"load the same state"
                )


def _shape(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
