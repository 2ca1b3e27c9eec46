"""A private copy of a model to work in, so that a user's model is neither moved nor waited for.

Each prediction fills a copy of its own with one sample after another: predictions run side by side
in several threads, and a chain may go on meanwhile. What cannot be copied (compiled and sharded
modules, and what `copy.deepcopy` or the look at the first call refuses) is used in place, under a
lock, and put back.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock, RLock
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from entropy_mcmc.errors import StateError
from entropy_mcmc.posterior.manifest import StoredFile
from entropy_mcmc.posterior.model_inputs import call
from entropy_mcmc.posterior.model_tensors import Layout, layout, reshard, unwrap

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_LOCKS: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
_LOCKS_GUARD = Lock()


class NotPrivate(Exception):
    """The copy used tensors of its original, so that it cannot stand in for it."""


@dataclass
class Workspace:
    """A model that samples are copied into, in eval mode.

    Attributes:
        model: The model.
        shared: The file whose values its frozen parameters hold, if any.
        call: (model, inputs) → the model's result.
    """

    model: nn.Module
    shared: StoredFile | None = None
    call: Callable[[nn.Module, Any], Any] = call

    @property
    def layout(self) -> Layout:
        """The model's tensors; looked up each time, as a forward pass may replace buffers."""
        return layout(self.model)


@contextmanager
def private(model: nn.Module) -> Iterator[Workspace | None]:
    """Yield a private copy, or None where there can be none; its first call may say so too."""
    copied = private_copy(model)
    with torch.no_grad():
        yield None if copied is None else Workspace(copied, call=_FirstWatched(model))


@contextmanager
def in_place(model: nn.Module) -> Iterator[Workspace]:
    """Lend the model itself to one thread; weights, buffers and modes come back, whatever happens.

    Only users of this function wait for each other: a thread that trains the model must not go on.
    """
    with lock_of(model):
        back = _Backup(model)
        try:
            model.eval()
            with torch.no_grad():
                yield Workspace(model)
        finally:
            _insist(back.restore)


def private_copy(model: nn.Module) -> nn.Module | None:
    """A deep copy in eval mode that shares only hooks with the model; None where there is none."""
    if _is_compiled(model) or _is_sharded(model):
        return None
    try:
        with lock_of(model):
            return copy.deepcopy(model, _kept(model)).eval()
    except Exception:  # a user's module may raise anything: it is then used in place
        return None


def copied(model: nn.Module) -> nn.Module:
    """`private_copy` of the unwrapped model, or an error where there is none."""
    network = private_copy(unwrap(model))
    if network is None:
        raise StateError(
            "this model cannot be copied (it is compiled or sharded, or copy.deepcopy refuses it); "
            "open the posterior with the plain model: Posterior.open(path, model)"
        )
    return network


def lock_of(model: nn.Module) -> Any:
    """The lock of a model, the same for every wrapper around it."""
    model = unwrap(model)
    while isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
        model = unwrap(inner)
    with _LOCKS_GUARD:
        return _LOCKS.setdefault(model, RLock())


def _is_compiled(model: nn.Module) -> bool:
    """Whether code is compiled for this very module: a copy would be compiled again, or not be."""
    return any(
        hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None
        for m in model.modules()
    )


def _is_sharded(model: nn.Module) -> bool:
    return any(hasattr(p, "full_tensor") for p in model.parameters())


def _kept(model: nn.Module) -> dict[int, Any]:
    """What `deepcopy` takes as it is: hooks of the user's own, and values inside a graph."""
    modules = set(model.modules())
    memo: dict[int, Any] = {}
    for module in modules:
        for name in _HOOKS:
            hooks = getattr(module, name, {}).values()
            memo |= {id(hook): hook for hook in hooks if not _is_bound_to(hook, modules)}
        for value in vars(module).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return memo


def _is_bound_to(hook: Any, modules: set[nn.Module]) -> bool:
    """Whether a hook carries a module of the model, which must become that of the copy."""
    if isinstance(hook, MethodType):
        return isinstance(hook.__self__, nn.Module) and hook.__self__ in modules
    if isinstance(hook, partial):
        values = (hook.func, *hook.args, *hook.keywords.values())
        return any(
            _is_bound_to(v, modules) or (isinstance(v, nn.Module) and v in modules) for v in values
        )
    return False


class _FirstWatched:
    """Calls a copy; the first call must not touch a tensor of the original.

    A function in a closure, which no copy reaches, could still use the original's weights: each
    sample would then silently predict the same.
    """

    def __init__(self, original: nn.Module) -> None:
        self._original: nn.Module | None = original

    def __call__(self, model: nn.Module, inputs: Any) -> Any:
        """The model's result."""
        if self._original is None:
            return call(model, inputs)
        original, self._original = self._original, None
        with lock_of(original):  # another thread that has found out may be using it in place
            # With the compiler comes a decorator that keeps it out, and imports it: for seconds.
            watch = (_Watch if "torch._dynamo" in sys.modules else _WatchWithoutCompiler)(original)
            try:
                with watch:
                    result = call(model, inputs)
            except Exception:
                call(model, inputs)  # raises the model's own error, if it is one
                raise NotPrivate from None
        if watch.touched:
            raise NotPrivate
        return result


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether any operation of this thread uses a tensor of a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.touched = False
        tensors = [slot.tensor for slot in layout(model).slots.values()]
        self._storages = {_storage(t) for t in tensors if t.numel()} - {None}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, and look at what it is given."""
        kwargs = kwargs or {}
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, Tensor) and _storage(value) in self._storages:
                self.touched = True
        return func(*args, **kwargs)


class _WatchWithoutCompiler(_Watch):  # type: ignore[no-untyped-call]
    """The same for a process in which nothing was compiled."""


_plain = getattr(_Watch.__torch_dispatch__, "__wrapped__", _Watch.__torch_dispatch__)
_WatchWithoutCompiler.__torch_dispatch__ = _plain  # type: ignore[method-assign]


def _storage(tensor: Tensor) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # opaque tensors have none
        return None


class _Backup:
    """Values of a model, its buffers as objects, and its modes."""

    def __init__(self, model: nn.Module) -> None:
        reshard(model)
        self._model = model
        self._values = [(s.tensor, s.tensor.data.clone()) for s in layout(model).slots.values()]
        self._modules = [(m, m.training, dict(m._buffers)) for m in model.modules()]

    def restore(self) -> None:
        """Put everything back; may be called again after an interruption."""
        reshard(self._model)
        for module, mode, buffers in self._modules:
            module.training = mode
            module._buffers.update(buffers)
        with torch.no_grad():
            for tensor, value in self._values:
                tensor.data.copy_(value)


def _insist(action: Callable[[], None]) -> None:
    """Finish an action that may be repeated, however often the user presses Ctrl-C."""
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            action()
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
