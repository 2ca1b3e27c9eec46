"""torch's wrapper around `Optimizer.step`, at no cost where nobody looks.

torch wraps `step` to name it in profiles and to call hooks that users register. Both cost as much
as a step of ten small tensors; here they are paid for only while a profiler runs or a hook is
there. What a user sees is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.autograd import profiler
from torch.optim import Optimizer, optimizer


def profiled() -> bool:
    """Whether a profiler of torch is running."""
    return bool(getattr(profiler, "_is_profiler_enabled", True))


def with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """`step` as torch wraps it, which a call passes by where neither hooks nor profiler are."""
    wrapped: Any = Optimizer.profile_hook_step(step)

    @wraps(step)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if profiled() or _has_hooks(self):
            return wrapped(self, *args, **kwargs)
        return step(self, *args, **kwargs)

    call.hooked = True  # type: ignore[attr-defined]
    return call


def _has_hooks(self: Any) -> bool:
    return bool(
        self._optimizer_step_pre_hooks
        or self._optimizer_step_post_hooks
        or optimizer._global_optimizer_pre_hooks
        or optimizer._global_optimizer_post_hooks
    )
