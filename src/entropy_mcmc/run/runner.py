"""A whole run: resolve the config, take the folder, run the chains, refresh batch norm."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from entropy_mcmc.data import Dataset
from entropy_mcmc.errors import ConfigError, EntropyMCMCError, StateError, check_count
from entropy_mcmc.evaluation import Predictions
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.posterior.disk_size import DiskSize, expected_size
from entropy_mcmc.run import run_folder
from entropy_mcmc.run.all_chains import run_all_chains
from entropy_mcmc.run.chain_context import Context
from entropy_mcmc.run.checkpoint import check_stored, newest_step
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.devices import (
    cast,
    loss_explained,
    make_fabric,
    on_first,
    own_fabric,
    setup,
)
from entropy_mcmc.run.losses import check_labels, check_shapes
from entropy_mcmc.run.methods import METHODS, build, choose_eta, fill, parameter_groups
from entropy_mcmc.run.model_and_data import Problem, build_problem, fingerprint
from entropy_mcmc.run.one_process import OneProcess
from entropy_mcmc.run.progress import require_tensorboard, tell_size
from entropy_mcmc.run.recipe import explain_settings, recipe_of
from entropy_mcmc.run.run_folder import Record
from entropy_mcmc.run.stacking import resolve_stacked
from entropy_mcmc.run.step_schedule import Plan, cycle_steps
from entropy_mcmc.run.training_batches import Prefetched, refuse_complex
from entropy_mcmc.run.trust import NOTHING, Trust


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    record: Record
    problem: Problem
    posterior: Posterior
    is_main: bool = True
    trust: Trust = NOTHING
    local: bool = False  # whether its network is whole, in full precision, and on the CPU
    beside: Run | None = None  # the SGD network, where it was made with the run

    @cached_property
    def predictions(self) -> Predictions:
        """Predictions on the run's evaluation sets, each made once, when it is first asked for."""
        from entropy_mcmc.run.evaluate import predictions_of

        return predictions_of(self)

    @cached_property
    def baseline(self) -> Run | None:
        """The SGD network beside the run, loaded once; None where there is none."""
        from entropy_mcmc.run.loaded_run import load_baseline

        return self.beside or load_baseline(self)


def run(
    config: RunConfig,
    *,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    more_cycles: int | None = None,
    override: bool = False,
    like: Run | None = None,
) -> Run:
    """Run, or go on with, what the config describes.

    Args:
        config: The run; open values are filled in from the method and the data.
        model: A network or a function that builds one, instead of `config.model`.
        data: Data, instead of `config.data`.
        loss: A mean loss (output, target) → scalar, instead of `config.loss`.
        more_cycles: Extend a finished run by this many cycles per chain.
        override: Go on although versions, threads or processor differ from the first start.
        like: A run of named model and data; what is the same is taken from it, not made again.
    """
    if more_cycles is not None:
        check_count("more_cycles", more_cycles)
    if config.compute.threads is not None:
        torch.set_num_threads(config.compute.threads)
    folder = Path(config.folder)
    fabric = make_fabric(config)
    problem = _problem_of(like, config) or build_problem(config, model, data, loss)
    given, recipe = config, recipe_of(config, problem)
    config = fill(config, problem.likelihood, recipe, problem.source.steps)
    with loss_explained(fabric), _locked(fabric, folder):
        own = own_fabric(fabric, config)
        # Processes that share replicas act together; those with chains of their own do not.
        acting = fabric if config.compute.strategy == "replicas" else own
        network, module = setup(own, problem.model, config.compute)
        _probe(config, problem, own, module)
        old = run_folder.read(folder)
        names = (_name(model, config.model.name), _name(data, config.data.name))
        apart = fabric.world_size // acting.world_size
        config, length = _resolve_again(config, old, problem, own.world_size, apart)
        config = resolve_stacked(config, old, problem, network, fabric)
        record = _record(config, length, problem, names, fabric)
        if old is not None:
            run_folder.check_same(folder, old, record, override=override)
            record = replace(record, machine=old.machine, more_cycles=old.more_cycles)
        size = _rehearse(record, problem, network, more_cycles if old is None else None)
        if old is None:
            on_first(fabric, lambda: run_folder.write(folder, record))
        record = _extend(record, folder, fabric, more_cycles)
        if fabric.is_global_zero:
            if old is None and config.output.progress:
                told = explain_settings(given, config, recipe, length)
                print(told, file=sys.stderr, flush=True)
            tell_size(folder, size, shown=config.output.progress)
        context = _context(record, folder, (acting, own), problem, network, module)
        context = run_all_chains(context, fabric)
        local = isinstance(fabric, OneProcess)
        return Run(folder, record, problem, context.posterior, fabric.is_global_zero, local=local)


def _problem_of(like: Run | None, config: RunConfig) -> Problem | None:
    """The problem of another run with a new network, if its config describes the same one."""
    if like is None:
        return None
    names = ("model", "data", "seed", "likelihood", "loss")
    same = all(getattr(like.record.config, name) == getattr(config, name) for name in names)
    return like.problem.anew() if same else build_problem(config, data=shared_data(like, config))


