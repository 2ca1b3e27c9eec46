"""Gradients of all replicas of a chain at once; the sampler then moves them in turn, as ever.

In a round every replica is moved from its old value by its own mini-batch, and the guide after all
of them: so all gradients of a round can be taken before its first step. Not so in a round without
coupling, whose steps move one network after each other: its gradients are taken in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from entropy_mcmc.chains.stacked_modules import StackedModules
from entropy_mcmc.run.devices import cast, without_running_statistics
from entropy_mcmc.run.stacked_gradients import stacked_batch, stacked_losses

if TYPE_CHECKING:
    from entropy_mcmc.run.chain import Chain


class ReplicaStack:
    """Room for the parameters of all replicas of a network."""

    def __init__(self, model: nn.Module, replicas: int) -> None:
        training = model.training
        self._networks = StackedModules([model.train()] * replicas)
        model.train(training)
        self._params = {n: p for n, p in model.named_parameters() if p.requires_grad}

    def gradients(self, chain: Chain) -> Callable[[int], Tensor]:
        """What puts the gradient of replica i into the network, and returns its loss."""
        self._take(chain.sampler)
        losses = self._backward(chain)
        stacked = self._networks.parameters

        def gradient(replica: int) -> Tensor:
            for name, param in self._params.items():
                grad = stacked[name].grad
                param.grad = None if grad is None else grad[replica]
            return losses[replica]

        return gradient

    @torch.no_grad()
    def _take(self, sampler: Any) -> None:
        """The parameters of all replicas, which are the network's before the first step."""
        for name, param in self._params.items():
            begun = "guide" in sampler.state.get(param, {})
            for k, row in enumerate(self._networks.parameters[name]):
                row.copy_(sampler.replica_value(param, k) if begun else param)

    def _backward(self, chain: Chain) -> Tensor:
        """Gradients of all replicas into the stack; returns their losses."""
        context, replicas = chain.context, len(self._networks)
        steps = [chain.data_step(replica) for replica in range(replicas)]
        count, precision = (
            context.config.compute.micro_batches or 1,
            context.config.compute.precision,
        )
        for param in self._networks.parameters.values():
            param.grad = None
        total = torch.zeros(replicas)
        with without_running_statistics(self._networks.base):
            for index in context.micro_batches:
                sources = [chain.source] * replicas
                inputs, targets = stacked_batch(sources, steps, index, count)
                outputs = self._networks(cast(inputs, precision))
                losses = stacked_losses(context.problem.loss, outputs, cast(targets, precision))
                losses = losses / len(context.micro_batches)
                losses.sum().backward()  # type: ignore[no-untyped-call]
                total = total + losses.detach()
        return total
