"""Let inductor's C++ backend work on two vectors at a time, which the generator needs.

Threefry is one long chain of dependent instructions, so a core that works on a single vector waits
for its own results; on two independent vectors it does not. Inductor has the types for that
(`VectorizedN`) but no setting, and it reinterprets float bits through memory. Both are overridden
here, during our own compilations alone and only in the version of torch whose internals were looked
at; in others nothing is changed, and the kernel is slower but computes the same. The same holds of
the direct call of a kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

VECTORS = 2
KNOWN_TORCH = "2.13."


@contextmanager
def quiet_compiler() -> Iterator[None]:
    """Keep torch's warnings about its own internals from users who turn warnings into errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def two_vectors_at_a_time() -> Iterator[None]:
    """Inside the block, CPU kernels are generated with loops of two vectors per pass."""
    if not torch.__version__.startswith(KNOWN_TORCH):
        yield
        return
    from torch._inductor.codegen.cpp import CppVecOverrides, TilingSelect

    select = TilingSelect.select_tiling

    def wider(self: Any, *args: Any) -> Any:
        factors, *rest = select(self, *args)
        return ([factor * VECTORS for factor in factors], *rest)

    with (
        patch.object(TilingSelect, "select_tiling", wider),
        patch.object(CppVecOverrides, "to_dtype_bitcast", staticmethod(_bitcast)),
    ):
        yield


def _bitcast(x: Any, dtype: Any, src_dtype: Any) -> str:
    """C++ that reinterprets the bits of a vector, or of several, without leaving the registers."""
    from torch._inductor.codegen.cpp_utils import DTYPE_TO_CPP
    from torch._inductor.virtualized import V

    name, number = DTYPE_TO_CPP[dtype], V.kernel._get_num_vectors(dtype)
    if number == 1:
        return f"at::vec::cast<{name}>({x})"
    return (
        f"[&]() {{ at::vec::VectorizedN<{name}, {number}> bits; "
        f"for (int i = 0; i < {number}; i++) bits[i] = at::vec::cast<{name}>({x}[i]); "
        f"return bits; }}()"
    )


@lru_cache(maxsize=1024)
def _as_tensor(number: int) -> Tensor:
    """What the wrapper of a kernel makes of a number at each call."""
    return torch.tensor(number, device="cpu")


def fast_to_compile(*, noisy: bool) -> dict[str, Any]:
    """Settings that change how long a compilation takes, not what is computed or how fast.

    An expression of more operations than the threshold becomes a value of its own. The generator is
    a chain of 90 operations that two results need: at inductor's 50 each of them is written out
    again and again, ten times as much work for the same C++. Kernels without noise are short, and
    keep the order of their terms, on which the rounding of fused products depends. The other
    setting saves the build of a program that tries whether AVX2 works, where torch runs on it.
    """
    settings: dict[str, Any] = {"realize_cpu_opcount_threshold": 5} if noisy else {}
    if torch.backends.cpu.get_cpu_capability() == "AVX2":
        settings["cpp.vec_isa_ok"] = True
    return settings


@contextmanager
def rules_made_once() -> Iterator[None]:
    """Inside the block, inductor's rules of types are set up once, not for each operation.

    They are one object, whose constructor runs again whenever it is asked for: a third of the time.
    """
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler

    DtypePropagationOpsHandler()
    with patch.object(DtypePropagationOpsHandler, "__init__", lambda self: None):
        yield


def without_guards(
    function: Callable[..., None], options: dict[str, Any], example: Sequence[Tensor]
) -> Callable[..., None]:
    """`function` compiled for CPU tensors like `example`, of which some have another length.

    Around a kernel `torch.compile` checks its arguments and passes them through several wrappers:
    150 µs a call, as long as 50,000 parameters take. Our caller keeps types and layout fixed, so
    what inductor returns is called directly; the first call, an ordinary one, shows in which order
    it takes the arguments. Their common length is an argument of its own.
    """
    from torch._functorch import config as functorch
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    inner: list[Any] = []
    given: list[Any] = []

    def compile_inner(graph: Any, inputs: Any, **settings: Any) -> Any:
        compiled: Any = compile_fx_inner(graph, inputs, **settings)
        inner.append(compiled)

        def first_call(arguments: list[Any]) -> Any:
            given[:] = arguments
            return compiled(arguments)

        first_call._boxed_call = True  # type: ignore[attr-defined]
        return first_call

    def backend(graph: Any, inputs: Any) -> Any:
        settings = {**options, "cpp_wrapper": True, "size_asserts": False}
        return compile_fx(graph, inputs, inner_compile=compile_inner, config_patches=settings)

    length = example[-1].numel()
    for tensor in example:
        if tensor.numel() != length:
            torch._dynamo.mark_static(tensor)
    # Its cache would skip `compile_inner`; inductor's own, on disk, is within.
    with functorch.patch(enable_autograd_cache=False), rules_made_once():
        torch.compile(function, backend=backend, dynamic=True, fullgraph=True)(*example)
    (call,) = inner
    places = {id(tensor): i for i, tensor in enumerate(example)}
    order = [places[id(a)] if isinstance(a, Tensor) else None for a in given]
    if any(i is None and a != length for i, a in zip(order, given, strict=True)):
        raise AssertionError(f"the kernel takes other sizes than {length}: {given}")

    call = call.current_callable  # beneath what only the first call needs

    def run(*arguments: Tensor) -> None:
        size = _as_tensor(arguments[-1].numel())
        call([size if i is None else arguments[i] for i in order])

    return run
