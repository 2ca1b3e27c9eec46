"""Show another variable than θ to the model: swap it into the parameters in place, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from entropy_mcmc.samplers.kernel.tensor_buckets import local

if TYPE_CHECKING:
    from entropy_mcmc.samplers.base import Sampler

CHUNK = 2**20  # elements swapped at a time, so that no second copy of a large tensor is made


@contextmanager
def showing(sampler: Sampler, name: str, block: str = "") -> Iterator[None]:
    """The variable `name` in the parameters inside the block, θ after it, also after an error.

    `block` is what messages call it.
    """
    params = [p for g in sampler.param_groups for p in g["params"] if name in sampler.state[p]]
    with sampler._block(block or f"{name}()"):
        _show_variable(sampler, params, name)
        try:
            yield
        finally:
            _show_theta(sampler, params, name)


@torch.no_grad()
def _show_variable(sampler: Sampler, params: list[Tensor], name: str) -> None:
    for param in params:
        value = sampler.state[param][name]
        if param.dtype == torch.bfloat16:
            param.copy_(value)  # θ is safe in its float32 master
        else:
            _swap(param, value)


@torch.no_grad()
def _show_theta(sampler: Sampler, params: list[Tensor], name: str) -> None:
    for param in params:
        if param.dtype == torch.bfloat16:
            param.copy_(sampler.state[param]["master"])
        else:
            _swap(param, sampler.state[param][name])


def _swap(a: Tensor, b: Tensor) -> None:
    a, b = local(a), local(b)
    if not (a.is_contiguous() and b.is_contiguous()):
        kept = a.clone()
        a.copy_(b)
        b.copy_(kept)
        return
    pairs = zip(torch.split(a.view(-1), CHUNK), torch.split(b.view(-1), CHUNK), strict=True)
    for first, second in pairs:
        kept = first.clone()
        first.copy_(second)
        second.copy_(kept)
