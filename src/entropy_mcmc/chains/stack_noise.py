"""The noise of K chains at once: row k is what an optimizer with the seed of chain k draws."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from entropy_mcmc import noise
from entropy_mcmc.chains.noise_and_batches import draw_normals
from entropy_mcmc.samplers.kernel.advance import CHUNK, KEYS_AT_A_TIME
from entropy_mcmc.samplers.kernel.inductor import quiet_compiler

Places = tuple[tuple[int, int], ...]
"""(index of a parameter in the optimizer's order, its elements in one chain), for each tensor."""


class StackNoise:
    """Normals of K seeds for the elements of some tensors."""

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.seeds, self._device = list(seeds), device
        self._keys: tuple[int, Tensor] | None = None

    def normals(
        self, step: int, places: Places, *, compiled: bool = False, stream: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Two float32 normals for each (chain, element of all tensors)."""
        words, counters = self._words(step, stream), _counters(places, self._device)
        if not compiled:
            return _drawn(words, *counters)
        with quiet_compiler():
            first, second = draw_normals(words, *counters, 2, True)
        return first, second

    def _words(self, step: int, stream: int) -> list[Tensor]:
        """Key words of a step, (chain, 1) each."""
        if stream:  # of a draw that is asked for now and then
            return list(self._schedules(step, 1, stream)[:, 0, :, None].unbind())
        start = step - step % KEYS_AT_A_TIME
        if self._keys is None or self._keys[0] != start:
            self._keys = start, self._schedules(start, KEYS_AT_A_TIME, 0)
        return list(self._keys[1][:, step - start, :, None].unbind())

    def _schedules(self, start: int, count: int, stream: int) -> Tensor:
        keys = [
            noise.step_schedules(seed, start, count, stream, device=self._device)
            for seed in self.seeds
        ]
        return torch.stack(keys, dim=-1)


def _drawn(words: Sequence[Tensor], x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    """Normals (chain, element), a cache-sized part at a time."""
    chains, size = len(words[0]), x0.shape[1]
    most = max(1, CHUNK // chains)
    if size <= most:
        return noise.normal_rows(words, x0, x1)
    first, second = (x0.new_empty(chains, size, dtype=torch.float32) for _ in range(2))
    for start in range(0, size, most):
        part = slice(start, start + most)
        first[:, part], second[:, part] = noise.normal_rows(words, x0[:, part], x1[:, part])
    return first, second


@lru_cache(maxsize=64)
def _counters(places: Places, device: torch.device) -> tuple[Tensor, Tensor]:
    """Noise counters of the elements of one chain: the same for all, whose keys differ."""
    pairs = [noise.counters(parameter, 0, size, device) for parameter, size in places]
    low = torch.cat([x0 for x0, _ in pairs])
    high = torch.cat([x1.expand_as(x0) for x0, x1 in pairs])
    return low[None], high[None]
