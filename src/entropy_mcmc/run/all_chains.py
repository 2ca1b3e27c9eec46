"""All chains of a run: at once, one after the other, or each process its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from entropy_mcmc.run.chain_context import Context
from entropy_mcmc.run.chain_loop import run_chain, run_stack
from entropy_mcmc.run.checkpoint import explained
from entropy_mcmc.run.devices import on_first
from entropy_mcmc.run.parallel_chains import SharedPosterior, run_own_chains
from entropy_mcmc.run.refresh import RefreshBatches


def run_all_chains(context: Context, fabric: Any) -> Context:
    """All chains, and the batch-norm statistics of their samples."""
    if context.fabric is not fabric:
        context.posterior.close()
        fabric.barrier()
        shared = SharedPosterior.open(context.folder, context.model, output=context.problem.output)
        context = replace(context, posterior=shared)
        run_own_chains(context, fabric, RefreshBatches(context))
        on_first(fabric, context.journal.merge)
        return context
    config = context.config
    at_once = config.compute.stacked == "yes" and (config.chains or 1) > 1 == config.replicas
    if not at_once:  # chains at once have journals of their own, which are merged in the end
        on_first(fabric, context.journal.merge)
    with context.posterior:
        _run_here(context, at_once=at_once)
        with torch.random.fork_rng(), explained(context.folder):
            shown = context.config.output.progress
            context.posterior.refresh_batchnorm(RefreshBatches(context), progress=shown)
    return context


def _run_here(context: Context, *, at_once: bool) -> None:
    """All chains of the only process, or of those that make each chain together."""
    if at_once:
        run_stack(context)
        context.journal.merge()
        return
    for chain in range(context.config.chains or 1):
        run_chain(context, chain)
