"""Replicas on several processes: one on each, and what is exchanged.

The sum of θ_i−θ_a over the processes is all that a round needs. A replica of another process is
broadcast when it is asked for, and `state_dict` gathers all, so that a checkpoint is that of one
process; each process takes its own replica from it. Where the guide does not move in every round,
it also has the pulls that each process keeps for the next exchange: their sum would do, but not to
the last bit. All processes exchange the same tensors: those of parameters that have begun, that is,
had a gradient on some process. As long as one has not begun, a mask of them is exchanged as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.samplers.base import Sampler
from entropy_mcmc.samplers.kernel.common_start import broadcast, share_start
from entropy_mcmc.samplers.kernel.rests import rests_of, share_rests
from entropy_mcmc.samplers.sghmc import alone_update

DEFAULT = "default"  # in place of the process group that torch has started


class SpreadReplicas(Sampler):
    """A sampler whose replicas may live on one process each; `Replicated` makes their steps."""

    _given_ranks: Any = None
    _begun: int = 0  # parameters that have a guide on every process

    @property
    def _ranks(self) -> Any:
        """The process group whose processes have one replica each; None: all are in this one.

        The default group is looked up, not held: one that is still held when its process ends,
        after `destroy_process_group`, may abort it (gloo).
        """
        if self._given_ranks is not DEFAULT:
            return self._given_ranks
        if torch.distributed.group.WORLD is None:
            raise StateError(
                "the replicas are spread over processes whose process group was destroyed; call "
                "torch.distributed.destroy_process_group() after the last use of the sampler"
            )
        return torch.distributed.group.WORLD

    @_ranks.setter
    def _ranks(self, ranks: Any) -> None:
        self._given_ranks = DEFAULT if ranks is torch.distributed.group.WORLD else ranks

    @property
    def num_replicas(self) -> int:
        """Number y of replicas."""
        return int(self.param_groups[0]["replicas"])

    @property
    def calls_per_round(self) -> int:
        """Calls of `step` until every replica has moved: one where each process has its own."""
        return 1 if self._ranks is not None else self.num_replicas

    @property
    def current_replica(self) -> int:
        """Number of the replica that is in the model now."""
        if self._ranks is not None:
            return int(torch.distributed.get_rank(self._ranks))
        return int(self.param_groups[0]["replica"])

    def spread_replicas(self, process_group: Any = None, model: nn.Module | None = None) -> None:
        """Keep one replica on each process of a group (default: all); before the first step.

        Every process then makes its own steps with its own mini-batches; the noise is that of all
        replicas in one process. All replicas start as the parameters of process 0, with its seed,
        as `DistributedDataParallel` does; with other hyper-parameters than its own, all raise.
        `state_dict` and `replica` become collective calls.

        Args:
            process_group: Its processes; as many as there are replicas.
            model: All of its parameters and buffers become those of process 0, also the ones that
                the sampler does not move. Not needed where every process made the same model.
        """
        ranks = process_group or torch.distributed.group.WORLD
        share_start(self, model, ranks)
        size = torch.distributed.get_world_size(ranks)
        if size != self.num_replicas:
            raise ConfigError(
                f"replicas must be as many as the processes that share them, got "
                f"replicas={self.num_replicas} on {size} processes; start {self.num_replicas}, or "
                f"pass replicas={size}"
            )
        self._ranks = ranks
        self._take_own()

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers of all replicas; `load_state_dict` continues bit for bit."""
        if self._ranks is None:
            return super().state_dict()
        with self._gathered():
            return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave, on as many processes as one likes."""
        super().load_state_dict(state_dict)
        self._begun = 0
        if self._ranks is not None:
            self._take_own()
            return
        for state in [self.state[p] for p in self._with(_pull(0))]:
            for number in range(self.num_replicas):
                state.pop(_pull(number), None)

    def _with(self, name: str) -> list[Tensor]:
        """Parameters beside which a variable is kept."""
        return [p for g in self.param_groups for p in g["params"] if name in self.state.get(p, {})]

    def _begin_replicas(self, param: Tensor) -> None:
        raise NotImplementedError

    def _begin_on_all(self) -> None:
        """Begin what had its first gradient on another process: here it rested until now."""
        groups = [(group, p) for group in self.param_groups for p in group["params"]]
        if self._begun == len(groups):
            return
        has = [int("guide" in self.state.get(p, {})) for _, p in groups]
        begun = torch.tensor(has, dtype=torch.int32, device=groups[0][1].device)
        torch.distributed.all_reduce(begun, torch.distributed.ReduceOp.MAX, group=self._ranks)
        found = [pair for pair, some in zip(groups, begun.tolist(), strict=True) if some]
        for group, p in found:
            self._begin_replicas(p)
            for name in alone_update(group).starts:  # where it moved, it has a velocity
                self._variable(p, variable_of(name, self.current_replica), 0.0)
        self._begun = len(found)

    @contextmanager
    @torch.no_grad()
    def _received(self, number: int) -> Iterator[None]:
        """Inside the block `state` holds the replica of another process as "shown"."""
        self._refuse_inside_block("replica()")
        params = [p for group in self.param_groups for p in group["params"]]
        for p in params:
            self.state[p]["shown"] = self._broadcast(self._theta(p), number)
        try:
            yield
        finally:
            for p in params:
                del self.state[p]["shown"]

    def _broadcast(self, value: Tensor, number: int) -> Tensor:
        """A copy of the value that process `number` has."""
        return broadcast(value, number, self._ranks)

    @contextmanager
    @torch.no_grad()
    def _gathered(self) -> Iterator[None]:
        """Inside the block `state` holds all replicas, as it does in one process."""
        self._begin_on_all()
        own = {p: dict(self.state[p]) for p in self._with("guide")}
        waiting = any(group["exchange_every"] > 1 for group in self.param_groups)
        for p, state in own.items():
            moving = [name for name in state if name.startswith("velocity_")]
            self.state[p] = {n: v for n, v in state.items() if n not in (*moving, "master")}
            for number in range(self.num_replicas):
                self.state[p][slot(number)] = self._broadcast(_theta_of(p, state), number)
                for name in moving:
                    key = variable_of("velocity", number)
                    self.state[p][key] = self._broadcast(state[name], number)
            if "master" in state:
                self.state[p]["master"] = self.state[p][slot(0)].clone()
            if waiting:
                pulls = [self._broadcast(state["pull"], i) for i in range(self.num_replicas)]
                self.state[p] |= {_pull(number): pull for number, pull in enumerate(pulls)}
                self.state[p]["pull"] = torch.stack(pulls).sum(0)
        for group in [group for group in self.param_groups if alone_update(group).pairs > 1]:
            row = rests_of(group, self.current_replica)
            share_rests(group, [self._broadcast(row, i) for i in range(self.num_replicas)])
        try:
            yield
        finally:
            self.state.update(own)

    @torch.no_grad()
    def _take_own(self) -> None:
        """Put this process' replica into the model and forget the others."""
        own = self.current_replica
        for p in self._with(slot(own)):
            state = self.state[p]
            self._theta(p).copy_(state[slot(own)])
            self._publish([p])
            if _pull(own) in state:
                state["pull"] = state[_pull(own)]
            elif own:  # the sum of all is the first process' to keep
                state["pull"] = torch.zeros_like(state["pull"])
            others = [name(number) for number in range(self.num_replicas) for name in (slot, _pull)]
            others += [variable_of("velocity", i) for i in range(self.num_replicas) if i != own]
            for name in others:
                state.pop(name, None)


def sum_over(ranks: Any, tensors: list[Tensor]) -> None:
    """Sum tensors over processes in place, by one call."""
    flat: Tensor = _flatten_dense_tensors(tensors)  # type: ignore[no-untyped-call]
    torch.distributed.all_reduce(flat, group=ranks)
    parts = _unflatten_dense_tensors(flat, tensors)  # type: ignore[no-untyped-call]
    torch._foreach_copy_(tensors, list(parts))


def slot(number: int) -> str:
    """Name under which θ of a replica is kept."""
    return variable_of("theta", number)


def _pull(number: int) -> str:
    """Name under which the pull of a process is saved."""
    return variable_of("pull", number)


def variable_of(variable: str, number: int) -> str:
    """Name under which a variable of a replica is kept."""
    return f"{variable}_{number}"


def _theta_of(param: Tensor, state: dict[str, Tensor]) -> Tensor:
    """θ of this process: the parameter itself, or its float32 master."""
    return state.get("master", param.detach())
