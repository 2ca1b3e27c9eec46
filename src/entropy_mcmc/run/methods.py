"""The methods by name: their sampler, gradients per step, and defaults that work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from entropy_mcmc import samplers
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.samplers.base import Sampler

# Of entropy-sgd and entropy-sgld; the outer step then replaces θ by the inner average.
INNER_STEPS = 5

_SAMPLING = {"cycles": 4, "burn_in": 0.8, "samples_per_cycle": 2}
_POINT = {"cycles": 1, "burn_in": 0.9, "samples_per_cycle": 1}


@dataclass(frozen=True)
class Method:
    """A sampler class and how a run uses it.

    Attributes:
        sampler: The class.
        numbers: Defaults of its options; only these may be set.
        schedule: Defaults of the schedule.
        gradients: Gradients per step, of which each has its own batch or all share one.
        fresh_batches: Whether every gradient of a step sees the next batch.
        draws: A sample is a draw around the weights, not the weights.
        averages: The one sample is the mean of the weights at the due steps.
        chains: Default number of chains.
    """

    sampler: type[Sampler]
    numbers: dict[str, Any]
    schedule: dict[str, Any] = field(default_factory=lambda: dict(_SAMPLING))
    gradients: int = 1
    fresh_batches: bool = False
    draws: bool = False
    averages: bool = False
    chains: int = 1

    @property
    def point(self) -> bool:
        """Whether the result is one network, so that more cycles would not add samples."""
        return self.schedule["samples_per_cycle"] == 1 or self.averages


_SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
_LANGEVIN = {"lr": 0.2, "temperature": 1e-2, "weight_decay": 5e-4}
_ENTROPY = {
    "lr": None,
    "eta": None,
    "inner_lr": 0.1,
    "inner_steps": INNER_STEPS,
    "weight_decay": 5e-4,
}
_BSAM = {"lr": 0.5, "rho": 0.01, "initial_scale": 1.0, "temperature": 1.0, "weight_decay": 5e-4}

METHODS: dict[str, Method] = {
    # SGHMC at T = 0 is SGD with momentum in velocity form.
    "sgd": Method(samplers.SGHMC, _SGD, _POINT),
    "ensemble": Method(samplers.SGHMC, _SGD, _POINT, chains=4),
    "swa": Method(
        samplers.SGHMC,
        _SGD,
        {"cycles": 1, "burn_in": 0.5, "samples_per_cycle": 20},
        averages=True,
    ),
    "sgld": Method(samplers.SGLD, _LANGEVIN),
    "sghmc": Method(samplers.SGHMC, {**_LANGEVIN, "lr": 0.02, "momentum": 0.9}),
    "emcmc": Method(
        samplers.EntropyMCMC,
        {
            **_LANGEVIN,
            "lr": 0.4,
            "eta": None,
            "momentum": 0.0,
            "guide_update": "euler",
            "guide_weight_decay": 0.0,
        },
    ),
    "entropy-sgd": Method(
        samplers.EntropySGD,
        {**_ENTROPY, "temperature": 1e-4},
        _POINT,
        gradients=INNER_STEPS,
        fresh_batches=True,
    ),
    "entropy-sgld": Method(
        samplers.EntropySGLD,
        {**_ENTROPY, "temperature": 1e-2},
        gradients=INNER_STEPS,
        fresh_batches=True,
    ),
    "sam": Method(samplers.SAM, {**_SGD, "rho": 0.05}, _POINT, gradients=2),
    "bsam": Method(
        samplers.BSAM,
        _BSAM,
        {"cycles": 1, "burn_in": 0.9, "samples_per_cycle": 8},
        gradients=2,
        draws=True,
    ),
}

_ALWAYS = ("clip_norm", "fused")


def fill(config: RunConfig, likelihood: str = "classification") -> RunConfig:
    """Put the method's defaults where the config has none; refuse options it does not have."""
    method = METHODS[config.method]
    defaults = _for_regression(method) if likelihood == "regression" else method.numbers
    given = {k: v for k, v in _present(vars(config.sampler)).items() if k not in _ALWAYS}
    for name, value in given.items():
        if name not in method.numbers:
            raise ConfigError(
                f"method {config.method!r} has no option sampler.{name}, got {value!r}; "
                f"it has {', '.join(method.numbers)}"
            )
    schedule = {**method.schedule, **_present(vars(config.schedule))}
    filled = with_parts(config, sampler={**defaults, **given, **_set(config)}, schedule=schedule)
    _check_clip(filled)
    return filled


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _set(config: RunConfig) -> dict[str, Any]:
    clip = config.sampler.clip_norm
    return {} if clip is None else {"clip_norm": clip}


def _for_regression(method: Method) -> dict[str, Any]:
    """Smaller steps, and clipped: the curvature grows as the learned noise shrinks.

    Without them a warm restart meets gradients that are hundreds of times larger than at first.
    """
    rates = {k: v / 4 for k, v in method.numbers.items() if k in ("lr", "inner_lr") and v}
    clip = {} if method.sampler.needs_closure else {"clip_norm": 1.0}
    return {**method.numbers, **rates, **clip}


def gradients_per_step(config: RunConfig) -> int:
    """How much of the budget one step costs."""
    if config.sampler.inner_steps is not None:
        return config.sampler.inner_steps
    return METHODS[config.method].gradients


def build(
    config: RunConfig, params: Iterable[tuple[str, Tensor]], num_data: int, seed: int
) -> Sampler:
    """The sampler of a resolved config, over named parameters."""
    method = METHODS[config.method]
    numbers: dict[str, Any] = {name: getattr(config.sampler, name) for name in method.numbers}
    numbers["fused"] = {"auto": "auto", "yes": True, "no": False}[config.sampler.fused]
    if method.sampler is not samplers.SAM:
        numbers |= {"num_data": num_data, "seed": seed}
    if "temperature" not in numbers and "num_data" in numbers:
        numbers["temperature"] = 0.0
    return method.sampler(list(params), **numbers)


def choose_eta(config: RunConfig, num_data: int, cycle_steps: int) -> RunConfig:
    """Choose η, and the outer rate of the nested methods, where they were left open.

    The guide averages over ηN/lr steps: here a twentieth of a cycle, at least 4 steps, so that it
    neither lags behind θ at the end of a cycle nor oscillates. The nested methods get an inner
    well wide enough for their chain, and the outer rate ηN, which moves θ onto the inner mean.
    """
    sampler = config.sampler
    if sampler.eta is None and config.method == "emcmc":
        assert sampler.lr is not None
        horizon = max(4.0, cycle_steps / 20)
        return with_parts(config, sampler={"eta": horizon * sampler.lr / num_data})
    if sampler.inner_steps is None:
        return config
    assert sampler.inner_lr is not None
    eta = sampler.eta or 10 * sampler.inner_steps * sampler.inner_lr / num_data
    return with_parts(config, sampler={"eta": eta, "lr": sampler.lr or eta * num_data})


def _check_clip(config: RunConfig) -> None:
    if config.sampler.clip_norm is not None and METHODS[config.method].sampler.needs_closure:
        raise ConfigError(
            f"sampler.clip_norm must be null for {config.method!r}, whose gradients are taken "
            f"inside the step, got {config.sampler.clip_norm!r}"
        )
