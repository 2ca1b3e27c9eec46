"""Learning rate, noise and collection of a chain, as functions of the step alone."""

from __future__ import annotations

import math

from entropy_mcmc import schedules
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.config import RunConfig
from entropy_mcmc.run.methods import METHODS, gradients_per_step
from entropy_mcmc.samplers.base import Sampler


def cycle_steps(config: RunConfig, steps_per_epoch: int) -> int:
    """Steps of one cycle: the gradient budget, shared equally by the first run's cycles."""
    cycles = config.schedule.cycles
    assert cycles is not None
    gradients = config.schedule.epochs * steps_per_epoch
    needed = gradients_per_step(config) * cycles
    length = gradients // needed
    if length < 1:
        each = f" in each of {cycles} cycles" if cycles > 1 else ""
        raise ConfigError(
            f"{_budget(config, gradients)}, fewer than the {needed} that {_turns(config, 1)}{each} "
            f"needs; use {_more(config, cycles)}"
        )
    _check_noisy(config, gradients, length)
    return length


def _check_noisy(config: RunConfig, gradients: int, length: int) -> None:
    """Refuse cycles in which no step is left for a sample."""
    part, cycles = config.schedule, config.schedule.cycles or 1
    burn_in = part.burn_in or 0.0
    if part.samples_per_cycle and math.ceil(burn_in * length) >= length and burn_in <= 1:
        raise ConfigError(
            f"{_budget(config, gradients)}, which is {_turns(config, length)} for each cycle, and "
            f"schedule.burn_in={burn_in:g} leaves none for a sample; use "
            f"{_more(config, cycles, 'a smaller burn_in')}"
        )


def _budget(config: RunConfig, gradients: int) -> str:
    count = "1 gradient" if gradients == 1 else f"{gradients} gradients"
    batches = f"mini-batches of data.batch_size={config.data.batch_size}"
    return f"schedule.epochs={config.schedule.epochs} gives {count} ({batches})"


def _turns(config: RunConfig, count: int) -> str:
    """Steps in words: rounds where there are replicas."""
    of = f" of replicas={config.replicas}" if config.replicas > 1 else ""
    turn = "round" if of else "step"
    return f"one {turn}{of}" if count == 1 else f"{count} {turn}s{of}"


def _more(config: RunConfig, cycles: int, *ways: str) -> str:
    """What makes cycles longer, and other ways out."""
    longer = ["more epochs", "smaller batches"]
    longer += ["fewer replicas"] * (config.replicas > 1) + ["fewer cycles"] * (cycles > 1)
    *first, last = *longer, *ways
    return f"{', '.join(first)} or {last}"


class Plan:
    """What a sampler does at each step; nothing here has to be saved.

    A step of replicas is a round of them; `Cyclical` counts the calls that it takes.
    """

    def __init__(self, config: RunConfig, sampler: Sampler, length: int, cycles: int) -> None:
        """`length` steps in each of `cycles` cycles, for a sampler as it was built."""
        schedule = config.schedule
        assert schedule.burn_in is not None
        assert schedule.samples_per_cycle is not None
        self.total = length * cycles
        self.sampler = sampler
        self._calls = int(getattr(sampler, "calls_per_round", 1))
        self._rates = [float(group["lr"]) for group in sampler.param_groups]
        self._cyclical = schedules.Cyclical(
            sampler,
            self.total * self._calls,
            cycles,
            schedule.burn_in,
            schedule.samples_per_cycle,
            schedule.coupled or "always",  # runs of earlier versions have no such entry
            eta_end=schedule.eta_end,
            warm_up=schedule.warm_up or 0.0,
        )
        self._factor = _factor(config, self._cyclical, self.total)
        self._cyclical.check_stability(lambda call: self._factor(call // self._calls))

    def _call(self, step: int) -> int:
        """The first call of the sampler in step number `step`."""
        return step * self._calls

    def apply(self, step: int) -> None:
        """Give the sampler the lr, the noise and the η of step number `step`, from 0."""
        factor, noisy = self._factor(step), self._cyclical.is_noisy(self._call(step))
        for group, rate in zip(self.sampler.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
            if "noise" in group:
                group["noise"] = noisy
            if "coupled" in group:
                group["coupled"] = noisy or self._cyclical.coupled == "always"
        for group, start in zip(self.sampler.param_groups, self._cyclical.base_etas, strict=False):
            group["eta"] = self._cyclical.eta(self._call(step), start)

    def is_due(self, step: int) -> bool:
        """Whether the state after step number `step` is a sample."""
        return self._cyclical.is_due(self._call(step + 1) - 1)

    def cycle(self, step: int) -> int:
        """Number of the step's cycle, from 0."""
        return self._cyclical.cycle(self._call(step))


def _factor(config: RunConfig, cyclical: schedules.Cyclical, total: int) -> schedules.Schedule:
    """The ratio lr / peak lr as a function of the step."""
    if config.schedule.kind == "cyclical" and not METHODS[config.method].averages:
        return lambda step: cyclical.lr_factor(step * cyclical.round_calls)
    return schedules.warmed(_cold_factor(config, cyclical, total), cyclical.warm_steps)


def _cold_factor(config: RunConfig, cyclical: schedules.Cyclical, total: int) -> schedules.Schedule:
    kind, final = config.schedule.kind, config.schedule.final
    if kind == "cyclical":
        return _swa(cyclical, total)
    if kind == "constant":
        return schedules.constant(1.0)
    if kind == "linear":
        return schedules.linear(1.0, final, total)
    if kind == "exponential":
        return schedules.exponential(1.0, final, total)
    return schedules.step(1.0, -(-total // 3), math.sqrt(final))


def _swa(cyclical: schedules.Cyclical, total: int) -> schedules.Schedule:
    """Down by a cosine to a fifth during the burn-in, then constant while weights are averaged."""
    end = max(1, math.ceil(cyclical.burn_in * total))
    decay = schedules.cyclical(0.8, end, 1)
    return lambda step: 0.2 + (decay(step) if step < end else 0.0)
