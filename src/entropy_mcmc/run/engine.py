"""A whole run: resolve the config, take the folder, run the chains, refresh batch norm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from entropy_mcmc.data import Dataset
from entropy_mcmc.errors import ConfigError, EntropyMCMCError
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run import folder as folders
from entropy_mcmc.run.chain import Context
from entropy_mcmc.run.checkpoint import check_stored, explained, newest_step
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.devices import (
    cast,
    loss_explained,
    make_fabric,
    on_first,
    own_fabric,
    setup,
)
from entropy_mcmc.run.folder import Record
from entropy_mcmc.run.likelihood import check_labels, check_shapes
from entropy_mcmc.run.loop import run_chain
from entropy_mcmc.run.methods import METHODS, choose_eta, fill
from entropy_mcmc.run.parallel import SharedPosterior, run_own_chains
from entropy_mcmc.run.plan import cycle_steps
from entropy_mcmc.run.problem import Problem, build_problem, fingerprint
from entropy_mcmc.run.source import Source


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    record: Record
    problem: Problem
    posterior: Posterior
    is_main: bool = True


def run(
    config: RunConfig,
    *,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    more_cycles: int | None = None,
    override: bool = False,
) -> Run:
    """Run, or go on with, what the config describes.

    Args:
        config: The run; open values are filled in from the method and the data.
        model: A network or a function that builds one, instead of `config.model`.
        data: Data, instead of `config.data`.
        loss: A mean loss (output, target) → scalar, instead of `config.loss`.
        more_cycles: Extend a finished run by this many cycles per chain.
        override: Go on although versions, threads or processor differ from the first start.
    """
    if config.compute.threads is not None:
        torch.set_num_threads(config.compute.threads)
    folder = Path(config.folder)
    fabric = make_fabric(config)
    problem = build_problem(config, model, data, loss)
    config = fill(config, problem.likelihood)
    with loss_explained(fabric), _locked(fabric, folder):
        own = own_fabric(fabric, config)
        network, module = setup(own, problem.model, config.compute)
        _probe(config, problem, own, module)
        record = _settle(config, folder, fabric, own.world_size, problem, model, data, override)
        record = _extend(record, folder, fabric, more_cycles)
        context = _context(record, folder, own, problem, network, module)
        context = _run_chains(context, fabric)
        return Run(folder, record, problem, context.posterior, fabric.is_global_zero)


@contextmanager
def _locked(fabric: Any, folder: Path) -> Iterator[None]:
    """The run folder is this run's inside the block; process 0 holds the lock for all."""
    lock = on_first(fabric, lambda: folders.lock(folder))
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _run_chains(context: Context, fabric: Any) -> Context:
    """All chains, and the batch-norm statistics of their samples."""
    if context.fabric is not fabric:
        context.posterior.close()
        fabric.barrier()
        shared = SharedPosterior.open(context.folder, context.model, output=context.problem.output)
        context = replace(context, posterior=shared)
        run_own_chains(context, fabric, _Epoch(context))
        on_first(fabric, context.journal.merge)
        return context
    on_first(fabric, context.journal.merge)
    with context.posterior:
        for chain in range(context.config.chains or 1):
            run_chain(context, chain)
        with torch.random.fork_rng(), explained(context.folder):
            context.posterior.refresh_batchnorm(_Epoch(context))
    return context


def resolve(
    config: RunConfig, source: Source, world_size: int, chains: int = 1
) -> tuple[RunConfig, int]:
    """Fill in what depends on the data; returns the config and the steps of a cycle.

    `world_size` processes share each batch; there are at least `chains` chains by default.
    """
    length = cycle_steps(config, source.steps)
    config = choose_eta(config, source.num_data, length)
    micro = config.compute.micro_batches or world_size
    chains = config.chains or max(chains, METHODS[config.method].chains)
    return with_parts(replace(config, chains=chains), compute={"micro_batches": micro}), length


