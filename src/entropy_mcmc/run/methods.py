"""The methods by name: every sampler, and how a run uses it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from entropy_mcmc import units
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.priors import prior_groups
from entropy_mcmc.recipes import Recipe
from entropy_mcmc.run.config import OF_THE_RUN, RunConfig, with_parts
from entropy_mcmc.samplers import SGHMC, Sampler, registry
from entropy_mcmc.samplers.base import Params
from entropy_mcmc.samplers.hyper_parameters import hyper_parameters

# Default schedule by what the sampler gives (`Sampler.result`).
SCHEDULES: dict[str, dict[str, Any]] = {
    "samples": {"cycles": 1, "burn_in": 0.5, "samples_per_cycle": 8},
    "point": {"cycles": 1, "burn_in": 0.9, "samples_per_cycle": 1},
    "draws": {"cycles": 1, "burn_in": 0.9, "samples_per_cycle": 8},
}


@dataclass(frozen=True)
class Method:
    """A sampler class and how a run uses it.

    Attributes:
        sampler: The class.
        defaults: Hyper-parameters where the config has none.
        options: Hyper-parameters that may be set.
        schedule: Defaults of the schedule.
        fixed: Hyper-parameters that are part of the method.
        averages: The one sample is the mean of the weights at the due steps.
        chains: Default number of chains.
    """

    sampler: type[Sampler]
    defaults: Mapping[str, Any]
    options: tuple[str, ...]
    schedule: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    averages: bool = False
    chains: int = 1

    @property
    def gradients(self) -> int:
        """Gradients per step with the defaults."""
        return self.sampler.gradients_per_step(self.defaults)

    @property
    def fresh_batches(self) -> bool:
        """Whether every gradient of a step sees the next batch."""
        return self.sampler.fresh_batches

    @property
    def has_guide(self) -> bool:
        """Whether there is a guide θ_a beside θ."""
        return self.sampler.has_guide

    @property
    def samples_posterior(self) -> bool:
        """Whether θ is drawn from exp(−U/T)."""
        samples = self.sampler.result == "samples" and self.sampler.samples_posterior
        return samples and not self.fixed

    @property
    def draws(self) -> bool:
        """Whether a sample is a draw around the weights, not the weights."""
        return self.sampler.result == "draws"

    @property
    def point(self) -> bool:
        """Whether the result is one network, so that more cycles would not add samples."""
        return self.schedule["samples_per_cycle"] == 1 or self.averages


def _of_sampler(sampler: type[Sampler]) -> Method:
    options = tuple(name for name in hyper_parameters(sampler) if name not in OF_THE_RUN)
    return Method(sampler, sampler.run_defaults, options, SCHEDULES[sampler.result])


def _of_sgd(schedule: Mapping[str, Any], **settings: Any) -> Method:
    """SGD with momentum, in velocity form: SGHMC at T = 0."""
    defaults = {"lr": 0.1, "momentum": 0.9, "prior_variance": 0.04}
    options = (*defaults, "weight_decay")
    return Method(SGHMC, defaults, options, schedule, {"temperature": 0.0}, **settings)


METHODS: dict[str, Method] = {
    **{name: _of_sampler(registry.load(name)) for name in registry.SAMPLERS},
    "sgd": _of_sgd(SCHEDULES["point"]),
    "ensemble": _of_sgd(SCHEDULES["point"], chains=4),
    "swa": _of_sgd({"cycles": 1, "burn_in": 0.5, "samples_per_cycle": 20}, averages=True),
}

CLIP = 20.0  # norm of a gradient, for regression; rarely met once lr has fallen
REGRESSION_BURN_IN = 0.75  # low-noise tables go on improving until lr is small
SLOW = 4.0  # times the lr with momentum 0.9, for rules without momentum
_ALWAYS = ("clip_norm", "fused", "prior_scale", "bias_variance", "norm_variance")


def fill(
    config: RunConfig,
    likelihood: str = "classification",
    recipe: Recipe | None = None,
    epoch_steps: int | None = None,
) -> RunConfig:
    """Put defaults where the config has no values; refuse options that the method does not have.

    Defaults are those of the recipe for the network and its data, then those of the method; short
    cycles, with an epoch of `epoch_steps` gradients, keep fewer samples by default.
    """
    method = METHODS[config.method]
    given = {k: v for k, v in _present(vars(config.sampler)).items() if k not in _ALWAYS}
    _check_options(config.method, method, given)
    defaults = {**method.defaults, **(recipe.settings(config.method) if recipe else {})}
    if _needs_no_momentum({**defaults, **given}) and "momentum" not in given:
        defaults |= {"momentum": 0.0, "lr": SLOW * defaults["lr"]}
    if likelihood == "regression":
        defaults |= _for_regression(method, defaults)
    if "weight_decay" in given:
        _check_prior(given)
        del defaults["prior_variance"]
    schedule = _schedule(config, likelihood, recipe)
    always = _present({name: getattr(config.sampler, name) for name in _ALWAYS})
    filled = with_parts(config, sampler={**defaults, **given, **always}, schedule=schedule)
    filled = replace(filled, roles=config.roles or (recipe.roles if recipe else "theta"))
    if config.schedule.samples_per_cycle is None and epoch_steps is not None:
        filled = _with_room(filled, epoch_steps)
    _check_clip(filled)
    _check_replicas(filled)
    return filled


def _schedule(config: RunConfig, likelihood: str, recipe: Recipe | None) -> dict[str, Any]:
    """The schedule of a run: what is given, else the recipe's, else the method's."""
    method = METHODS[config.method]
    schedule = dict(method.schedule)
    if recipe:
        schedule["warm_up"] = recipe.warm_up
    if method.sampler.result == "samples" and not method.fixed:
        schedule |= _of_recipe(config, method, recipe) if recipe else {}
        if likelihood == "regression":
            schedule["burn_in"] = max(schedule["burn_in"], REGRESSION_BURN_IN)
    chosen = {**schedule, **_present(vars(config.schedule))}
    # None is none: runs of earlier versions have it, and go on with warm_up=0.
    return {**chosen, "warm_up": chosen.get("warm_up") or None}


def _with_room(config: RunConfig, epoch_steps: int) -> RunConfig:
    """The config with no more samples than its cycles have noisy steps, but one."""
    part = config.schedule
    assert part.cycles is not None
    assert part.burn_in is not None
    assert part.samples_per_cycle is not None
    length = part.epochs * epoch_steps // (gradients_per_step(config) * part.cycles)
    room = length - math.ceil(part.burn_in * length)
    kept = max(1, min(part.samples_per_cycle, room))
    return with_parts(config, schedule={"samples_per_cycle": kept})


def _of_recipe(config: RunConfig, method: Method, recipe: Recipe) -> dict[str, Any]:
    """The recipe's schedule for a method that samples in cycles."""
    options = recipe.schedule_options()
    names = ["cycles", "burn_in", "samples_per_cycle"]
    # Scoping is a coupling during burn-in; replicas of several processes have no common network.
    always = config.schedule.eta_end is not None or config.compute.strategy == "replicas"
    if "coupled" in method.sampler.entries and not always:
        names.append("coupled")
    # A budget too small for one sample is refused when the cycles are known.
    options["samples_per_cycle"] = max(1, options["samples_per_cycle"])
    return {name: options[name] for name in names}


