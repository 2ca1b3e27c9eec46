"""The chains of a run at once: parameters stacked, one forward pass, one step of the sampler.

Each chain keeps its own network, sampler, journal and checkpoints, as if it ran alone: its network
holds row k of the stacked parameters, and what the stack counts is handed to it when a sample, a
line of the journal or a checkpoint is due. All chains are at the same step.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.chains.stacked_modules import StackedModules
from entropy_mcmc.chains.stacked_optimizer import stacked_optimizer
from entropy_mcmc.diagnostics import Thermometer
from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.run import checkpoint as checkpoints
from entropy_mcmc.run.chain import Chain
from entropy_mcmc.run.chain_context import Context
from entropy_mcmc.run.chain_state import fill
from entropy_mcmc.run.devices import cast
from entropy_mcmc.run.methods import METHODS, build, parameter_groups
from entropy_mcmc.run.stacked_gradients import parameters_by_name, stacked_batch, stacked_losses
from entropy_mcmc.run.step_schedule import Plan

OWN = ("params", "param_names", "seed")  # group entries that are not those of all chains


class ChainStack:
    """All chains of a run, and what a step does to them; to the loop it is like one `Chain`."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.chains = [_chain(context, number) for number in range(context.config.chains or 1)]
        self.networks = StackedModules([chain.context.model for chain in self.chains])
        self._share_memory()
        self.sampler = self._make_sampler()
        self.plan = Plan(context.config, self.sampler, context.cycle_steps, context.cycles)
        self.thermometer = self._make_thermometer()
        self.step = self.loss_count = self.noisy = 0
        self.loss_sums = torch.zeros(len(self.chains), dtype=torch.float64)
        self.clipped = torch.zeros(len(self.chains), dtype=torch.int64)

    def _share_memory(self) -> None:
        """Let the network of chain k hold row k of the stacked parameters."""
        for k, chain in enumerate(self.chains):
            for name, param in chain.context.model.named_parameters():
                if name in self.networks.parameters:
                    param.data = self.networks.parameters[name].detach()[k]

    def _make_sampler(self) -> Any:
        config, problem = self.context.config, self.context.problem
        seeds = [chain.sampler.param_groups[0].get("seed", 0) for chain in self.chains]
        groups = parameter_groups(config, self.chains[0].context.model, problem.num_data)
        stacked = parameters_by_name(groups, self.networks.parameters)
        kind = METHODS[config.method].sampler
        return stacked_optimizer(
            kind, seeds, lambda made: build(config, stacked, problem.num_data, 0, made)
        )

    def _make_thermometer(self) -> Thermometer | None:
        first = self.chains[0].thermometer
        return None if first is None else Thermometer(self.sampler, first.epoch_steps)

    @property
    def label(self) -> str:
        """What messages call the chains."""
        return f"chains 0 to {len(self.chains) - 1}"

    @property
    def finished(self) -> bool:
        """Whether all steps are made."""
        return self.step >= self.plan.total

    @property
    def saved_step(self) -> int:
        """The newest step of which all chains have a checkpoint, 0 if there is none."""
        return min(chain.saved_step for chain in self.chains)

    def restore(self) -> None:
        """Go to the newest checkpoint that all chains have, if there is one."""
        folders = [self.context.checkpoints(chain.number) for chain in self.chains]
        saved = checkpoints.load_common(folders)
        if saved is None:
            return
        for chain, state in zip(self.chains, saved, strict=True):
            chain.restore(state)
        self._take()

    @torch.no_grad()
    def _take(self) -> None:
        """Take the state of the chains, which checkpoints have filled, into the stack."""
        first = self.chains[0]
        for group, own in zip(self.sampler.param_groups, first.sampler.param_groups, strict=True):
            group.update({name: value for name, value in own.items() if name not in OWN})
        for stacked, params in self._parameters():
            states = [c.sampler.state.get(p, {}) for c, p in zip(self.chains, params, strict=True)]
            for name in states[0]:
                self.sampler.state[stacked][name] = torch.stack([state[name] for state in states])
        self.step, self.loss_count, self.noisy = first.step, first.loss_count, first.noisy
        self.loss_sums = torch.stack([chain.loss_sum for chain in self.chains])
        self.clipped = torch.stack([chain.clipped for chain in self.chains])
        if self.thermometer is not None:
            assert first.thermometer is not None
            self.thermometer.follow(first.thermometer)

    def _parameters(self) -> list[tuple[Tensor, list[Tensor]]]:
        """Each stacked parameter, and those of the chains."""
        samplers = [self.sampler, *(chain.sampler for chain in self.chains)]
        columns = [[p for g in s.param_groups for p in g["params"]] for s in samplers]
        return [(row[0], list(row[1:])) for row in zip(*columns, strict=True)]

    def _hand_out(self) -> None:
        """Give the chains what the stack has made."""
        for k, chain in enumerate(self.chains):
            groups = zip(chain.sampler.param_groups, self.sampler.param_groups, strict=True)
            for own, group in groups:
                own.update({name: value for name, value in group.items() if name not in OWN})
            chain.loss_sum, chain.loss_count = self.loss_sums[k].clone(), self.loss_count
            chain.noisy, chain.clipped = self.noisy, self.clipped[k].clone()
            if chain.thermometer is not None and self.thermometer is not None:
                chain.thermometer.follow(self.thermometer)
        for stacked, params in self._parameters():
            state = self.sampler.state.get(stacked, {})
            for k, (chain, param) in enumerate(zip(self.chains, params, strict=True)):
                chain.sampler.state.pop(param, None)
                if state:
                    chain.sampler.state[param] = {name: value[k] for name, value in state.items()}

    def advance(self) -> None:
        """One step of all chains, and their samples if these are due."""
        self.plan.apply(self.step)
        try:
            losses = self._move()
        except (NonFiniteError, IndexError, RuntimeError, ValueError) as error:
            for chain in self.chains:
                chain._explain(error)
            raise
        if self.thermometer is not None:
            self.thermometer.step()
        self.loss_sums += losses.double()
        self.loss_count += 1
        self.step += 1
        for chain in self.chains:
            chain.step = self.step
        if self.plan.is_due(self.step - 1):
            self._hand_out()
            for chain in self.chains:
                chain.keep()

    def _move(self) -> Tensor:
        context, count = self.context, self.context.config.compute.micro_batches or 1
        precision = context.config.compute.precision
        sources, steps = [chain.source for chain in self.chains], [self.step] * len(self.chains)
        self.sampler.zero_grad()
        total = torch.zeros(len(self.chains))
        for index in context.micro_batches:
            inputs, targets = stacked_batch(sources, steps, index, count)
            outputs = self.networks(cast(inputs, precision))
            losses = stacked_losses(context.problem.loss, outputs, cast(targets, precision))
            losses = losses / len(context.micro_batches)
            losses.sum().backward()  # type: ignore[no-untyped-call]
            total = total + losses.detach()
        if context.config.sampler.clip_norm is not None:
            self._clip(context.config.sampler.clip_norm)
        try:
            self.sampler.step()
        except NonFiniteError as error:
            raise NonFiniteError(f"{self._bad(total)}: {error}") from error
        return total

    def _bad(self, losses: Tensor) -> str:
        """The chains whose gradient is not finite."""
        grads = [p.grad for p in self.networks.parameters.values() if p.grad is not None]
        sums = sum((grad.flatten(1).sum(1) for grad in grads), losses)
        return "chain " + ", ".join(str(int(k)) for k in (~sums.isfinite()).nonzero())

    @torch.no_grad()
    def _clip(self, limit: float) -> None:
        """Clip the gradient of each chain, and count it where there is noise."""
        grads = [p.grad for p in self.networks.parameters.values() if p.grad is not None]
        norms = torch.stack([grad.flatten(1).norm(dim=1) for grad in grads]).norm(dim=0)
        factors = (limit / (norms + 1e-6)).clamp(max=1.0)  # as torch.nn.utils.clip_grad_norm_
        for grad in grads:
            grad.mul_(factors.view(-1, *[1] * (grad.dim() - 1)))
        group = self.sampler.param_groups[0]
        if group.get("noise") and group.get("temperature"):
            self.noisy += 1
            self.clipped += norms > limit

    def log(self) -> dict[str, Any]:
        """Write the journal's lines of all chains; returns one with their mean loss, to show."""
        self._hand_out()
        events = [chain.log() for chain in self.chains]
        self.loss_sums, self.loss_count = torch.zeros_like(self.loss_sums), 0
        return {**events[0], "loss": sum(event["loss"] for event in events) / len(events)}

    def save(self) -> None:
        """Write a checkpoint of each chain."""
        self._hand_out()
        for chain in self.chains:
            chain.compiled_from = self.sampler.compiled_from
            chain.save()

    def close(self) -> None:
        """Leave the last chain in the run's network, as chains one after the other do."""
        fill(self.context.model, self.chains[-1].context.model.state_dict())


def _chain(context: Context, number: int) -> Chain:
    """A chain with a network and a journal of its own."""
    model = copy.deepcopy(context.model).train()
    posterior = context.posterior.of_model(model)
    own = replace(context, model=model, module=model, posterior=posterior, part=number)
    return Chain(own, number)
