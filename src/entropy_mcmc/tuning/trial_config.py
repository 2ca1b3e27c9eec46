"""The problem of a search: what each trial is given, and its config at each length."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from entropy_mcmc import units
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.config import OutputConfig, RunConfig, with_parts
from entropy_mcmc.run.methods import METHODS, fill, gradients_per_step
from entropy_mcmc.run.model_and_data import Problem, build_problem
from entropy_mcmc.run.recipe import recipe_of
from entropy_mcmc.run.runner import resolve
from entropy_mcmc.run.training_batches import source_of
from entropy_mcmc.tuning.options import TuneConfig
from entropy_mcmc.tuning.rungs import Rung, rungs
from entropy_mcmc.tuning.search import RECIPE, Job
from entropy_mcmc.tuning.space import Axis, Point, axis
from entropy_mcmc.tuning.split import split

LEAST_HORIZON = 4.0  # steps; below 2 the pair (θ, θ_a) oscillates
LEAST_STEPS = 20  # of a cycle in the shortest trials


@dataclass(frozen=True)
class Given:
    """What every trial is given: objects of the user's, and rows without any test row.

    Attributes:
        model: A network, a function that builds one, or None for that of the config.
        loss: A loss, or None for that of the config.
        fit: Training rows.
        validation: Rows to judge by.
    """

    model: Any
    loss: Any
    fit: Any
    validation: Any

    def fresh_model(self) -> Any:
        """The model for one run, which moves the weights of a network that is given."""
        return copy.deepcopy(self.model) if isinstance(self.model, nn.Module) else self.model

    @property
    def data(self) -> dict[str, Any]:
        """Data of a run that is judged on the validation rows."""
        return {"train": self.fit, "test": self.validation}


@dataclass(frozen=True)
class Tuning:
    """A search that is ready to run.

    Attributes:
        config: The user's; what is open in it follows the recipe.
        base: The same for trials, with their own N if one is stated.
        given: What trials are given.
        whole: The problem with all training rows, for the config that is chosen in the end.
        part: The problem of the trials.
        space: What is searched.
        rungs: How many trials run for how long.
    """

    config: RunConfig
    base: RunConfig
    given: Given
    whole: Problem
    part: Problem
    space: tuple[Axis, ...]
    rungs: tuple[Rung, ...]

    def config_of(self, job: Job) -> RunConfig:
        """The config of a trial's run, complete but for the run folder."""
        config = with_parts(self.base, schedule={"epochs": job.epochs})
        point = {} if job.trial == RECIPE else job.point
        return for_trial(fitting(placed(config, point, self.part), self.part))

    def complete_config(self, trial: int, point: Point) -> RunConfig:
        """The config of a trial for all training rows, with every value that the recipe chose."""
        config = placed(self.config, {} if trial == RECIPE else point, self.whole)
        complete, _ = resolved(config, self.whole)
        return replace(complete, output=OutputConfig())


def prepare(
    config: RunConfig, options: TuneConfig, model: Any = None, data: Any = None, loss: Any = None
) -> Tuning:
    """Read the data, hold the validation rows out, and lay out the search."""
    _refuse_several_processes(config)
    whole = build_problem(config, model, data, loss)
    fit, validation = _held_out(whole, config, options)
    given = Given(model, loss, fit, validation)
    base = _for_part(config, whole, fit)
    part = build_problem(base, model, given.data, loss)
    start, length = resolved(base, part)
    values = start_values(start, part.num_data, length)
    names = options.search or default_search(config)
    _check_search(names, values, config)
    for name in options.ranges:
        if name not in names:
            raise ConfigError(f"ranges.{name} is given, but search has only {', '.join(names)}")
    space = tuple(axis(name, values[name], options.ranges.get(name)) for name in names)
    epochs = config.schedule.epochs
    steps = rungs(options.trials, epochs, _least_epochs(start, part.source.steps))
    return Tuning(config, base, given, whole, part, space, steps)


def resolved(config: RunConfig, problem: Problem) -> tuple[RunConfig, int]:
    """The config with all values that the recipe chooses, and the steps of a cycle."""
    recipe = recipe_of(config, problem)
    return resolve(fill(config, problem.likelihood, recipe, problem.source.steps), problem, 1)


