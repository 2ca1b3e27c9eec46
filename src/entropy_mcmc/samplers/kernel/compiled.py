"""The compiled kernel: noise, drift, coupling and decay in one pass over memory.

The source is the eager one (the generator of `noise` and the sampler's rule); `torch.compile` fuses
it into one loop for the CPU or one kernel for the GPU, with dynamic shapes, so that one compilation
serves all tensor sizes. Inductor keeps compiled kernels on disk for the next process.
"""

from __future__ import annotations

import functools
import os
import shutil
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc import noise
from entropy_mcmc.samplers.kernel.inductor import (
    KNOWN_TORCH,
    fast_to_compile,
    quiet_compiler,
    two_vectors_at_a_time,
    without_guards,
)
from entropy_mcmc.samplers.kernel.tensor_buckets import Slot, merged_counters
from entropy_mcmc.samplers.rule import Form, Update

LARGEST = 2**30  # elements per call, so that an index fits 32 bits
LEAST = 64  # elements; torch.compile would specialise on smaller sizes (1, or equal to another)
TYPICAL = 2**15  # elements at the first call, from which inductor decides to use all cores
# Fused multiply-add: fewer instructions, and one rounding less than the eager path.
OPTIONS: dict[str, Any] = {"cpp.enable_floating_point_contract_flag": "fast"}

SMALL_MODEL = 2**16  # parameters below which `fused="auto"` never compiles
WORTH_COMPILING = 10**9  # parameter-steps after which a compilation has paid for itself

Kernel = Callable[..., None]


def switch_step(fused: bool | str, size: int) -> int | None:
    """The first step that is compiled; None for none. A function of these two alone.

    >>> switch_step("auto", 11_173_962), switch_step("auto", 1000), switch_step(True, 1000)
    (90, None, 0)
    """
    if fused != "auto":
        return 0 if fused else None
    return None if size < SMALL_MODEL else -(-WORTH_COMPILING // size)


def wanted(fused: bool | str, size: int, step: int, device_type: str) -> bool:
    """Whether a step is compiled: from `switch_step` on, where there is a compiler."""
    first = switch_step(fused, size)
    return first is not None and step >= first and available(device_type)


@functools.cache
def available(device_type: str, eager: str = "fused=False") -> bool:
    """Whether kernels can be compiled here; if not, say so once, with the option for `eager`."""
    if device_type != "cpu":
        from torch.utils._triton import has_triton

        usable, missing = has_triton(), "Triton"
    else:
        # Inductor runs $CXX, or else g++ (clang++ on macOS).
        names = (os.environ["CXX"],) if os.environ.get("CXX") else ("g++", "clang++")
        usable, missing = any(shutil.which(name) for name in names), f"a compiler ({names[0]})"
    if not usable:
        warnings.warn(
            f"entropy_mcmc: no compiled step on {device_type!r}, because {missing} was not found: "
            f"the eager path gives the same chain to rounding, only slower. Install {missing}, or "
            f"pass {eager} to silence this notice.",
            RuntimeWarning,
            stacklevel=2,
        )
    return bool(usable)


def run(
    update: Update,
    values: Sequence[Tensor],
    schedule: noise.Schedule | None,
    slots: tuple[Slot, ...],
) -> None:
    """Move the variables among the flat `values` in place with the compiled kernel."""
    like = values[0]
    constants = _constants(tuple(update.coefficients), like.dtype, like.device)
    kind = "quiet" if schedule is None else "merged" if len(slots) > 1 else "single"
    threads = torch.get_num_threads()
    compiled = _ready(update.form, kind, len(values), like.dtype, like.device, threads)
    if schedule is None:
        compiled(constants, *values)
        return
    words = _words(tuple(schedule), like.device)
    if kind == "merged":
        compiled(constants, words, *merged_counters(slots, like.device), *values)
        return
    for start, size in _ranges(slots[0].start, like.numel()):
        origin = _words(noise.counter_words(slots[0].parameter, start), like.device)
        offset = start - slots[0].start
        part = values if size == like.numel() else [v[offset : offset + size] for v in values]
        compiled(constants, words, origin, *part)


@functools.lru_cache(maxsize=64)
def _constants(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


@functools.lru_cache(maxsize=4096)
def _words(values: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def _ranges(start: int, size: int) -> list[tuple[int, int]]:
    """Split elements so that no range crosses a multiple of 2^30 (where the counter may carry)."""
    ranges = []
    while size > 0:
        length = min(size, LARGEST - start % LARGEST)
        ranges.append((start, length))
        start, size = start + length, size - length
    return ranges


@functools.cache
def _ready(
    form: Form, kind: str, count: int, dtype: torch.dtype, device: torch.device, threads: int
) -> Kernel:
    """The kernel after a first call at a typical size, so that the first tensor decides nothing.

    `count` is the number of values; the number of threads is compiled in.
    """
    source = own_code(kernel_source(form, kind), form.rule)
    values = [torch.ones(TYPICAL, dtype=dtype, device=device) for _ in range(count)]
    constants = torch.zeros(len(form.coefficients._fields), dtype=dtype, device=device)
    words = _words(noise.key_schedule(0, noise.ELEMENT_ROUNDS) * form.pairs, device)
    counters = torch.zeros(2, TYPICAL, dtype=torch.int32, device=device).unbind()
    extra = {"quiet": (), "single": (words, _words((0, 0), device)), "merged": (words, *counters)}
    example = [t.clone() for t in (constants, *extra[kind], *values)]
    with quiet_compiler(), two_vectors_at_a_time():
        if device.type == "cpu" and torch.__version__.startswith(KNOWN_TORCH):
            settings = OPTIONS | fast_to_compile(noisy=kind != "quiet")
            return without_guards(source, settings, example)
        compiled: Kernel = torch.compile(source, dynamic=True, fullgraph=True, options=OPTIONS)
        compiled(*example)
    return compiled


def kernel_source(form: Form, kind: str) -> Kernel:
    """What is compiled, once for all tensor sizes: quiet (no noise), single tensor, or merged."""

    def quiet(constants: Tensor, *values: Tensor) -> None:
        _apply(form, constants, values, None)

    def merged(constants: Tensor, words: Tensor, x0: Tensor, x1: Tensor, *values: Tensor) -> None:
        pair, dtype = noise.compiled_normal_pair, values[0].dtype
        eps = noise.rule_normals(pair, words.unbind(), x0, x1, dtype)
        _apply(form, constants, values, eps)

    def single(constants: Tensor, words: Tensor, origin: Tensor, *values: Tensor) -> None:
        index = torch.arange(values[0].numel(), dtype=torch.int32, device=words.device)
        merged(constants, words, index + origin[0], origin[1].expand_as(index), *values)

    sources: dict[str, Kernel] = {"quiet": quiet, "merged": merged, "single": single}
    return sources[kind]


def _apply(form: Form, constants: Tensor, values: Sequence[Tensor], eps: Any) -> None:
    moved = form.apply(values, eps, constants.unbind())
    # Of equal length: dynamo of torch 2.9 takes any `strict` as True.
    for value, new in zip(values[: len(moved)], moved, strict=True):
        value.copy_(new)


def own_code(function: Any, rule: Any) -> Any:
    """A copy with its own code object: dynamo counts compilations per code object, up to 8."""
    name = f"{function.__name__}_{getattr(rule, '__name__', 'rule')}"
    code = function.__code__.replace(co_name=name)
    return types.FunctionType(code, function.__globals__, name, None, function.__closure__)
