"""Schedules: pure functions step → value, and `Cyclical`, which drives a sampler.

The five functions are those of the paper's table "Formulas or descriptions of different stepsize
schedules"; steps count from 0. They also fit torch's own `LambdaLR`:
`LambdaLR(sampler, lambda t: schedule(t) / lr)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer

from entropy_mcmc.errors import (
    ConfigError,
    StateError,
    check_choice,
    check_count,
    check_not_negative,
    check_number,
    check_positive,
)

Schedule = Callable[[int], float]
COUPLED = ("always", "noisy")


def constant(value: float) -> Schedule:
    """α(t) = α₀.

    >>> constant(0.1)(1000)
    0.1
    """
    check_not_negative("value", value)
    return lambda step: value


def linear(start: float, end: float, total_steps: int) -> Schedule:
    """α(t) = (S − t)/S · (α₀ − α₁) + α₁.

    >>> linear(1.0, 0.2, 4)(1)
    0.8
    """
    _check_ends(start, end)
    check_count("total_steps", total_steps)
    return lambda step: (total_steps - step) / total_steps * (start - end) + end


def exponential(start: float, end: float, total_steps: int) -> Schedule:
    """α(t) = α₀ · (α₁/α₀)^(t/S).

    >>> round(exponential(1.0, 0.01, 2)(1), 12)
    0.1
    """
    check_positive("start", start)
    check_positive("end", end, remedy="an exponential never reaches 0; use linear")
    check_count("total_steps", total_steps)
    return lambda step: start * (end / start) ** (step / total_steps)


def step(start: float, step_size: int, factor: float = 0.1) -> Schedule:
    """The same value within one "step" of `step_size` steps, multiplied by `factor` after it.

    >>> [step(1.0, step_size=2, factor=0.5)(t) for t in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    check_not_negative("start", start)
    check_count("step_size", step_size)
    check_positive("factor", factor)
    return lambda step: start * factor ** (step // step_size)


def cyclical(start: float, total_steps: int, cycles: int) -> Schedule:
    """Eq. 1 of cyclical SG-MCMC: cosine from α₀ towards 0, restarted every ⌈S/K⌉ steps.

    >>> [round(cyclical(1.0, total_steps=8, cycles=2)(t), 3) for t in (0, 2, 3, 4)]
    [1.0, 0.5, 0.146, 1.0]
    """
    check_not_negative("start", start)
    length = math.ceil(check_count("total_steps", total_steps) / check_count("cycles", cycles))
    return lambda step: _cosine(start, step % length, length)


def warmed(schedule: Schedule, steps: float) -> Schedule:
    """The schedule, whose values rise to it in a straight line over the first `steps` steps.

    >>> [round(warmed(constant(1.0), steps=4)(t), 2) for t in range(5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    check_not_negative("steps", steps)
    return lambda step: schedule(step) * rise(step, steps)


def rise(step: int, steps: float) -> float:
    """The part of its value that a warm-up of `steps` steps leaves at step number `step`."""
    return min(1.0, (step + 1) / steps) if steps else 1.0


class Cyclical:
    """Drive a sampler through cycles: its lr, its noise, and when a sample is due.

    Cycle k of K covers steps ⌊kS/K⌋ … ⌊(k+1)S/K⌋−1. At position j of n, lr = lr₀/2·(1+cos(πj/n)),
    the noise is on from j ≥ ⌈burn_in·n⌉, and the m samples are evenly spaced over the noisy part,
    the last at j = n−1. Each group keeps its own lr₀. Any torch optimizer will do; the noise is
    switched only where the groups have that entry. With coupled="noisy" a guide is coupled to θ
    only while the noise is on: burn-in is SGD at its full speed, and θ_a starts as θ after it. With
    a floor, lr falls from lr₀ to floor·lr₀ during burn-in and stays there: the samples come from a
    chain of constant step size. With warm_up, lr rises in a straight line over the first
    ⌈warm_up·n⌉ steps of the first cycle, for networks whose first steps would overshoot. With
    eta_end (scoping), η falls from the sampler's, wide, to eta_end, narrow, during burn-in:
    η·(eta_end/η)^(j/⌈burn_in·n⌉). Samples come from one target, that of eta_end. Every value is
    checked for stability, with its lr, before the first step.

    With y replicas, each of which takes its turn in `sampler.step()`, S counts these calls, and the
    steps above are their ⌊S/y⌋ rounds: lr, noise, coupling and η are those of a round, and a sample
    is due at the end of one, when all replicas have moved. A sampler that is in the middle of a
    round then (a step was skipped) has its sample when it ends.

    Call `step` once after each `sampler.step()`:

    >>> import torch
    >>> from entropy_mcmc import SGLD
    >>> p = torch.nn.Parameter(torch.zeros(3))
    >>> sampler = SGLD([p], lr=0.1, num_data=10, seed=0)
    >>> cycle = Cyclical(sampler, total_steps=10, cycles=2, burn_in=0.5, samples_per_cycle=1)
    >>> due = []
    >>> for _ in range(10):
    ...     p.grad = p.detach().clone(); sampler.step()
    ...     due.append(cycle.step())
    >>> [i for i, sample in enumerate(due) if sample]
    [4, 9]
    """

    def __init__(
        self,
        sampler: Optimizer,
        total_steps: int,
        cycles: int = 4,
        burn_in: float = 0.8,
        samples_per_cycle: int = 2,
        coupled: str = "always",
        floor: float = 0.0,
        eta_end: float | None = None,
        warm_up: float = 0.0,
    ) -> None:
        self.sampler = sampler
        self.total_steps = check_count("total_steps", total_steps)
        self.cycles = check_count("cycles", cycles)
        self.burn_in = check_number("burn_in", burn_in)
        self.samples_per_cycle = check_count("samples_per_cycle", samples_per_cycle, least=0)
        check_choice("coupled", coupled, COUPLED)
        self.coupled = coupled
        self.floor = check_number("floor", floor)
        self.warm_up = check_number("warm_up", warm_up)
        self.eta_end = None if eta_end is None else check_positive("eta_end", eta_end)
        self.base_lrs = [float(group["lr"]) for group in sampler.param_groups]
        self.base_etas: list[float] = []
        self.last_step = 0
        self.owed = False  # a sample that waits for the end of a round
        self._check()
        plan = getattr(sampler, "plan_cycle", None)
        if plan is not None:  # a sampler of this library: it may have left η open
            plan(self.rounds // self.cycles, self.burn_in)
        if self.eta_end is not None:
            self._check_scoping()
            self.base_etas = [float(group["eta"]) for group in sampler.param_groups]
            self.check_stability(self.lr_factor)
        self._apply()

    def step(self) -> bool:
        """Count the step just made; True if its state is a sample to collect."""
        if self.last_step >= self.total_steps:
            raise StateError(
                f"Cyclical was made for total_steps={self.total_steps} and has made them all; "
                f"make it longer, or stop the loop"
            )
        due = self.is_due(self.last_step) or self.owed
        self.last_step += 1
        if self.last_step < self.total_steps:
            self._apply()
        in_round = bool(self.sampler.param_groups[0].get("replica", 0))
        self.owed = due and in_round and self.last_step < self.total_steps
        return due and not self.owed

    @property
    def round_calls(self) -> int:
        """Calls of `sampler.step()` in a round: one, or one for each replica of this process."""
        return int(getattr(self.sampler, "calls_per_round", 1))

    @property
    def rounds(self) -> int:
        """Number of whole rounds."""
        return self.total_steps // self.round_calls

    def is_due(self, step: int) -> bool:
        """Whether the state after step number `step` (from 0) is a sample."""
        position, length = self._position(step)
        ends = (step + 1) % self.round_calls == 0
        return ends and position in self.sample_positions(length)

    def cycle(self, step: int) -> int:
        """Number of the cycle, from 0, that step number `step` belongs to."""
        # Largest k with ⌊kR/K⌋ ≤ round, that is k < (round+1)·K/R, of R rounds.
        return ((self._round(step) + 1) * self.cycles - 1) // self.rounds

    def lr_factor(self, step: int) -> float:
        """lr/lr₀ at step number `step`."""
        position, length = self._position(step)
        risen = rise(self._round(step), self.warm_steps)
        if not self.floor:
            return risen * _cosine(1.0, position, length)
        end = math.ceil(self.burn_in * length)
        falling = _cosine(1 - self.floor, position, end) if position < end else 0.0
        return risen * (self.floor + falling)

    @property
    def warm_steps(self) -> int:
        """Steps of the warm-up, which are rounds of replicas."""
        return math.ceil(self.warm_up * (self.rounds // self.cycles))

    def eta(self, step: int, start: float) -> float:
        """η at step number `step`, for a group whose cycles begin at η = `start`."""
        if self.eta_end is None:
            return start
        position, length = self._position(step)
        end = math.ceil(self.burn_in * length)
        return (
            self.eta_end if position >= end else start * (self.eta_end / start) ** (position / end)
        )

    def check_stability(self, lr_factor: Schedule) -> None:
        """Refuse a schedule at one of whose steps η is too narrow for lr = lr₀·lr_factor(step)."""
        check = getattr(self.sampler, "check_at", None)
        if check is None or self.eta_end is None:
            return
        for place, (lr, start) in enumerate(zip(self.base_lrs, self.base_etas, strict=True)):
            # The pair is stable if lr/η is small enough: the step where it is largest decides.
            def values(s: int, lr: float = lr, start: float = start) -> tuple[float, float]:
                return lr * lr_factor(s), self.eta(s, start)

            worst = max(range(self.total_steps), key=lambda s: values(s)[0] / values(s)[1])
            rate, eta = values(worst)
            try:
                check(place, lr=rate, eta=eta)
            except ConfigError as error:
                raise ConfigError(
                    f"eta_end={self.eta_end!r} is too narrow for the lr of step {worst} of "
                    f"{self.total_steps} (eta from {start:.4g}, lr from {lr:.4g}): {error}"
                ) from error

    def is_noisy(self, step: int) -> bool:
        """Whether step number `step` adds noise."""
        position, length = self._position(step)
        return position >= math.ceil(self.burn_in * length)

    def sample_positions(self, length: int) -> list[int]:
        """Positions within a cycle of `length` steps whose states are samples."""
        first = math.ceil(self.burn_in * length)
        m = self.samples_per_cycle
        return [first - 1 + (i * (length - first)) // m for i in range(1, m + 1)]

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers only."""
        return {name: value for name, value in vars(self).items() if name != "sampler"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, and set the sampler's lr and noise."""
        later = {"coupled": "always", "floor": 0.0, "warm_up": 0.0, "owed": False}
        later |= {"eta_end": None, "base_etas": []}
        state_dict = {**later, **state_dict}  # earlier versions have none of them
        if set(state_dict) != set(self.state_dict()):
            raise ConfigError(
                f"state_dict must have the entries {sorted(self.state_dict())}, "
                f"got {sorted(state_dict)}"
            )
        if len(state_dict["base_lrs"]) != len(self.sampler.param_groups):
            raise ConfigError(
                f"state_dict must be of a sampler with {len(self.sampler.param_groups)} parameter "
                f"groups, got {len(state_dict['base_lrs'])}"
            )
        vars(self).update(state_dict)
        if self.last_step < self.total_steps:
            self._apply()

    def _round(self, step: int) -> int:
        """Number of the round of step number `step`; a last one that stays short joins another."""
        return min(step // self.round_calls, self.rounds - 1)

    def _position(self, step: int) -> tuple[int, int]:
        """Position j within the cycle, and the cycle's length n, both in rounds."""
        cycle = self.cycle(step)
        start = cycle * self.rounds // self.cycles
        end = (cycle + 1) * self.rounds // self.cycles
        return self._round(step) - start, end - start

    def _apply(self) -> None:
        factor, noisy = self.lr_factor(self.last_step), self.is_noisy(self.last_step)
        for group, lr in zip(self.sampler.param_groups, self.base_lrs, strict=True):
            group["lr"] = lr * factor
            if "noise" in group:
                group["noise"] = noisy
            if "coupled" in group:
                group["coupled"] = noisy or self.coupled == "always"
        for group, start in zip(self.sampler.param_groups, self.base_etas, strict=False):
            group["eta"] = self.eta(self.last_step, start)

    def _check_scoping(self) -> None:
        for group in self.sampler.param_groups:
            if "eta" not in group:
                raise ConfigError(
                    f"eta_end must be None for a sampler without η, got eta_end={self.eta_end!r}; "
                    f"use EntropyMCMC"
                )
            if group["eta"] < self.eta_end:
                raise ConfigError(
                    f"eta_end must be at most eta={group['eta']!r}, where a cycle begins: scoping "
                    f"goes from wide to narrow, got eta_end={self.eta_end!r}"
                )
        if self.coupled == "noisy" or self.burn_in == 0:
            raise ConfigError(
                f"eta_end needs a burn-in in which θ and θ_a are coupled, got eta_end="
                f"{self.eta_end!r}, coupled={self.coupled!r} and burn_in={self.burn_in!r}; use "
                f'coupled="always" and a larger burn_in'
            )

    def _check(self) -> None:
        if not 0 <= self.floor <= 1:
            raise ConfigError(
                f"floor must be from 0 to 1, a part of lr, got floor={self.floor!r}; with 0, lr "
                "falls to 0 over the whole cycle"
            )
        if not 0 <= self.warm_up <= 1:
            raise ConfigError(
                f"warm_up must be from 0 to 1, a part of the first cycle, got "
                f"warm_up={self.warm_up!r}; 0 is none"
            )
        if not 0 <= self.burn_in <= 1:
            raise ConfigError(f"burn_in must be from 0 to 1, got burn_in={self.burn_in!r}")
        if not self.rounds:
            raise ConfigError(
                f"total_steps must be at least {self.round_calls}, one round of the sampler's "
                f"replicas, got total_steps={self.total_steps}; make more steps, or use fewer "
                f"replicas"
            )
        turns, limit = "steps", f"total_steps={self.total_steps}"
        if self.round_calls > 1:
            turns = f"rounds of {self.round_calls} replicas"
            limit = f"{self.rounds}, the {turns} in {limit}"
        if self.cycles > self.rounds:
            raise ConfigError(f"cycles must be at most {limit}, got cycles={self.cycles}")
        shortest = self.rounds // self.cycles
        for length in {shortest, -(-self.rounds // self.cycles)}:
            noisy = length - math.ceil(self.burn_in * length)
            if self.samples_per_cycle > noisy:
                raise ConfigError(
                    f"samples_per_cycle must be at most {noisy}, the noisy steps of a cycle of "
                    f"{length} {turns} at burn_in={self.burn_in}, got samples_per_cycle="
                    f"{self.samples_per_cycle}; use fewer samples, a smaller burn_in, or more steps"
                )


def _cosine(start: float, position: int, length: int) -> float:
    return start / 2 * (1 + math.cos(math.pi * position / length))


def _check_ends(start: float, end: float) -> None:
    check_not_negative("start", start)
    check_not_negative("end", end)
