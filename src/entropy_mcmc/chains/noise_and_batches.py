"""Normals and mini-batches of a block of steps, for a group of chains."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc import noise
from entropy_mcmc.chains.energy import Energy
from entropy_mcmc.chains.stack import Method
from entropy_mcmc.samplers.coupled import GUIDE_STREAM
from entropy_mcmc.samplers.kernel import compiled as kernel
from entropy_mcmc.samplers.kernel.inductor import two_vectors_at_a_time

BATCH_STREAM = 255
BLOCK = 2**20  # normals drawn at a time: a call costs as much as 2**16 of them
LONGEST = 4096  # steps whose keys are made at a time, a multiple of what one call does


@dataclass(frozen=True)
class Keys:
    """Keys of the generator for consecutive steps; all chains have the same."""

    normals: list[Tensor]
    rows: list[Tensor]

    @classmethod
    def of(cls, seed: int, start: int, count: int, device: torch.device) -> Keys:
        """Keys of `count` steps from `start` on, and of one more for rules that average noise."""
        words = (
            noise.step_schedules(seed, start, count + 1, stream, device=device)
            for stream in (0, BATCH_STREAM)
        )
        return cls(*(list(w[:, :, None, None].unbind()) for w in words))


class NoiseAndBatches:
    """Normals and rows of some chains as functions of the step.

    Blocks are multiples of `unroll` steps.
    """

    def __init__(
        self,
        energy: Energy,
        flat: Tensor,
        method: Method,
        unroll: int,
        use_compiler: bool,
        counters: tuple[Tensor, Tensor],
        group: slice,
    ) -> None:
        self.method, self.energy, self.like, self.compiled = method, energy, flat, use_compiler
        self.x0, self.x1 = counters[0], counters[1][group]
        self.chains = torch.arange(flat.shape[0], device=flat.device)[group]
        steps = min(LONGEST, BLOCK // max(self.x1.numel(), 1))
        self.unroll, self.block = unroll, max(unroll, steps // unroll * unroll)

    def blocks(self, keys: Keys, count: int) -> Iterator[tuple[int, list[list[Tensor]]]]:
        """What the calls of a block take, `unroll` steps each, with the block's first step."""
        for start in range(0, count, self.block):
            drawn = self.draw(keys, slice(start, min(start + self.block, count)))
            starts = range(0, len(drawn[0]), self.unroll)
            yield start, [[part[k : k + self.unroll] for part in drawn] for k in starts]

    def draw(self, keys: Keys, steps: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Two normals per (step, chain, element), and rows per (step, chain, row).

        What the rule does not take is left empty. For a rule that averages noise the normals are
        per (step, pair, chain, element).
        """
        count, pairs = steps.stop - steps.start, self.method.pairs
        normals = [self.like.new_empty(count, pairs, 0)] * 2
        if self.method.normals:
            words = [word[steps.start : steps.stop + pairs - 1] for word in keys.normals]
            drawn = draw_normals(words, self.x0, self.x1, self.method.normals, self.compiled)
            cast = [x.to(self.like.dtype) for x in drawn]
            normals[: len(drawn)] = cast if pairs == 1 else map(_with_next, cast)
        return normals[0], normals[1], self._rows([word[steps] for word in keys.rows], count)

    def _rows(self, words: Sequence[Tensor], count: int) -> Tensor:
        number, device = self.energy.batch_rows, self.like.device
        if number == 0:
            return torch.empty(count, len(self.chains), 0, dtype=torch.int64, device=device)
        x0 = torch.arange(number, dtype=torch.int32, device=device)[None]
        chains = self.chains[:1] * 0 if self.energy.shared else self.chains  # those of chain 0
        x1 = (chains * 2**10).to(torch.int32)[:, None]
        rows: Tensor = _call(_rows, self.compiled, words, x0, x1, len(self.energy.data[0]))
        return rows


def _with_next(normals: Tensor) -> Tensor:
    """Normals of every step but the last, beside those of the step that follows."""
    return torch.stack([normals[:-1], normals[1:]], dim=1)


def drawn_guides(
    theta: Tensor,
    method: Method,
    kept: range,
    counters: tuple[Tensor, Tensor],
    use_compiler: bool,
) -> Tensor:
    """Guides of the kept states of θ, (chain, draw, element): those that the optimizer draws."""
    update = method.guide_draw
    assert update is not None
    guides = torch.empty_like(theta)
    most = max(1, BLOCK // max(theta[:, 0].numel(), 1))
    for start in range(0, len(kept), most):
        block = kept[start : start + most]
        first, count = block[0] + 1, block[-1] - block[0] + 1  # the state after step k is at k + 1
        words = noise.step_schedules(
            method.group["seed"], first, count, GUIDE_STREAM, device=theta.device
        )
        words = words[:, :: kept.step, None, None]
        (eps,) = draw_normals(list(words.unbind()), *counters, 1, use_compiler)
        part = theta[:, start : start + len(block)].transpose(0, 1)
        moved = update([part], (eps.to(theta.dtype), eps))
        guides[:, start : start + len(block)] = moved.guide.transpose(0, 1)
    return guides


def draw_normals(
    words: Sequence[Tensor], x0: Tensor, x1: Tensor, number: int, use_compiler: bool
) -> tuple[Tensor, ...]:
    """One or two standard normals for each counter (x0, x1), under the keys of `words`."""
    normals: tuple[Tensor, ...] = _call(_normals, use_compiler, words, x0, x1, number)
    return normals


def _call(function: Callable[..., Any], use_compiler: bool, *arguments: Any) -> Any:
    if not use_compiler:
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
    return torch.compile(function, dynamic=True, fullgraph=True, options=kernel.OPTIONS)
