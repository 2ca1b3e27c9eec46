"""Show θ_a to the model for a while: swap it into the parameters in place, and swap back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from entropy_mcmc.samplers.buckets import local

if TYPE_CHECKING:
    from entropy_mcmc.samplers.base import Sampler

CHUNK = 2**20  # elements swapped at a time, so that no second copy of a large tensor is made


@contextmanager
def showing_guide(sampler: Sampler) -> Iterator[None]:
    """θ_a in the parameters inside the block, θ after it, also after an exception."""
    sampler._refuse_inside_guide("guide()")
    params = [p for g in sampler.param_groups for p in g["params"] if "guide" in sampler.state[p]]
    _show_guide(sampler, params)
    sampler._inside_guide = True
    try:
        yield
    finally:
        sampler._inside_guide = False
        _show_theta(sampler, params)


@torch.no_grad()
def _show_guide(sampler: Sampler, params: list[Tensor]) -> None:
    for param in params:
        guide = sampler.state[param]["guide"]
        if param.dtype == torch.bfloat16:
            param.copy_(guide)  # θ is safe in its float32 master
        else:
            _swap(param, guide)


@torch.no_grad()
def _show_theta(sampler: Sampler, params: list[Tensor]) -> None:
    for param in params:
        if param.dtype == torch.bfloat16:
            param.copy_(sampler.state[param]["master"])
        else:
            _swap(param, sampler.state[param]["guide"])


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
