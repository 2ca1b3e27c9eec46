"""Whether the networks of a run are trained at once: a function of its config and its network."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from entropy_mcmc.errors import ConfigError, EntropyMCMCError
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.devices import without_running_statistics
from entropy_mcmc.run.methods import METHODS
from entropy_mcmc.run.model_and_data import Problem
from entropy_mcmc.run.one_process import OneProcess
from entropy_mcmc.run.run_folder import Record
from entropy_mcmc.run.stacked_gradients import check_stackable, stacked_batch

# Weights of a network up to which `auto` stacks: beyond, batched products are no faster.
LARGEST = 32_768
LARGEST_BATCH = 256  # rows, likewise
TRIED = 2  # networks that are stacked for a try


def resolve_stacked(
    config: RunConfig, old: Record | None, problem: Problem, network: nn.Module, fabric: Any
) -> RunConfig:
    """The config with `compute.stacked` "yes" or "no"; what the first start chose stays."""
    if old is not None:
        # Earlier versions had no such entry.
        recorded, wanted = old.config.compute.stacked, config.compute.stacked
        if recorded == "yes" and not isinstance(fabric, OneProcess):
            raise ConfigError(
                "the networks of this run are trained at once (compute.stacked=yes), on one "
                "process; go on with one, without --compute.devices and --compute.nodes"
            )
        kept = recorded if wanted in (None, recorded) or recorded is None else wanted
        return with_parts(config, compute={"stacked": kept})
    chosen = "yes" if _is_wanted(config, network) and _works(config, problem, fabric) else "no"
    return with_parts(config, compute={"stacked": chosen})


def _is_wanted(config: RunConfig, network: nn.Module) -> bool:
    several = (config.chains or 1) > 1 or config.replicas > 1
    if not several or config.compute.stacked is not None:
        return several and config.compute.stacked == "yes"
    weights = sum(p.numel() for p in network.parameters() if p.requires_grad)
    convolves = any(isinstance(layer, _ConvNd) for layer in network.modules())
    small = weights <= LARGEST and config.data.batch_size <= LARGEST_BATCH
    return small and not convolves


def _works(config: RunConfig, problem: Problem, fabric: Any) -> bool:
    """Whether the networks can be stacked; if not, say why."""
    reason = _obstacle(config, problem, fabric)
    if reason is None:
        return True
    if config.output.progress or config.compute.stacked == "yes":
        print(
            f"the networks are trained one after the other, not at once: {reason}",
            file=sys.stderr,
            flush=True,
        )
    return False


def _obstacle(config: RunConfig, problem: Problem, fabric: Any) -> str | None:
    if not isinstance(fabric, OneProcess):
        return "stacks need one process on the CPU in full precision"
    if METHODS[config.method].sampler.needs_closure:
        return f"method {config.method} takes several gradients in a step"
    if config.data.workers:
        return f"data.workers={config.data.workers} reads the batches of one chain ahead"
    if config.output.tensorboard:
        return "output.tensorboard follows one chain at a time"
    try:
        _try(config, problem)
    except (EntropyMCMCError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def _try(config: RunConfig, problem: Problem) -> None:
    """Stack some networks, on the first batch, and compare."""
    count = config.compute.micro_batches or 1
    sources = [problem.make_source(number) for number in range(TRIED)]
    inputs, targets = stacked_batch(sources, [0] * TRIED, 0, count)
    with torch.random.fork_rng(), ExitStack() as stack:
        modules = list(_copies(config, problem))
        for module in modules:
            stack.enter_context(without_running_statistics(module))
        if config.compute.precision == "64-true":
            inputs = inputs.double()
            targets = targets.double() if targets.is_floating_point() else targets
        check_stackable(modules, problem.loss, inputs, targets)


def _copies(config: RunConfig, problem: Problem) -> Iterator[nn.Module]:
    for number in range(TRIED):
        module = problem.build(number) if number else copy.deepcopy(problem.model)
        yield (module.double() if config.compute.precision == "64-true" else module).train()
