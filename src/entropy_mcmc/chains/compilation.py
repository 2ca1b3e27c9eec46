"""Compilation of the steps of a few chains by inductor, for the CPU, and the call of its kernels.

Rows are gathered inside both products of a step, x[rows] · θ and x[rows]ᵀ · s: nothing is copied,
and the second product finds the rows in the cache. For the second, inductor would run its vectors
along the batch, where consecutive rows lie anywhere in memory, and it would compute s anew for
every column. Both are put right here; the first in the version of torch whose internals were read.

What `torch.compile` does around a kernel (guards, wrappers, buffers made in Python) takes 100 µs a
call, as long as four steps of logistic regression. All of it serves what may change. For an energy
that depends on its arguments and on plain numbers alone nothing does, so in that version its steps
are traced once and inductor's C++ is called directly: 10 µs.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from entropy_mcmc.samplers.kernel import compiled as kernel
from entropy_mcmc.samplers.kernel.inductor import KNOWN_TORCH, two_vectors_at_a_time

# A value of more than a few operations is stored, not computed again by each of its readers.
OPTIONS: dict[str, Any] = {**kernel.OPTIONS, "realize_opcount_threshold": 8}


Call = Callable[[list[Tensor]], Sequence[Tensor]]


def constants(energy: Callable[..., Any]) -> tuple[Any, ...] | None:
    """The plain values that a function sees besides its arguments; None if it sees others.

    A direct call has these compiled in. Of anything else (tensors, objects, functions) one cannot
    say whether it changed since: that is left to the guards of `torch.compile`.

    >>> constants(lambda theta: torch.sum(theta))
    ()
    >>> constants([].append) is None
    True
    """
    if not inspect.isfunction(energy):
        return None
    seen = inspect.getclosurevars(energy)
    values: dict[str, Any] = {**seen.globals, **seen.nonlocals, **(energy.__kwdefaults__ or {})}
    values |= {str(i): value for i, value in enumerate(energy.__defaults__ or ())}
    known = {name for name, value in values.items() if _never_changes(value)}
    left = sorted((name, value) for name, value in values.items() if name not in known)
    return tuple(left) if all(type(v) in (int, float, bool, str) for _, v in left) else None


def _never_changes(value: Any) -> bool:
    return inspect.ismodule(value) and value.__name__.split(".")[0] in ("torch", "math")


def compiled(
    function: Callable[..., Sequence[Tensor]], example: list[Tensor], *, direct: bool
) -> Call:
    """`function` for tensors of the shapes of `example`, which the caller never changes."""
    known = torch.__version__.startswith(KNOWN_TORCH) and example[0].device.type == "cpu"
    with vectors_along_rows(), two_vectors_at_a_time():
        if direct and known:
            return _directly(function, example)
        through = torch.compile(function, dynamic=False, fullgraph=True, options=OPTIONS)
        through(*example)  # compiles, with the vectors as they are set here
    return lambda tensors: through(*tensors)


def _directly(function: Callable[..., Sequence[Tensor]], example: list[Tensor]) -> Call:
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(
        torch.func.functionalize(function),
        decomposition_table=select_decomp_table(),
        tracing_mode="fake",
        _allow_non_fake_inputs=True,  # tensors that the energy makes of numbers
    )(*example)
    with config.patch(OPTIONS):
        call: Call = compile_fx_inner(graph, example, cpp_wrapper=True)
    return call


@contextmanager
def vectors_along_rows() -> Iterator[None]:
    """Inside the block, reductions over gathered rows are vectorised along the rows."""
    if not torch.__version__.startswith(KNOWN_TORCH):
        yield
        return
    from torch._inductor.codegen.cpp import TilingSelect

    select: Any = TilingSelect._select_tiling_indices

    def along_rows(self: Any, functions: Any, sizes: Any, factor: int) -> Any:
        loops = select(self, functions, sizes, factor)
        outer = len(max(sizes, key=lambda pair: len(pair[1]))[0])
        if len(loops) != 1 or loops[0] < outer:
            return loops
        return _contiguous_in_a_gather(functions, sizes, outer) or loops

    with patch.object(TilingSelect, "_select_tiling_indices", along_rows):
        yield


def _contiguous_in_a_gather(functions: Any, sizes: Any, outer: int) -> list[int]:
    """The outer loop, if any, along which a gather reads one number after the other."""
    from torch._inductor.dependencies import extract_read_writes

    for function, size in zip(functions, sizes, strict=True):
        accesses = extract_read_writes(function, *size)
        for access in itertools.chain(accesses.reads, accesses.writes):
            loops = {v for v in access.index.free_symbols if re.fullmatch(r"d\d+", v.name)}
            if loops == access.index.free_symbols:
                continue  # no index that was itself read from memory
            for loop in loops:
                if int(loop.name[1:]) < outer and access.index.coeff(loop) == 1:
                    return [int(loop.name[1:])]
    return []
