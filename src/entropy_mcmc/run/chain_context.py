"""What the chains of a run share: config, model, data, processes and folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run.config import RunConfig
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.model_and_data import Problem
from entropy_mcmc.run.other_processes import Peers


@dataclass(frozen=True)
class Context:
    """What the chains of a run share.

    `fabric` is that of the processes that make a chain together, `local` that of those that hold
    one network: they differ where each process has a replica.
    """

    config: RunConfig
    problem: Problem
    fabric: Any
    local: Any
    model: nn.Module
    module: Any
    folder: Path
    posterior: Posterior
    cycle_steps: int
    cycles: int
    part: int | None = None  # the chain that has a journal of its own
    peers: Peers | None = None  # other processes, with chains of their own

    @property
    def journal(self) -> Journal:
        """`metrics.jsonl` of the run."""
        return Journal(self.folder, self.part)

    def checkpoints(self, chain: int) -> Path:
        """Where a chain keeps its checkpoints."""
        return self.folder / "checkpoint" / f"chain-{chain}"

    @property
    def micro_batches(self) -> list[int]:
        """Numbers of the micro-batches of this process: a contiguous share."""
        count, ranks = self.config.compute.micro_batches or 1, self.local.world_size
        share = count // ranks
        first = self.local.global_rank * share
        return list(range(first, first + share))

    @property
    def spread(self) -> bool:
        """Whether each process has a replica of its own."""
        return self.local is not self.fabric

    @property
    def replicas(self) -> list[int]:
        """Numbers of the replicas of this process."""
        return [self.fabric.global_rank] if self.spread else list(range(self.config.replicas))