def shared_data(like: Run | None, config: RunConfig) -> tuple[Any, Any] | None:
    """Training and test data of a run, if its config reads the same ones; else None."""
    if like is None or like.record.config.data != config.data:
        return None
    return like.problem.train, like.problem.test


@contextmanager
def _locked(fabric: Any, folder: Path) -> Iterator[None]:
    """The run folder is this run's inside the block; process 0 holds the lock for all."""
    lock = on_first(fabric, lambda: run_folder.lock(folder))
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def resolve(
    config: RunConfig, problem: Problem, world_size: int, chains: int = 1
) -> tuple[RunConfig, int]:
    """Fill in what depends on the data; returns the config and the steps of a cycle.

    `world_size` processes share each batch; there are at least `chains` chains by default.
    """
    length = cycle_steps(config, problem.source.steps)
    config = choose_eta(config, problem.num_data, length)
    micro = config.compute.micro_batches or world_size
    chains = config.chains or max(chains, METHODS[config.method].chains)
    return with_parts(replace(config, chains=chains), compute={"micro_batches": micro}), length


def _resolve_again(
    config: RunConfig, old: Record | None, problem: Problem, world_size: int, chains: int
) -> tuple[RunConfig, int]:
    """`resolve` for a run that may go on: what its first start fixed stays."""
    if old is not None:
        fixed = config.compute.micro_batches or old.config.compute.micro_batches
        config = with_parts(config, compute={"micro_batches": fixed})
        config = replace(config, chains=config.chains or old.config.chains)
    config, length = resolve(config, problem, world_size, chains=chains)
    _check_split(config, world_size)
    return config, length


def _record(
    config: RunConfig,
    length: int,
    problem: Problem,
    names: tuple[str | None, str | None],
    fabric: Any,
) -> Record:
    computer = run_folder.machine(fabric.device.type, config.sampler.fused)
    return Record(config, fingerprint(problem, *names), computer, length)


def _name(given: Any, configured: str) -> str | None:
    """The name of a model or data; None for an object of a Python program."""
    return None if given is not None else configured


def _rehearse(record: Record, problem: Problem, network: Any, more: int | None) -> DiskSize:
    """Make what a chain is made of, and throw it away: what does not fit is said before any file.

    Otherwise the corrected command would be refused, as one of another config.

    Returns:
        The size of the samples on disk.
    """
    config = record.config
    if more is not None:
        _check_cyclical(config)
        raise StateError(
            f"more_cycles extends a finished run, and this one has not begun, got {more}; leave "
            "it out at the first start"
        )
    roles = _roles(config)
    if config.data.workers:
        Prefetched(problem.source, config.data.workers, [0])
    if config.output.tensorboard:
        require_tensorboard()
    if (config.chains or 1) > 1:
        problem.fresh(1)
    groups = parameter_groups(config, network, problem.num_data)
    sampler = build(config, groups, problem.num_data, 0)
    Plan(config, sampler, record.cycle_steps, record.cycles)
    due = record.cycles * (config.schedule.samples_per_cycle or 1)
    kept = 1 if METHODS[config.method].averages else due
    return expected_size(network, sampler, steps=kept * (config.chains or 1), roles=roles)


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
    _check_cyclical(record.config)
    total = record.cycle_steps * record.cycles
    chains = [folder / "checkpoint" / f"chain-{c}" for c in range(record.config.chains or 1)]
    finished = all(newest_step(chain) == total for chain in chains)
    on_first(fabric, lambda: run_folder.extended(folder, record, more, finished=finished))
    return run_folder.read_existing(folder)


def _check_cyclical(config: RunConfig) -> None:
    """Refuse to extend a run that does not sample in cycles."""
    if METHODS[config.method].point or config.schedule.kind not in ("cyclical", "constant"):
        raise ConfigError(
            f"more_cycles needs a method that samples in cycles, got method="
            f"{config.method!r} with schedule.kind={config.schedule.kind!r}; "
            "start a new run with more epochs instead"
        )


def _context(
    record: Record,
    folder: Path,
    fabrics: tuple[Any, Any],
    problem: Problem,
    model: Any,
    module: Any,
) -> Context:
    return Context(
        config=record.config,
        problem=problem,
        fabric=fabrics[0],
        local=fabrics[1],
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
    if METHODS[config.method].has_guide:
        return config.roles or "both"
    if config.roles == "guide":
        raise ConfigError(f"method {config.method!r} has no guide, got roles='guide'; use 'theta'")
    return "theta"


def _probe(config: RunConfig, problem: Problem, fabric: Any, module: Any) -> None:
    """One batch through the network, so that what does not fit is said before any file is made."""
    inputs, targets = problem.source.micro(0, 0, 1)
    refuse_complex("inputs", inputs)
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
