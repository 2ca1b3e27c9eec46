"""Several processes, one store: rank 0 writes, the others wait and learn how it went."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.distributed as dist

from entropy_mcmc.errors import StateError

_alone = ContextVar("_alone", default=False)


@contextmanager
def alone() -> Iterator[None]:
    """Inside, this thread acts for itself, although its process is one of a group."""
    before = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(before)


def several() -> bool:
    """Whether this process is one of a group that acts together."""
    grouped = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return grouped and not _alone.get()


def is_main() -> bool:
    """Whether this process writes."""
    return not several() or dist.get_rank() == 0


def agree(value: int, device: torch.device) -> int:
    """Rank 0's value, on every rank."""
    if not several():
        return value
    shared = torch.tensor(value, dtype=torch.int64, device=device)
    dist.broadcast(shared, src=0)
    return int(shared.item())


def on_main(action: Callable[[], None], device: torch.device) -> None:
    """Run `action` on rank 0; return, or raise, on every rank together."""
    failure: BaseException | None = None
    if is_main():
        try:
            action()
        except Exception as error:
            failure = error
    failed = agree(int(failure is not None), device)
    if failure is not None:
        raise failure
    if failed:
        raise StateError("rank 0 could not write the posterior; its own error says why")
