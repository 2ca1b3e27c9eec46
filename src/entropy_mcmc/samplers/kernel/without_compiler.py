"""Methods of torch's `Optimizer` without the import of torch's compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def without_compiler(method: Callable[P, T]) -> Callable[P, T]:
    """The method itself where nothing can be compiled yet.

    torch keeps the compiler (dynamo) out of these methods by a decorator that imports it, which
    takes two seconds of a process that may never compile anything. Where the compiler is not
    imported, there is nothing to keep out.
    """
    if "torch._dynamo" in sys.modules:
        return method
    plain: Callable[P, T] = getattr(method, "__wrapped__", method)
    return plain
