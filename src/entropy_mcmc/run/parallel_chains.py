"""Independent chains on several processes, each with its own network, in one run folder.

Process r of R makes the chains r, r + R, r + 2R, …. Checkpoints and journals are one per chain, so
nobody waits for anybody; only the store of samples is shared, and processes write to it in turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from entropy_mcmc.posterior import Posterior, ranks, sample_writer
from entropy_mcmc.posterior.atomic_files import WriterLock
from entropy_mcmc.posterior.refreshing import refreshed
from entropy_mcmc.posterior.sample_reader import Reader
from entropy_mcmc.posterior.store import Store
from entropy_mcmc.run.chain_context import Context
from entropy_mcmc.run.chain_loop import run_chain
from entropy_mcmc.run.checkpoint import explained
from entropy_mcmc.run.other_processes import FAILED, FINISHED, Peers
from entropy_mcmc.run.signals import Interrupted

TURN = ".turn"


class SharedPosterior(Posterior):
    """A posterior that several processes collect into: each takes the writer's place in turn."""

    def collect(
        self,
        optimizer: Any = None,
        *,
        step: int | None = None,
        cycle: int | None = None,
        chain: int | None = None,
        frozen_batchnorm: bool = False,
    ) -> int:
        """Keep a sample of this process alone; arguments as `Posterior.collect`."""
        with turn(self.path), Posterior.open(self.path, self.model, append=True) as writer:
            return writer.collect(
                optimizer, step=step, cycle=cycle, chain=chain, frozen_batchnorm=frozen_batchnorm
            )

    def refresh_chains(self, loader: Iterable[Any], chains: Iterable[int]) -> None:
        """Refresh the samples of these chains; arguments as `refresh_batchnorm`."""
        mine = set(chains)
        pending = [
            s for s in self.samples if s.batchnorm == "stale" and s.chain_and_step[0] in mine
        ]
        if not pending:
            return
        reader = Reader(Store(self.path, write=False), skip_damaged=False)
        with ranks.alone():
            for sample, fresh in refreshed(self.model, reader, pending, loader):
                with turn(self.path), _writer(self.path) as store:
                    sample_writer.replace_buffers(store, sample, fresh)


@contextmanager
def _writer(path: Path) -> Iterator[Store]:
    store = Store(path, write=True)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Wait until no other process of the run writes samples; a killed one does not block."""
    with WriterLock(folder, TURN, wait=True), ranks.alone():
        yield


def run_own_chains(context: Context, fabric: Any, loader: Iterable[Any]) -> None:
    """Make this process' chains and wait for the others; `fabric` is that of all processes."""
    mine = range(fabric.global_rank, context.config.chains or 1, fabric.world_size)
    peers = Peers(fabric, context.config.compute.timeout)
    code = FAILED
    try:
        for chain in mine:
            run_chain(replace(context, part=chain, peers=peers), chain)
        assert isinstance(context.posterior, SharedPosterior)
        with torch.random.fork_rng(), explained(context.folder):
            context.posterior.refresh_chains(loader, mine)
        code = FINISHED
    except Interrupted as stop:
        code = stop.signum
        raise
    finally:
        peers.leave(code)
    peers.wait(
        f"the chains of process {peers.rank} are finished; run the same command again, with any "
        "number of processes, to finish the others"
    )
