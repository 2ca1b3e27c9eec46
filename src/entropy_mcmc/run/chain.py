"""One chain: gradients from micro-batches, steps, samples, checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.diagnostics import Thermometer
from entropy_mcmc.errors import DamagedFileError, NonFiniteError
from entropy_mcmc.posterior.manifest import stored_step
from entropy_mcmc.run import checkpoint as checkpoints
from entropy_mcmc.run.chain_context import Context
from entropy_mcmc.run.chain_event import train_event
from entropy_mcmc.run.chain_state import fill, pack, refuse_non_finite, unpack
from entropy_mcmc.run.devices import cast, seed_generators
from entropy_mcmc.run.losses import check_finite_rows, check_shapes
from entropy_mcmc.run.methods import METHODS, build, gradients_per_step, parameter_groups
from entropy_mcmc.run.replica_stack import ReplicaStack
from entropy_mcmc.run.seeds import derive
from entropy_mcmc.run.step_schedule import Plan
from entropy_mcmc.run.training_batches import Prefetched
from entropy_mcmc.units import rounds_between


class Chain:
    """The state of one chain, and what a step does to it."""

    def __init__(self, context: Context, number: int) -> None:
        self.context, self.number = context, number
        config, model = context.config, context.model
        self.method = METHODS[config.method]
        if number:
            fill(model, context.problem.fresh(number))
        self.source = context.problem.make_source(number)
        if config.data.workers:
            self.source = Prefetched(self.source, config.data.workers, context.micro_batches)
        seed = derive(config.seed, "noise", number)
        num_data = context.problem.num_data
        groups = parameter_groups(config, model, num_data)
        self.sampler = build(config, groups, num_data, seed)
        if context.spread:
            self.sampler.spread_replicas()  # type: ignore[attr-defined]
        at_once = config.compute.stacked == "yes" and len(context.replicas) > 1
        self.replica_stack = ReplicaStack(model, config.replicas) if at_once else None
        self.thermometer = self._make_thermometer()
        self.plan = Plan(config, self.sampler, context.cycle_steps, context.cycles)
        self.step = 0
        self.loss_sum = torch.zeros((), dtype=torch.float64)
        self.loss_count = 0
        self.noisy = 0  # gradients of steps with noise, of which were clipped:
        self.clipped = torch.zeros((), dtype=torch.int64)
        self.counted = (0, 0)  # both, as the checkpoint had them
        self.average: dict[str, Tensor] = {}
        self.averaged = 0
        self.compiled_from = self.sampler.compiled_from

    def _make_thermometer(self) -> Thermometer | None:
        """The thermometer of a sampler with a guide that moves in every round."""
        group = self.sampler.param_groups[0]
        if not self.sampler.has_guide or rounds_between(group) > 1:
            return None
        # An epoch's mini-batches cancel over its rounds, if these are whole.
        rounds, rest = divmod(self.source.steps, self.context.config.replicas)
        return Thermometer(self.sampler, None if rest else rounds)

    @property
    def finished(self) -> bool:
        """Whether all steps are made."""
        return self.step >= self.plan.total

    def advance(self) -> None:
        """One step of the sampler, and its sample if one is due."""
        self.plan.apply(self.step)
        try:
            loss = self._move()
        except (NonFiniteError, IndexError, RuntimeError, ValueError) as error:
            self._explain(error)
            raise
        if self.thermometer is not None:
            self.thermometer.step()
        self.loss_sum = self.loss_sum.to(loss.device) + loss.detach().double()
        self.loss_count += 1
        self.step += 1
        if self.plan.is_due(self.step - 1):
            self.keep()

    def keep(self) -> None:
        """Store the state as a sample, and read the thermometer."""
        with checkpoints.explained(self.context.folder):
            self._collect()
        self._read()

    def _move(self) -> Tensor:
        calls = iter(range(2**31))
        if self.method.sampler.needs_closure:
            loss: Tensor = self.sampler.step(lambda: self._gradient(next(calls)))
            return loss
        stack = self.replica_stack if self.sampler.param_groups[0].get("coupled") else None
        gradient = stack.gradients(self) if stack else self._gradient
        losses = [self._turn(number, gradient) for number in self.context.replicas]
        return losses[0] if len(losses) == 1 else torch.stack(losses).mean()

    def _turn(self, replica: int, gradient: Callable[[int], Tensor]) -> Tensor:
        """The step of one replica, with its own mini-batch."""
        loss = gradient(replica)
        limit = self.context.config.sampler.clip_norm
        if limit is not None:
            self._clip(limit)
        self.sampler.step()
        return loss

    def _clip(self, limit: float) -> None:
        """Clip, and count it where there is noise: such steps do not sample the target."""
        groups = self.sampler.param_groups
        norm = torch.nn.utils.clip_grad_norm_([p for g in groups for p in g["params"]], limit)
        if groups[0].get("noise") and groups[0].get("temperature"):
            self.noisy += 1
            self.clipped = self.clipped.to(norm.device) + (norm > limit)

    def _gradient(self, call: int) -> Tensor:
        """Leave the gradient of the whole batch in `.grad`; returns the mean loss here."""
        context = self.context
        self.sampler.zero_grad()
        mine = context.micro_batches
        total = torch.zeros((), device=context.local.device)
        for index in mine:
            inputs, targets = self._batch(self.data_step(call), index)
            hold = context.local.no_backward_sync(context.module, enabled=index != mine[-1])
            with hold if len(mine) > 1 else nullcontext():
                loss = context.problem.loss(context.module(inputs), targets) / len(mine)
                context.local.backward(loss)
            total = total + loss.detach()
        return total

    def data_step(self, call: int) -> int:
        """The batch of a gradient: that of its step, or one for each call or replica."""
        if not self.method.fresh_batches and self.context.config.replicas == 1:
            return self.step
        return self.step * gradients_per_step(self.context.config) + call

    def _batch(self, data_step: int, index: int) -> tuple[Any, Any]:
        """A micro-batch on the device, with the generators set for it."""
        config, fabric = self.context.config, self.context.local
        inputs, targets = self.source.micro(data_step, index, config.compute.micro_batches or 1)
        # Dropout and the like draw from torch's generators: make them a function of the step.
        seed_generators(derive(config.seed, "forward", self.number, data_step, index), fabric)
        precision = config.compute.precision
        inputs, targets = cast(inputs, precision), cast(targets, precision)
        return fabric.to_device(inputs), fabric.to_device(targets)

    def _explain(self, error: Exception) -> None:
        """Raise a clearer error if the batch of this step is the reason."""
        problem = self.context.problem
        for index in self.context.micro_batches:
            inputs, targets = self._batch(self.data_step(0), index)
            check_finite_rows(f"inputs of step {self.step}", inputs)
            check_finite_rows(f"targets of step {self.step}", targets)
            if not problem.own_loss and self.context.fabric.world_size == 1:
                with torch.no_grad():
                    check_shapes(problem.likelihood, self.context.module(inputs), targets)

    def _collect(self) -> None:
        context, key = self.context, stored_step(self.number, self.step)
        cycle = self.plan.cycle(self.step - 1)
        if self.method.averages:
            self._average(key, cycle)
        elif self.method.draws:
            with self.sampler.sampled():  # type: ignore[attr-defined]
                context.posterior.collect(self.sampler, step=key, cycle=cycle, chain=self.number)
        else:
            context.posterior.collect(self.sampler, step=key, cycle=cycle, chain=self.number)

    def _read(self) -> None:
        """Read the thermometer, once the guide has had the time to reach its distribution."""
        if self.thermometer is None or not self.thermometer.ready:
            return
        reading = self.thermometer.read()
        if self.context.fabric.is_global_zero:
            event = {"kind": "thermometer", "chain": self.number, **asdict(reading)}
            self.context.journal.append(event)

    @torch.no_grad()
    def _average(self, key: int, cycle: int) -> None:
        """Add θ to the mean; at the end store the mean as the one sample."""
        model = self.context.model
        self.averaged += 1
        for name, param in model.named_parameters():
            mean = self.average.setdefault(name, torch.zeros_like(param))
            mean += (param - mean) / self.averaged
        if self.finished:
            kept = {name: param.detach().clone() for name, param in model.named_parameters()}
            fill(model, self.average)
            self.context.posterior.collect(self.sampler, step=key, cycle=cycle, chain=self.number)
            fill(model, kept)

    @property
    def label(self) -> str:
        """What messages call the chain."""
        return f"chain {self.number}"

    def log(self) -> dict[str, Any]:
        """Write the journal's line for the steps since the last one, and return it."""
        event = self.event()
        if self.context.fabric.is_global_zero:
            self.context.journal.append(event)
        return event

    def event(self) -> dict[str, Any]:
        """The journal's line for the steps since the last one; the loss is their mean."""
        event = train_event(self)
        self.loss_sum, self.loss_count = torch.zeros_like(self.loss_sum), 0
        return event

    def clip_counts(self) -> tuple[int, int]:
        """Gradients of noisy steps, and those that were clipped, of all replicas."""
        if self.context.config.sampler.clip_norm is None or not self.context.spread:
            return self.noisy, int(self.clipped)
        here = torch.tensor([self.noisy, int(self.clipped)]) - torch.tensor(self.counted)
        fabric = self.context.fabric
        total: Any = fabric.all_reduce(here.to(fabric.device), reduce_op="sum")
        return self.counted[0] + int(total[0]), self.counted[1] + int(total[1])

    def save(self) -> None:
        """Write a checkpoint from rank 0; what was logged before it is on the disk first."""
        tensors, groups = pack(self.context.model, self.sampler, self.average)
        refuse_non_finite(tensors, self.step)
        noisy, clipped = self.clip_counts()
        numbers = {
            "groups": groups,
            **self._loss_sums(),
            "loss_count": self.loss_count,
            "averaged": self.averaged,
            "compiled_from": self.compiled_from,
            "noisy": noisy,
            "clipped": clipped,
        }
        if self.thermometer is not None:
            numbers["thermometer"] = self.thermometer.state_dict()
        if self.context.fabric.is_global_zero:
            self.context.journal.sync()
            known = checkpoints.stored(self.context.folder, self.number)
            state = checkpoints.Checkpoint(self.step, tensors, numbers, known)
            checkpoints.save(self.context.checkpoints(self.number), state)
        self.context.fabric.barrier()

    def _loss_sums(self) -> dict[str, Any]:
        """The sum of the losses since the last line, and that of each process where several are."""
        if self.context.fabric.world_size == 1:
            return {"loss_sum": float(self.loss_sum)}
        sums = self.context.fabric.all_gather(self.loss_sum).flatten().tolist()
        return {"loss_sum": sum(sums) / len(sums), "loss_sums": sums}

    @property
    def saved_step(self) -> int:
        """The step of the newest checkpoint, 0 if there is none."""
        return checkpoints.newest_step(self.context.checkpoints(self.number))

    def restore(self, saved: checkpoints.Checkpoint | None = None) -> None:
        """Go to a checkpoint: the newest, if none is given and there is one."""
        folder = self.context.checkpoints(self.number)
        saved = saved or checkpoints.load(folder)
        if saved is None:
            return
        checkpoints.check_stored(self.context.folder, self.number, saved.stored)
        if not saved.verified and self.context.fabric.is_global_zero:
            print(
                f"{folder}: the checkpoint of step {saved.step} has no checksum, as older versions "
                "wrote it; it is used unverified",
                file=sys.stderr,
            )
        try:
            self._load(saved)
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
            raise DamagedFileError(
                f"the checkpoint of step {saved.step} in {folder} does not fit this run "
                f"({error!r:.200}); restore it from a copy, or start in a new run folder"
            ) from error

    def _load(self, saved: checkpoints.Checkpoint) -> None:
        numbers = saved.numbers
        self.average = unpack(saved.tensors, numbers["groups"], self.context.model, self.sampler)
        self.step, self.averaged = saved.step, numbers["averaged"]
        sums, fabric = numbers.get("loss_sums", ()), self.context.fabric
        # The next line is that of an uninterrupted run only if each process goes on with its own.
        own = sums[fabric.global_rank] if len(sums) == fabric.world_size else numbers["loss_sum"]
        self.loss_sum = torch.tensor(own, dtype=torch.float64)
        self.loss_count = numbers["loss_count"]
        # Older checkpoints do not count them.
        self.counted = numbers.get("noisy", 0), numbers.get("clipped", 0)
        self.noisy = self.counted[0]
        self.clipped = torch.tensor(self.counted[1], dtype=torch.int64)
        if self.thermometer is not None:
            self.thermometer.load_state_dict(numbers["thermometer"])