def _settle(
    config: RunConfig,
    folder: Path,
    fabric: Any,
    world_size: int,
    problem: Problem,
    model: Any,
    data: Any,
    override: bool,
) -> Record:
    """The record of this run: the stored one if it is the same, else a new one."""
    old = folders.read(folder)
    if old is not None:
        # Fixed by the first start, so that a run can go on with another number of processes.
        fixed = config.compute.micro_batches or old.config.compute.micro_batches
        config = with_parts(config, compute={"micro_batches": fixed})
        config = replace(config, chains=config.chains or old.config.chains)
    config, length = resolve(
        config, problem.source, world_size, chains=fabric.world_size // world_size
    )
    _check_split(config, world_size)
    names = (
        None if model is not None else config.model.name,
        None if data is not None else config.data.name,
    )
    new = Record(
        config,
        fingerprint(problem, *names),
        folders.machine(fabric.device.type, config.sampler.fused),
        length,
    )
    if old is not None:
        folders.check_same(folder, old, new, override=override)
        return replace(new, machine=old.machine, more_cycles=old.more_cycles)
    on_first(fabric, lambda: folders.write(folder, new))
    return new


def _check_split(config: RunConfig, world_size: int) -> None:
    micro = config.compute.micro_batches or 1
    if micro % world_size:
        raise ConfigError(
            f"compute.micro_batches must be a multiple of the {world_size} processes, got {micro}"
        )
    if config.data.batch_size % micro:
        raise ConfigError(
            f"data.batch_size must be a multiple of compute.micro_batches={micro}, so that they "
            f"have equal sizes, got {config.data.batch_size}"
        )


def _extend(record: Record, folder: Path, fabric: Any, more: int | None) -> Record:
    if more is None:
        return record
    if METHODS[record.config.method].point or record.config.schedule.kind not in (
        "cyclical",
        "constant",
    ):
        raise ConfigError(
            f"more_cycles needs a method that samples in cycles, got method="
            f"{record.config.method!r} with schedule.kind={record.config.schedule.kind!r}; "
            "start a new run with more epochs instead"
        )
    total = record.cycle_steps * record.cycles
    chains = [folder / "checkpoint" / f"chain-{c}" for c in range(record.config.chains or 1)]
    finished = all(newest_step(chain) == total for chain in chains)
    on_first(fabric, lambda: folders.extended(folder, record, more, finished=finished))
    return folders.read_existing(folder)


def _context(
    record: Record, folder: Path, fabric: Any, problem: Problem, model: Any, module: Any
) -> Context:
    return Context(
        config=record.config,
        problem=problem,
        fabric=fabric,
        model=model,
        module=module,
        folder=folder,
        posterior=open_posterior(folder, record.config, problem, model),
        cycle_steps=record.cycle_steps,
        cycles=record.cycles,
    )


def open_posterior(folder: Path, config: RunConfig, problem: Problem, model: Any) -> Posterior:
    """The run's posterior, to collect into."""
    for number in range(config.chains or 1):
        if newest_step(folder / "checkpoint" / f"chain-{number}"):
            check_stored(folder, number, None)
    if (folder / "samples").exists():
        return Posterior.open(folder, model, append=True, output=problem.output)
    return Posterior.create(folder, model, problem.likelihood, problem.output, roles=_roles(config))


def _roles(config: RunConfig) -> str:
    if config.method == "emcmc":
        return config.roles
    if config.roles == "guide":
        raise ConfigError(f"method {config.method!r} has no guide, got roles='guide'; use 'theta'")
    return "theta"


def _probe(config: RunConfig, problem: Problem, fabric: Any, module: Any) -> None:
    """One batch through the network, so that what does not fit is said before any file is made."""
    inputs, targets = problem.source.micro(0, 0, 1)
    inputs = fabric.to_device(cast(inputs, config.compute.precision))
    module.eval()
    try:
        with torch.no_grad():
            output = module(inputs)
    except EntropyMCMCError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        shape = tuple(getattr(inputs, "shape", ()))
        raise ConfigError(
            f"the model cannot take a batch of shape {shape} ({error}); "
            "choose a model that fits the data"
        ) from error
    if problem.own_loss:
        return
    check_shapes(problem.likelihood, output, fabric.to_device(targets))
    if problem.likelihood == "classification" and isinstance(problem.train, Dataset):
        check_labels(problem.train.targets, output.shape[1])


class _Epoch:
    """Inputs of epoch 0 for this process, readable again and again."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __iter__(self) -> Iterator[Any]:
        context, source = self._context, self._context.problem.source
        count = context.config.compute.micro_batches or 1
        for step in range(source.steps):
            for index in context.micro_batches:
                inputs, _ = source.micro(step, index, count)
                yield cast(inputs, context.config.compute.precision)
