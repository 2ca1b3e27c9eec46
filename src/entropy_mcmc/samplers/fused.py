"""The compiled kernel: noise, drift, coupling and decay in one pass over memory.

The source is the eager one (`noise.normal_pair` and the sampler's rule); `torch.compile` fuses it
into one loop for the CPU or one kernel for the GPU, with dynamic shapes, so that one compilation
serves all tensor sizes.
"""

from __future__ import annotations

import functools
import shutil
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc import noise
from entropy_mcmc.samplers.buckets import Slot, merged_counters

LARGEST = 2**30  # elements per call, so that an index fits 32 bits


@functools.cache
def available(device_type: str) -> bool:
    """Whether kernels can be compiled here; if not, say so once."""
    if device_type != "cpu":
        from torch.utils._triton import has_triton

        found, missing = has_triton(), "Triton"
    else:
        found = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
        missing = "a C++ compiler"
    if not found:
        warnings.warn(
            f"entropy_mcmc: no compiled step on {device_type!r}, because {missing} was not found: "
            f"the eager path gives the same chain, only slower. Install {missing}, or pass "
            f"fused=False to silence this notice.",
            RuntimeWarning,
            stacklevel=2,
        )
    return bool(found)


def run(
    rule: Any,
    moves: int,
    values: Sequence[Tensor],
    coefficients: Sequence[float],
    schedule: noise.Schedule | None,
    slots: tuple[Slot, ...],
) -> None:
    """Move the first `moves` of the flat `values` in place with the compiled kernel."""
    like = values[0]
    constants = torch.tensor(coefficients, dtype=like.dtype, device=like.device)
    if schedule is None:
        kernel(rule, moves, "quiet")(list(values), constants)
        return
    if len(slots) > 1:
        words = torch.tensor(schedule, dtype=torch.int32, device=like.device)
        x0, x1 = merged_counters(slots, like.device)
        kernel(rule, moves, "merged")(list(values), constants, words, x0, x1)
        return
    for start, size in _ranges(slots[0].start, like.numel()):
        low, high = noise.counter_words(slots[0].parameter, start)
        words = torch.tensor([*schedule, low, high], dtype=torch.int32, device=like.device)
        offset = start - slots[0].start
        part = [value[offset : offset + size] for value in values]
        kernel(rule, moves, "single")(part, constants, words)


def _ranges(start: int, size: int) -> list[tuple[int, int]]:
    """Split elements so that no range crosses a multiple of 2^30 (where the counter may carry)."""
    ranges = []
    while size > 0:
        length = min(size, LARGEST - start % LARGEST)
        ranges.append((start, length))
        start, size = start + length, size - length
    return ranges


@functools.cache
def kernel(rule: Any, moves: int, kind: str) -> Callable[..., None]:
    """Compile `rule` once for all tensor sizes: quiet (no noise), single tensor, or merged."""

    def move(values: list[Tensor], constants: Tensor, eps: Any) -> None:
        coefficients = constants.unbind()
        for value, new in zip(values[:moves], rule(values, eps, coefficients), strict=True):
            value.copy_(new)

    def quiet(values: list[Tensor], constants: Tensor) -> None:
        move(values, constants, None)

    def merged(
        values: list[Tensor], constants: Tensor, words: Tensor, x0: Tensor, x1: Tensor
    ) -> None:
        first, second = noise.normal_pair(words.unbind(), x0, x1)
        move(values, constants, (first.to(values[0].dtype), second.to(values[0].dtype)))

    def single(values: list[Tensor], constants: Tensor, words: Tensor) -> None:
        index = torch.arange(values[0].numel(), dtype=torch.int32, device=words.device)
        merged(values, constants, words[:-2], index + words[-2], words[-1].expand_as(index))

    sources: dict[str, Callable[..., None]] = {"quiet": quiet, "merged": merged, "single": single}
    return torch.compile(sources[kind], dynamic=True, fullgraph=True)