def _needs_no_momentum(settings: Mapping[str, Any]) -> bool:
    """Whether the rule has no form with momentum, so that the recipe's must go."""
    rule = settings.get("guide_update") in ("exact", "gibbs")
    return bool(settings.get("momentum")) and (rule or settings.get("integrator") == "lm")


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _for_regression(method: Method, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Smaller steps, and clipped: the curvature grows as the learned noise shrinks.

    Without them a warm restart meets gradients that are hundreds of times larger than at first.
    """
    rates = {k: v / 4 for k, v in defaults.items() if k in ("lr", "inner_lr") and v}
    return rates if method.sampler.needs_closure else {**rates, "clip_norm": CLIP}


def gradients_per_step(config: RunConfig) -> int:
    """How much of the budget one step costs."""
    method = METHODS[config.method]
    settings = {**method.defaults, **_present(vars(config.sampler))}
    return config.replicas * method.sampler.gradients_per_step(settings)


def parameter_groups(config: RunConfig, model: nn.Module, num_data: int) -> list[dict[str, Any]]:
    """The trainable parameters of a model by name, in groups of equal priors."""
    sampler = config.sampler
    variance = sampler.prior_variance
    if variance is None:
        variance = units.prior_variance(sampler.weight_decay or 0.0, num_data)
    groups = prior_groups(
        model,
        variance,
        scale=sampler.prior_scale,
        biases=sampler.bias_variance,
        norms=sampler.norm_variance,
    )
    for group in groups:
        own = group.pop("prior_variance")
        as_given = own == variance and sampler.weight_decay is not None  # to the last bit
        decay = sampler.weight_decay if as_given else units.decay_of_prior(own, num_data)
        group["weight_decay"] = decay
    return groups


def weight_decays(config: RunConfig, model: nn.Module, num_data: int) -> list[float]:
    """λ of each trainable parameter of a model, in its order."""
    groups = parameter_groups(config, model, num_data)
    decays = {name: group["weight_decay"] for group in groups for name, _ in group["params"]}
    return [decays[name] for name, param in model.named_parameters() if param.requires_grad]


def build(
    config: RunConfig,
    params: Params,
    num_data: int,
    seed: int,
    kind: type[Sampler] | None = None,
) -> Sampler:
    """The sampler of a resolved config, over named parameters or groups of them.

    `kind` is a class of the same arguments to build instead of the method's own.
    """
    method = METHODS[config.method]
    given = _present({name: getattr(config.sampler, name) for name in method.options})
    given |= {**method.fixed, "num_data": num_data}
    if config.replicas > 1:
        given["replicas"] = config.replicas
    given["fused"] = {"auto": "auto", "yes": True, "no": False}[config.sampler.fused]
    if "noise" in method.sampler.entries:
        given["seed"] = seed
    make: Any = kind or method.sampler
    sampler: Sampler = make(params, **given)
    return sampler


def choose_eta(config: RunConfig, num_data: int, cycle_steps: int) -> RunConfig:
    """Choose η, and the outer rate of the nested methods, where they were left open.

    The guide averages over ηN/lr steps, `units.auto_horizon`, as with `eta="auto"`. The nested
    methods get an inner well wide enough for their chain, and the outer rate ηN, which moves θ
    onto the inner mean.
    """
    sampler, options = config.sampler, METHODS[config.method].options
    if "inner_steps" in options:
        assert sampler.inner_steps is not None
        assert sampler.inner_lr is not None
        wide = units.eta_of_horizon(
            units.nested_horizon(sampler.inner_steps), sampler.inner_lr, num_data
        )
        eta = sampler.eta or wide
        lr = sampler.lr or units.lr_of_full_pull(eta, num_data)
        return with_parts(config, sampler={"eta": eta, "lr": lr})
    if sampler.eta is None and "eta" in options:
        assert sampler.lr is not None
        noise_from = config.schedule.burn_in if sampler.temperature else None
        horizon = units.auto_horizon(cycle_steps, noise_from, sampler.momentum or 0.0)
        eta = units.eta_of_horizon(horizon, sampler.lr, num_data)
        moves = {
            "lr": sampler.lr,
            "num_data": num_data,
            "momentum": sampler.momentum or 0.0,
            "replicas": config.replicas,
            "exchange_every": sampler.exchange_every or 1,
        }
        # y replicas move the guide y times as fast.
        return with_parts(config, sampler={"eta": units.wide_enough(config.replicas * eta, moves)})
    return config


def _check_options(name: str, method: Method, given: Mapping[str, Any]) -> None:
    for option, value in given.items():
        if option not in method.options:
            raise ConfigError(
                f"method {name!r} has no option sampler.{option}, got {value!r}; "
                f"it has {', '.join(method.options)}"
            )


def _check_prior(given: Mapping[str, Any]) -> None:
    if "prior_variance" in given:
        raise ConfigError(
            f"sampler.prior_variance and sampler.weight_decay state the same prior, got "
            f"{given['prior_variance']!r} and {given['weight_decay']!r}; give one of them"
        )


def _check_replicas(config: RunConfig) -> None:
    if config.replicas > 1 and "replicas" not in hyper_parameters(METHODS[config.method].sampler):
        raise ConfigError(
            f"replicas must be 1 for method {config.method!r}, whose networks share no guide, got "
            f"replicas={config.replicas}; use method emcmc, or --chains for independent networks"
        )
    if config.compute.strategy == "replicas" and config.schedule.coupled == "noisy":
        raise ConfigError(
            "schedule.coupled must be 'always' with compute.strategy='replicas', whose processes "
            "have no network in common, got 'noisy'; leave it out, or run one process"
        )


def _check_clip(config: RunConfig) -> None:
    if config.sampler.clip_norm is not None and METHODS[config.method].sampler.needs_closure:
        raise ConfigError(
            f"sampler.clip_norm must be null for {config.method!r}, whose gradients are taken "
            f"inside the step, got {config.sampler.clip_norm!r}"
        )
