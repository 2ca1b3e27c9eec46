"""Which tensors one kernel call moves, and which noise counters its elements have.

A large tensor is its own bucket and is updated in place. Small tensors (biases, norms) are
concatenated, because for them the overhead of a call costs more than the copy.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from entropy_mcmc import noise
from entropy_mcmc.errors import ConfigError

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from typing_extensions import TypeIs

SMALL = 2**15  # elements below which a tensor is merged with others
MERGED = 2**20  # elements at which a merged bucket is full


@dataclass(frozen=True)
class Slot:
    """Where a tensor's elements live: index of its parameter, first element, number of elements.

    Small tensors are merged only with others of the same `device`.
    """

    parameter: int
    start: int
    size: int
    device: torch.device | None = None


class Slots(tuple[Slot, ...]):
    """Slots as a key of caches, whose hash is computed once."""

    _hash: int | None = None

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = super().__hash__()
        return self._hash


@dataclass(frozen=True)
class Bucket:
    """Slots that are moved together: `members` are positions in the list of slots."""

    members: tuple[int, ...]
    slots: tuple[Slot, ...]


def is_sharded(tensor: Tensor) -> TypeIs[DTensor]:
    """Whether a tensor is a DTensor; its module is slow to import, so look only if it is there."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank holds: itself, unless it is sharded."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def slot(parameter: int, tensor: Tensor) -> Slot:
    """Slot of a parameter; for a shard, the elements of the whole tensor that it holds."""
    if not is_sharded(tensor):
        return Slot(parameter, 0, tensor.numel(), tensor.device)
    if any(placement.is_shard() and not placement.is_shard(0) for placement in tensor.placements):
        raise ConfigError(
            f"sharded parameters must be split along dimension 0, got placements="
            f"{tensor.placements}; FSDP2's default does that"
        )
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    _, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    row = tensor.numel() // max(tensor.shape[0], 1) if tensor.ndim else 1
    first = (offset[0] if offset else 0) * row
    return Slot(parameter, first, local(tensor).numel(), tensor.device)


@lru_cache(maxsize=256)
def plan(slots: tuple[Slot, ...]) -> tuple[Bucket, ...]:
    """Group slots into buckets: large tensors alone, small ones of a device together.

    >>> [b.members for b in plan((Slot(0, 0, 10), Slot(1, 0, 10**6), Slot(2, 0, 10)))]
    [(1,), (0, 2)]
    """
    single = [(i,) for i, place in enumerate(slots) if place.size >= SMALL]
    merged = [
        members
        for device in dict.fromkeys(place.device for place in slots)
        for members in _fill([i for i, s in enumerate(slots) if s.device == device], slots)
    ]
    return tuple(Bucket(group, Slots(slots[i] for i in group)) for group in (*single, *merged))


def _fill(positions: list[int], slots: tuple[Slot, ...]) -> list[tuple[int, ...]]:
    """Positions of small slots, in groups that are full at `MERGED` elements."""
    groups: list[list[int]] = [[]]
    size = 0
    for position in positions:
        if slots[position].size >= SMALL:
            continue
        if size + slots[position].size > MERGED:
            groups.append([])
            size = 0
        groups[-1].append(position)
        size += slots[position].size
    return [tuple(members) for members in groups if members]


@lru_cache(maxsize=256)
def merged_counters(slots: tuple[Slot, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Counters of a merged bucket, element by element; kept, because they never change."""
    pairs = [noise.counters(s.parameter, s.start, s.size, device) for s in slots]
    return torch.cat([x0 for x0, _ in pairs]), torch.cat([x1.expand_as(x0) for x0, x1 in pairs])
