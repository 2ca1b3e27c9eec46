"""Run a chain to its end: log, checkpoint on time, stop on signals, keep the last good state."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing, nullcontext
from typing import Any

import torch

from entropy_mcmc.errors import NonFiniteError, StateError
from entropy_mcmc.run.chain import Chain
from entropy_mcmc.run.chain_context import Context
from entropy_mcmc.run.chain_stack import ChainStack
from entropy_mcmc.run.devices import loss_explained, without_running_statistics
from entropy_mcmc.run.progress import Progress, TensorBoard, make_progress
from entropy_mcmc.run.signals import Interrupted, Interrupts
from entropy_mcmc.samplers.kernel.ahead import Compilation, compile_ahead

LINES = 20  # a run's journal has at least so many lines, if it has so many steps
POLL = 16  # steps between two agreements of several processes


def run_chain(context: Context, number: int) -> None:
    """Make the steps that chain `number` still lacks."""
    chain = Chain(context, number)
    chain.restore()
    if chain.finished:
        return
    if context.fabric.is_global_zero:
        context.journal.rewind(number, chain.step)
    context.fabric.barrier()
    context.module.train()
    with without_running_statistics(context.model), closing(_progress(context, chain)) as progress:
        _guarded(context, chain, progress)


def run_stack(context: Context) -> None:
    """Make the steps that the chains still lack, all chains at once."""
    stack = ChainStack(context)
    stack.restore()
    if stack.finished:
        return
    for chain in stack.chains:
        chain.context.journal.rewind(chain.number, stack.step)
    label, shown = f"{context.config.method} × {len(stack.chains)}", context.config.output.progress
    with ExitStack() as inside:
        for model in (stack.networks.base, *(chain.context.model for chain in stack.chains)):
            inside.enter_context(without_running_statistics(model))
        progress = make_progress(label, stack.step, stack.plan.total, shown=shown)
        _guarded(context, stack, inside.enter_context(closing(progress)))
    stack.close()


def _guarded(context: Context, chain: Chain | ChainStack, progress: Progress) -> None:
    """All steps; signals, lost processes and a diverged chain end them with a message."""
    ahead = (
        None if context.fabric.world_size > 1 else compile_ahead(chain.sampler, chain.plan.total)
    )
    with (
        torch.random.fork_rng(),
        closing(ahead) if ahead else nullcontext(),
        Interrupts() as interrupts,
    ):
        try:
            with loss_explained(context.fabric, lambda: f" at step {chain.step}"):
                _steps(context, chain, progress, interrupts, ahead)
        except NonFiniteError as error:
            step = chain.saved_step
            kept = f"the last good checkpoint, of step {step}, is kept" if step else "none was due"
            raise NonFiniteError(f"{error} ({context.folder}: {kept})") from error


def _steps(
    context: Context,
    chain: Chain | ChainStack,
    progress: Progress,
    interrupts: Interrupts,
    ahead: Compilation | None = None,
) -> None:
    due = _Due(context, interrupts)
    every = log_every(context.config.log_every, context.cycle_steps * context.cycles)
    while not chain.finished:
        if ahead is not None and chain.step == chain.sampler.compiled_from:
            ahead.wait()
        chain.advance()
        progress.advance()
        if chain.step % every == 0 or chain.finished:
            progress.show(chain.log())
        signum = due.look(chain.step)
        if context.peers is not None:
            context.peers.working()
        trouble = context.peers.trouble if context.peers is not None else None
        if due.checkpoint or signum or trouble or chain.finished:
            chain.save()
            due.restart()
        if signum and not chain.finished:
            raise _stop(context, chain, signum)
        if trouble and not chain.finished:
            raise StateError(f"{trouble}; {_stopped(context, chain)}, with any number of processes")


def log_every(wanted: int, steps: int) -> int:
    """Steps between two lines of the journal; fewer in short runs, so that they have a curve.

    >>> log_every(50, 10_000), log_every(50, 40)
    (50, 2)
    """
    return min(wanted, max(1, steps // LINES))


class _Due:
    """Whether a checkpoint is due or a signal came, agreed by all processes."""

    def __init__(self, context: Context, interrupts: Interrupts) -> None:
        self._fabric, self._interrupts = context.fabric, interrupts
        self._seconds = context.config.output.checkpoint_seconds
        self.restart()

    def restart(self) -> None:
        """Start the clock again."""
        self.checkpoint, self._last = False, time.monotonic()

    def look(self, step: int) -> int:
        """Update `checkpoint` and return the signal, or 0."""
        late = time.monotonic() - self._last >= self._seconds
        signum = self._interrupts.received
        if self._fabric.world_size > 1:
            if step % POLL:
                return 0
            flags = torch.tensor([float(late), float(signum)], device=self._fabric.device)
            agreed: Any = self._fabric.all_reduce(flags, reduce_op="max")
            late, signum = bool(agreed[0]), int(agreed[1])
        self.checkpoint = late
        return signum


def _stop(context: Context, chain: Chain | ChainStack, signum: int) -> Interrupted:
    message = _stopped(context, chain)
    if context.fabric.is_global_zero:
        print(message, file=sys.stderr, flush=True)
    return Interrupted(message, signum)


def _stopped(context: Context, chain: Chain | ChainStack) -> str:
    return (
        f"stopped at step {chain.step} of {chain.label}; a checkpoint is in "
        f"{context.folder}: run the same command again to go on"
    )


def _progress(context: Context, chain: Chain) -> Progress:
    output = context.config.output
    chains = context.config.chains or 1
    label = context.config.method + (f" {chain.number + 1}/{chains}" if chains > 1 else "")
    main = context.fabric.is_global_zero
    shown = output.progress and main and (context.peers is None or context.peers.rank == 0)
    progress = make_progress(label, chain.step, chain.plan.total, shown=shown)
    if output.tensorboard and main:
        place = context.folder / "tensorboard" / f"chain-{chain.number}"
        return TensorBoard(progress, place, chain.step)
    return progress
