"""Batch-norm statistics at the end of a run: which batches, and how many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from entropy_mcmc.run.chain_context import Context
from entropy_mcmc.run.config import RunConfig
from entropy_mcmc.run.devices import cast
from entropy_mcmc.run.methods import METHODS, gradients_per_step

SHARE = 0.3  # batches for the samples of a cycle / its gradients: a tenth of its time, or less
LEAST = 8  # batches, although it is more than that share of a very short run


def refresh_batches(config: RunConfig, cycle_steps: int, epoch_steps: int) -> int:
    """How many batches give each sample its statistics.

    A forward pass takes about a third of a step. The samples of a cycle share SHARE forward passes
    for each gradient of the cycle: a tenth of the run's time. Each gets LEAST batches at least,
    and never more than one epoch. benchmarks/refresh.py shows what fewer batches cost.
    """
    if config.refresh_batches is not None:
        return config.refresh_batches
    schedule = config.schedule
    assert schedule.samples_per_cycle is not None
    guides = int(METHODS[config.method].has_guide and config.roles != "theta")
    thetas = 0 if guides and config.roles == "guide" else config.replicas
    each = schedule.samples_per_cycle * (guides + thetas)
    samples = 1 if METHODS[config.method].averages else each
    share = SHARE * cycle_steps * gradients_per_step(config) / samples
    return min(max(int(share), LEAST), epoch_steps)


class RefreshBatches:
    """Inputs of the first batches of epoch 0 for this process, readable again and again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        epoch = context.problem.source.steps
        self.count = refresh_batches(context.config, context.cycle_steps, epoch)

    def __iter__(self) -> Iterator[Any]:
        context, source = self._context, self._context.problem.source
        parts = context.config.compute.micro_batches or 1
        # Processes with replicas of their own share the batches, others each batch.
        shared = context.spread and self.count >= context.config.replicas
        first, every = (context.replicas[0], context.config.replicas) if shared else (0, 1)
        for step in range(first, self.count, every):
            for index in context.micro_batches:
                inputs, _ = source.micro(step, index, parts)
                yield cast(inputs, context.config.compute.precision)
