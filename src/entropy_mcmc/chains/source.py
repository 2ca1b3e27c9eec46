"""Normals and mini-batches of a block of steps, all chains at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc import noise
from entropy_mcmc.chains.parts import Method, Problem
from entropy_mcmc.samplers import fused
from entropy_mcmc.samplers.codegen import two_vectors_at_a_time

BATCH_STREAM = 255
BLOCK = 2**21  # normals drawn at a time
LONGEST = 4096  # steps of a block


class Source:
    """Normals and rows as functions of the step; blocks are multiples of `unroll` steps."""

    def __init__(
        self, problem: Problem, flat: Tensor, method: Method, unroll: int, use_compiler: bool
    ) -> None:
        self.method, self.problem, self.like, self.compiled = method, problem, flat, use_compiler
        self.x0, self.x1 = problem.layout.counters(flat.shape[0], flat.device)
        steps = min(LONGEST, BLOCK // max(flat.numel(), 1))
        self.block = max(unroll, steps // unroll * unroll)

    def draw(self, start: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Two normals per (step, chain, element), and rows per (step, chain, row).

        What the rule does not take is left empty.
        """
        normals = [self.like.new_empty(count, 0)] * 2
        if self.method.normals:
            words = self._words(start, count, 0)
            drawn = self._call(_normals, words, self.x0, self.x1, self.method.normals)
            normals[: len(drawn)] = [x.to(self.like.dtype) for x in drawn]
        return normals[0], normals[1], self._rows(start, count)

    def _rows(self, start: int, count: int) -> Tensor:
        number, chains, device = self.problem.rows, self.like.shape[0], self.like.device
        if number == 0:
            return torch.empty(count, chains, 0, dtype=torch.int64, device=device)
        x0 = torch.arange(number, dtype=torch.int32, device=device)[None]
        x1 = (torch.arange(chains, device=device) * 2**10).to(torch.int32)[:, None]
        words = self._words(start, count, BATCH_STREAM)
        rows: Tensor = self._call(_rows, words, x0, x1, len(self.problem.data[0]))
        return rows

    def _words(self, start: int, count: int, stream: int) -> list[Tensor]:
        device = self.like.device
        words = noise.step_schedules(self.method.seed, start, count, stream, device=device)
        return list(words[:, :, None, None].unbind())

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if not self.compiled:
            return function(noise.normal_pair, *arguments)
        with two_vectors_at_a_time():
            return _kernel(function)(noise.compiled_normal_pair, *arguments)


def _normals(
    pair: Callable[..., tuple[Tensor, Tensor]],
    words: Sequence[Tensor],
    x0: Tensor,
    x1: Tensor,
    number: int,
) -> tuple[Tensor, ...]:
    return pair(words, x0, x1)[:number]


def _rows(_: Any, words: Sequence[Tensor], x0: Tensor, x1: Tensor, size: int) -> Tensor:
    """Rows of `size`, evenly drawn with replacement: the high word of size times 32 bits."""
    bits, _ = noise.threefry2x32(words, x0, x1, noise.ELEMENT_ROUNDS)
    return ((bits.to(torch.int64) & 0xFFFFFFFF) * size) >> 32


@functools.cache
def _kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True, fullgraph=True, options=fused.OPTIONS)
