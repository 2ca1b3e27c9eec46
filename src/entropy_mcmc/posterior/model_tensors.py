"""The tensors of a model under names that do not depend on how it is wrapped."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from entropy_mcmc.errors import ConfigError

# torch.compile, FSDP1, activation checkpoints and Lightning Fabric put these into names.
_WRAPPERS = {
    "_orig_mod",
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
    "_forward_module",
    "_original_module",
}


@dataclass(frozen=True)
class Slot:
    """One tensor of a model: where it lives and what it is called on disk."""

    name: str
    path: str
    tensor: Tensor
    is_parameter: bool
    persistent: bool


@dataclass(frozen=True)
class Layout:
    """All tensors of a model, each once, and the other names of tied ones."""

    slots: dict[str, Slot]
    aliases: dict[str, str]

    @property
    def stored(self) -> dict[str, Slot]:
        """What a sample holds: parameters and persistent buffers."""
        return {name: slot for name, slot in self.slots.items() if slot.persistent}

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(s.tensor.numel() for s in self.slots.values() if s.is_parameter)


def unwrap(model: nn.Module) -> nn.Module:
    """The module inside DDP or DataParallel, whose forward needs no synchronisation."""
    parallel = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    while isinstance(model, parallel):
        model = model.module
    return model


def layout(model: nn.Module) -> Layout:
    """Find every parameter and buffer of a model.

    >>> tied = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    >>> tied[1].weight = tied[0].weight
    >>> named = layout(nn.DataParallel(tied))
    >>> list(named.slots), named.aliases
    (['0.weight'], {'1.weight': '0.weight'})
    """
    walked = list(_walk(model))
    names = _strip([slot.path for slot in walked])
    slots: dict[str, Slot] = {}
    aliases: dict[str, str] = {}
    first: dict[int, str] = {}
    for slot, name in zip(walked, names, strict=True):
        owner = first.setdefault(id(slot.tensor), name)
        if owner != name:
            aliases[name] = owner
        elif name not in slots:
            slots[name] = Slot(name, slot.path, slot.tensor, slot.is_parameter, slot.persistent)
        elif slots[name].tensor is not slot.tensor:
            raise ConfigError(f"two tensors of the model are called {name!r} without wrappers")
    return Layout(slots, aliases)


def _walk(model: nn.Module) -> Iterator[Slot]:
    for prefix, module in model.named_modules(remove_duplicate=False):
        for owned, is_parameter in ((module._parameters, True), (module._buffers, False)):
            for key, tensor in owned.items():
                if tensor is None:
                    continue
                path = f"{prefix}.{key}" if prefix else key
                if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
                    raise ConfigError(f"{path} is not initialised; run one batch through the model")
                persistent = is_parameter or key not in module._non_persistent_buffers_set
                yield Slot(path, path, tensor, is_parameter, persistent)


def _strip(paths: list[str]) -> list[str]:
    parts = [[part for part in path.split(".") if part not in _WRAPPERS] for path in paths]
    # "module" may be a user's own name, so it goes only where it wraps everything.
    while parts and all(len(p) > 1 and p[0] == "module" for p in parts):
        parts = [p[1:] for p in parts]
    return [".".join(p) for p in parts]


def reshard(model: nn.Module) -> None:
    """Make the shards of FSDP2 the parameters again, which are gathered copies after a forward."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    for module in model.modules() if fsdp is not None else ():
        if isinstance(module, fsdp.FSDPModule):  # type: ignore[union-attr]
            module.reshard()


def gather(tensor: Tensor) -> Tensor:
    """The whole tensor, detached; a collective call when it is sharded."""
    whole: Any = tensor.detach()
    full: Tensor = whole.full_tensor() if hasattr(whole, "full_tensor") else whole
    return full


def for_disk(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A contiguous copy on the CPU, or the tensor itself where it already is one."""
    if dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(dtype)
    tensor = tensor.to("cpu").contiguous()
    alone = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor if alone else tensor.clone()


def place(slot: Slot, value: Tensor) -> None:
    """Copy a whole tensor into the model's tensor, in place."""
    # .data: a graph that waits for its backward stays valid, since the value comes back.
    target: Any = slot.tensor.data
    value = value.to(device=target.device, dtype=target.dtype)
    if hasattr(target, "full_tensor"):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value, target.device_mesh, target.placements)
    target.copy_(value)


def content_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and values, one tensor at a time."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = for_disk(gather(tensors[name]), None)
        digest.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def check_match(layout: Layout, shapes: Mapping[str, tuple[int, ...]], source: str) -> None:
    """Raise unless a stored sample has the names and shapes of the model."""
    expected = {name: tuple(slot.tensor.shape) for name, slot in layout.stored.items()}
    wrong = sorted(
        name for name in expected.keys() | shapes.keys() if expected.get(name) != shapes.get(name)
    )
    if wrong:
        name = wrong[0]
        raise ConfigError(
            f"{source} does not fit the model: {name} is {shapes.get(name, 'missing')} in the file "
            f"and {expected.get(name, 'missing')} in the model ({len(wrong)} such tensors); "
            "open the posterior with the architecture that was sampled"
        )