def start_values(config: RunConfig, num_data: int, length: int) -> dict[str, float]:
    """Searchable values of a resolved config, with N examples and `length` steps in a cycle."""
    sampler = config.sampler
    names = ("lr", "inner_lr", "prior_variance", "temperature", "momentum", "rho")
    values = {name: getattr(sampler, name, None) for name in names}
    if values["prior_variance"] is None and sampler.weight_decay:
        values["prior_variance"] = units.prior_variance(sampler.weight_decay, num_data)
    if sampler.eta is not None and sampler.lr is not None and sampler.inner_steps is None:
        values["horizon"] = units.horizon(sampler.lr, num_data, sampler.eta) / length
    return {name: float(value) for name, value in values.items() if value is not None}


def default_search(config: RunConfig) -> list[str]:
    """What is searched for a method: what matters, and the config leaves open."""
    method, sampler = METHODS[config.method], config.sampler
    nested = "inner_steps" in method.options
    names = ["inner_lr" if nested else "lr", "prior_variance"]
    if not method.point:
        names.append("temperature")
    if not nested:
        names += ["horizon", "rho"]
    option = {"horizon": "eta"}
    known = [name for name in names if option.get(name, name) in method.options]
    if sampler.weight_decay is not None:
        known.remove("prior_variance")
    unset = [name for name in known if getattr(sampler, option.get(name, name)) is None]
    if not unset:
        raise ConfigError(
            f"nothing is left to choose: {', '.join(known)} are given; leave some of them out"
        )
    return unset


def placed(config: RunConfig, point: Point, problem: Problem) -> RunConfig:
    """The config with the values of a point."""
    values: dict[str, Any] = {name: v for name, v in point.items() if name != "horizon"}
    if "prior_variance" in values:
        values["weight_decay"] = None
    config = with_parts(config, sampler=values)
    if "horizon" not in point:
        return config
    full, length = resolved(with_parts(config, sampler={"eta": None}), problem)
    assert full.sampler.lr is not None
    steps = max(LEAST_HORIZON, point["horizon"] * length)
    eta = units.eta_of_horizon(steps, full.sampler.lr, problem.num_data)
    return with_parts(config, sampler={"eta": eta})


def fitting(config: RunConfig, problem: Problem) -> RunConfig:
    """The config with no more samples in a cycle than its noisy part has steps."""
    full, length = resolved(config, problem)
    schedule = full.schedule
    assert schedule.burn_in is not None
    assert schedule.samples_per_cycle is not None
    noisy = max(1, length - math.ceil(schedule.burn_in * length))
    if schedule.samples_per_cycle <= noisy:
        return config
    return with_parts(config, schedule={"samples_per_cycle": noisy})


def for_trial(config: RunConfig) -> RunConfig:
    """The config of a run that shows nothing; one thread, so that parallel and serial agree."""
    silent = {"progress": False, "report": False, "baseline": "none", "tensorboard": False}
    return with_parts(replace(config, run_dir=None), output=silent, compute={"threads": 1})


def _held_out(whole: Problem, config: RunConfig, options: TuneConfig) -> tuple[Any, Any]:
    if whole.validation is not None:
        return whole.train, whole.validation
    return split(whole.train, options.validation, config.seed, config.data.batch_size)


def _for_part(config: RunConfig, whole: Problem, fit: Any) -> RunConfig:
    """The user's config for a part of the rows: their likelihood, and their share of a stated N."""
    config = replace(config, likelihood=whole.likelihood)
    stated = config.data.num_data
    if stated is None or fit is whole.train:
        return config
    rows = source_of(fit, config.data.batch_size, config.seed, augmented=False).num_data
    share = max(1, round(stated * rows / whole.source.num_data))
    return with_parts(config, data={"num_data": share})


def _least_epochs(config: RunConfig, steps: int) -> int:
    """Epochs of the shortest trials, so that their cycles are cycles."""
    cycles = config.schedule.cycles or 1
    return math.ceil(LEAST_STEPS * cycles * gradients_per_step(config) / steps)


def _check_search(names: list[str], values: Mapping[str, float], config: RunConfig) -> None:
    for name in names:
        if name not in values:
            raise ConfigError(
                f"method {config.method!r} has no {name} to search; it has {', '.join(values)}"
            )


def _refuse_several_processes(config: RunConfig) -> None:
    compute = config.compute
    if compute.devices * compute.nodes > 1:
        raise ConfigError(
            f"compute.devices must be 1 in a search, whose trials are processes of their own, got "
            f"{compute.devices} devices on {compute.nodes} machines; use --workers"
        )
