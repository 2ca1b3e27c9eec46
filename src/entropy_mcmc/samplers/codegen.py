"""Let inductor's C++ backend work on two vectors at a time, which the generator needs.

Threefry is one long chain of dependent instructions, so a core that works on a single vector waits
for its own results; on two independent vectors it does not. Inductor has the types for that
(`VectorizedN`) but no setting, and it reinterprets float bits through memory. Both are overridden
here, during our own compilations alone and only in the version of torch whose internals were looked
at; in others nothing is changed, and the kernel is slower but computes the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

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
