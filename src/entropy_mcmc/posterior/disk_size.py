"""How large a store will be, before the first sample is drawn."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from entropy_mcmc.posterior.model_tensors import Slot, layout, unwrap
from entropy_mcmc.posterior.sample_tensors import kept, split

_HEADER = 80  # bytes of a tensor's entry in a safetensors header, beside its name


@dataclass(frozen=True)
class DiskSize:
    """Bytes of a store, nearly exact.

    Attributes:
        sample: Of one sample's file.
        shared: Of the parameters that nobody samples, stored once.
        samples: How many samples there will be.
    """

    sample: int
    shared: int
    samples: int

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return self.samples * self.sample + self.shared

    def __str__(self) -> str:
        once = f", {readable(self.shared)} once for what is not sampled" if self.shared else ""
        many = f"{self.samples} sample{'s' if self.samples != 1 else ''}"
        return f"{many} of {readable(self.sample)}{once}: {readable(self.total)}"


def expected_size(
    model: nn.Module,
    optimizer: Any = None,
    *,
    steps: int,
    roles: str = "both",
    dtype: torch.dtype | None = None,
) -> DiskSize:
    """The size of a store after `steps` steps were collected.

    Args:
        model: The model that will be sampled.
        optimizer: The sampler that `collect` will get, or None.
        steps: Collected steps.
        roles: Which variables are kept.
        dtype: In which parameters are stored; None for their own.
    """
    own, shared = split(layout(unwrap(model)), optimizer)
    count = steps * len(kept(optimizer, roles))
    return DiskSize(_bytes(own, dtype, sampled=True), _bytes(shared, None), count)


def _bytes(slots: Mapping[str, Slot], dtype: torch.dtype | None, *, sampled: bool = False) -> int:
    return sum(
        len(name) + _HEADER + slot.tensor.numel() * _width(slot, dtype, sampled)
        for name, slot in slots.items()
    )


def _width(slot: Slot, dtype: torch.dtype | None, sampled: bool) -> int:
    """Bytes of an element; the samplers keep bfloat16 parameters in float32."""
    if not slot.is_parameter or not sampled:
        return slot.tensor.element_size()
    own = torch.float32 if slot.tensor.dtype == torch.bfloat16 else slot.tensor.dtype
    return (own if dtype is None or not own.is_floating_point else dtype).itemsize


def free_bytes(path: Path) -> int:
    """Free space where a folder is, or will be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def readable(size: float) -> str:
    """Bytes in words.

    >>> readable(999), readable(12_345), readable(3.2e9)
    ('999 bytes', '12 kB', '3.2 GB')
    """
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    digits = 1 if units[0] != "bytes" and size < 9.95 else 0
    return f"{size:.{digits}f} {units[0]}"
