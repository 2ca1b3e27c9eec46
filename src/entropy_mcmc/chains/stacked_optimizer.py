"""A sampler of K chains whose parameters are stacked: one step moves all, each with its own noise.

It is the sampler itself, over tensors with a leading dimension K, so that groups, schedules, phases
and checks are those of one chain. Its rules are elementwise: only the normals tell the chains
apart, and chain k gets those of an optimizer with seed k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

from torch import Tensor

from entropy_mcmc import noise
from entropy_mcmc.chains.stack_noise import StackNoise
from entropy_mcmc.samplers import Sampler
from entropy_mcmc.samplers.kernel.advance import CHUNK, numbers_of, run_bucket, schedule_of
from entropy_mcmc.samplers.kernel.layout import Layout
from entropy_mcmc.samplers.kernel.parameters import Group
from entropy_mcmc.samplers.kernel.tensor_buckets import Bucket, Slot, Slots
from entropy_mcmc.samplers.rule import Update


class OfManyChains(Sampler):
    """What a sampler class is mixed with, so that row k of its parameters is chain k."""

    _noise: StackNoise

    def _advance(self, group: Group, layout: Layout) -> None:
        update = self.update(group)
        if not update.normals:
            super()._advance(group, layout)
            return
        fused = self._use_fused(group, layout.params)

        def move(bucket: Bucket, values: Sequence[Tensor]) -> None:
            rows = [value.view(self.stacked_chains, -1) for value in values]
            slots = _slots(bucket, self.stacked_chains)
            if fused:
                self._move_each(update, group, rows, Bucket(bucket.members, slots), layout.left)
            else:
                numbers = numbers_of(update, group["step"], layout.left)
                self._move_all(update, numbers, rows, slots)

        layout.each_bucket(self._variables(update, group, layout.params, layout), move)
        layout.forget_gradients()

    def _move_each(
        self,
        update: Update,
        group: Group,
        rows: Sequence[Tensor],
        bucket: Bucket,
        left: int | None,
    ) -> None:
        """The compiled kernel of one chain, for each."""
        for k, seed in enumerate(self._noise.seeds):
            schedule = schedule_of(update, {**group, "seed": seed}, left=left)
            run_bucket(update, [value[k] for value in rows], schedule, bucket, fused=True)

    def _move_all(
        self,
        update: Update,
        numbers: Sequence[int],
        rows: Sequence[Tensor],
        slots: Sequence[Slot],
    ) -> None:
        """All chains by one call of the rule, or a few where they are larger than the cache."""
        places = tuple((slot.parameter, slot.size) for slot in slots)
        drawn = [self._noise.normals(number, places) for number in numbers]
        eps = tuple((one.to(rows[0].dtype), two.to(rows[0].dtype)) for one, two in drawn)
        flat = [value.view(-1) for value in rows]
        for start in range(0, flat[0].numel(), CHUNK):
            part = slice(start, start + CHUNK)
            cut = tuple((one.view(-1)[part], two.view(-1)[part]) for one, two in eps)
            old = [value[part] for value in flat]
            new = update(old, cut[0] if update.pairs == 1 else cut)  # type: ignore[arg-type]
            for value, moved in zip(old, new, strict=False):
                value.copy_(moved)


def stacked_optimizer(
    kind: type[Sampler], seeds: Sequence[int], make: Callable[[type[Sampler]], Sampler]
) -> Sampler:
    """The sampler that `make` builds of a class like `kind`, over stacked parameters.

    Args:
        kind: A sampler that takes one gradient per step.
        seeds: One for each chain.
        make: Builds it; its own seed is not used.
    """
    sampler: Any = make(_class_of(kind))  # type: ignore[arg-type]
    device = sampler.param_groups[0]["params"][0].device
    sampler._noise = StackNoise([noise.check_seed(seed) for seed in seeds], device)
    sampler.stacked_chains = len(seeds)
    stacked: Sampler = sampler
    return stacked


@cache
def _class_of(kind: type[Sampler]) -> type[Sampler]:
    return type(kind.__name__, (OfManyChains, kind), {"__doc__": kind.__doc__})


def _slots(bucket: Bucket, chains: int) -> Slots:
    """Where the elements of one chain live in the noise."""
    return _slots_of(bucket.slots, chains)


@lru_cache(maxsize=256)
def _slots_of(slots: tuple[Slot, ...], chains: int) -> Slots:
    return Slots(Slot(s.parameter, 0, s.size // chains, s.device) for s in slots)
