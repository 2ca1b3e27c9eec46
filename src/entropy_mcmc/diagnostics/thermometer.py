"""The coupling thermometer: is the chain at the temperature that it claims?

θ_a given θ is N(θ, ηT·I) whatever the network, so ‖θ−θ_a‖²/(dη) reads T from one state, with no
gradient. Divided by its finite-step expectation (`expected_reading`) it should be 1. One reading
of d independent Gaussian coordinates is a χ²_d/d: its standard error is √(2/d) of the expectation.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from entropy_mcmc import units
from entropy_mcmc.diagnostics.expected_reading import (
    DRAWN,
    Move,
    Spread,
    curvature_factor,
    move,
    plus_square,
    replicas_of,
)
from entropy_mcmc.diagnostics.thermometer_reading import Reading, pooled
from entropy_mcmc.errors import ConfigError, StateError, check_not_negative
from entropy_mcmc.units import RELAXED


@dataclass
class _Track:
    """What is known of one group: expected spreads, and how long the noise has been on."""

    injected: Spread = (0.0, 0.0, 0.0)
    kicked: Spread = (0.0, 0.0, 0.0)
    relaxed: float = 0.0
    forgotten: float = 0.0
    clock: float = 0.0
    last_lr: float = 0.0
    peak: float = 0.0  # largest lr/(ηN) so far
    longest: float = 0.0  # largest Σ 2·lr/((1−μ)ηN) of any noisy phase
    epoch: tuple[float, float] = (0.0, 0.0)  # (δ, v) after one unit of kick in each step of it
    epochs: Spread = (0.0, 0.0, 0.0)  # their covariance, over the epochs before
    position: int = 0  # steps of the epoch so far

    def advance(self, group: dict[str, Any], epoch_steps: int | None = None) -> None:
        step = move(group, self.last_lr)
        self.injected = step.apply(self.injected, step.injected)
        self.kicked = step.apply(self.kicked, step.kicked)
        if epoch_steps is not None:
            self._cancel(step, epoch_steps)
        self.clock += step.forgetting
        on = units.heat_of(group) > 0
        alone = group["guide_update"] == "collapsed"  # θ_a has no past to forget
        self.relaxed = self.relaxed + (RELAXED if alone else _relaxation(group)) if on else 0.0
        self.forgotten = self.forgotten + step.forgetting if on else 0.0
        self.last_lr = group["lr"]
        self.peak = max(self.peak, 0.0 if alone else _coupling(group))
        self.longest = max(self.longest, self.relaxed)

    def _cancel(self, step: Move, epoch_steps: int) -> None:
        """Follow the sum of an epoch's kicks: mini-batches without replacement sum to nothing."""
        self.epochs = step.apply(self.epochs, (0.0, 0.0))
        self.epoch = step.push(self.epoch)
        self.position += 1
        if self.position == epoch_steps:
            self.epochs = plus_square(self.epochs, self.epoch)
            self.epoch, self.position = (0.0, 0.0), 0

    def minibatch(self, epoch_steps: int | None) -> float:
        """Variance of δ per unit of V."""
        if epoch_steps is None:
            return self.kicked[0]
        cancelled = self.epochs[0] + self.epoch[0] ** 2
        return max(self.kicked[0] - cancelled / epoch_steps, 0.0)

    @property
    def progress(self) -> float:
        """Share of the waiting time that is over; the slower of the two clocks counts.

        They differ where the Euler rule oscillates (q > ½) or momentum is underdamped.
        """
        return min(self.relaxed, self.forgotten) / RELAXED


class Thermometer:
    """Follows a sampler with a guide; reads ‖θ−θ_a‖²/(dη) against what it should be.

    Call `step` after every `sampler.step()` and before a schedule changes lr: it costs a few
    scalar operations. Only `read` passes over the weights. Attach it before the first step.

    >>> import torch
    >>> from entropy_mcmc import EntropyMCMC
    >>> p = torch.nn.Parameter(torch.zeros(10_000))
    >>> sampler = EntropyMCMC([p], lr=0.1, num_data=1, eta=0.5, temperature=0.01, seed=0)
    >>> thermometer = Thermometer(sampler)
    >>> for _ in range(100):
    ...     p.grad = p.detach().clone(); sampler.step(); thermometer.step()
    >>> reading = thermometer.read(curvature=1.0)
    >>> abs(reading.ratio - 1) < 3.5 * reading.error
    True
    """

    def __init__(self, sampler: Any, epoch_steps: int | None = None) -> None:
        """Follow a sampler.

        Args:
            sampler: An `EntropyMCMC`.
            epoch_steps: Mini-batches of an epoch, where each row is in one of them: their noise
                then cancels over an epoch and heats less. None for independent mini-batches.
        """
        for group in sampler.param_groups:
            missing = {"eta", "guide_update", "num_data", "temperature"} - set(group)
            if missing:
                raise ConfigError(
                    f"the thermometer needs a sampler with a guide (EntropyMCMC), got "
                    f"{type(sampler).__name__} without {sorted(missing)}"
                )
            if units.rounds_between(group) > 1:
                raise ConfigError(
                    f"the thermometer needs a guide that moves in every round, got "
                    f"exchange_every={group['exchange_every']}; use exchange_every=1"
                )
        self.sampler = sampler
        self.epoch_steps = epoch_steps
        self.readings: list[Reading] = []
        self._tracks = [_Track() for _ in sampler.param_groups]
        self._step: int = sampler.param_groups[0]["step"]

    def step(self) -> None:
        """Count the step that the sampler has just made, with the lr that it used."""
        groups = self.sampler.param_groups
        if groups[0].get("replica", 0) and groups[0]["step"] == self._step:
            return  # in the middle of a round of replicas
        if groups[0]["step"] != self._step + 1:
            raise StateError(
                f"the thermometer has counted to step {self._step}, the sampler is at step "
                f"{groups[0]['step']}; call thermometer.step() once after each sampler.step()"
            )
        while len(self._tracks) < len(groups):  # a group that was added to the sampler
            self._tracks.append(_Track())
        for track, group in zip(self._tracks, groups, strict=True):
            track.advance(_used(group), self.epoch_steps)
        self._step += 1

    def follow(self, other: Thermometer) -> None:
        """Have counted what a thermometer of a sampler with the same schedule has."""
        self._tracks, self._step = [replace(track) for track in other._tracks], other._step

    @property
    def progress(self) -> float:
        """Waiting time that is over, from 0; readings are given from 1."""
        return min(track.progress for track in self._tracks)

    @property
    def relaxation(self) -> float:
        """Largest Σ 2·lr/((1−μ)ηN) that a noisy phase has reached so far."""
        return min(track.longest for track in self._tracks)

    @property
    def peak_coupling(self) -> float:
        """Largest lr/(ηN) so far: the guide averaged over at least its inverse in steps."""
        return max(track.peak for track in self._tracks)

    @property
    def ready(self) -> bool:
        """Whether `read` gives a reading now."""
        return self.progress >= 1 and not self.sampler.param_groups[0].get("replica", 0)

    @torch.no_grad()
    def read(self, *, curvature: float = 0.0) -> Reading:
        """Read the thermometer; one pass over the weights.

        Args:
            curvature: Mean curvature h of the full energy per coordinate, N·trace/d, if known;
                leaving it at 0 underrates the expectation by about lr/(ηN)·(lr/N)·h/4.

        Raises:
            StateError: Before Σ 2·lr/((1−μ)ηN) ≥ 3 since the noise came on.
        """
        check_not_negative("curvature", curvature)
        if not self.ready:
            raise StateError(self._too_early())
        draws = any(group["guide_update"] == "collapsed" for group in self.sampler.param_groups)
        with self.sampler.drawn_guides() if draws else nullcontext():
            parts = [
                self._group(group, track, curvature)
                for group, track in zip(self.sampler.param_groups, self._tracks, strict=True)
            ]
        reading = pooled([part for part in parts if part is not None])
        self.readings.append(reading)
        return reading

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts only."""
        return {
            "step": self._step,
            "tracks": [asdict(track) for track in self._tracks],
            "readings": [asdict(reading) for reading in self.readings],
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        if set(state_dict) != {"step", "tracks", "readings"}:
            raise ConfigError(
                f"state_dict must have the entries step, tracks and readings, "
                f"got {sorted(state_dict)}"
            )
        self._step = state_dict["step"]
        self._tracks = [_load_track(saved) for saved in state_dict["tracks"]]
        self.readings = [Reading(**saved) for saved in state_dict["readings"]]

    def _group(self, group: dict[str, Any], track: _Track, h: float) -> Reading | None:
        state = self.sampler.state
        params = [p for p in group["params"] if "guide" in state.get(p, {})]
        if not params:
            return None
        y = replicas_of(group)
        size, eta = sum(p.numel() for p in params), group["eta"] / y
        theta = self.sampler.replica_mean if y > 1 else self.sampler._theta
        gap = sum(_squared(theta(p), state[p]["guide"]) for p in params)
        return Reading(
            step=self._step,
            size=size,
            observed=gap / (size * eta),
            expected=track.injected[0] / eta * curvature_factor(group, h),
            per_variance=track.minibatch(self.epoch_steps) / eta,
            per_independent=track.kicked[0] / eta,
            temperature=group["temperature"],
            alpha=units.step_size(track.last_lr, group["num_data"]) / _friction(group),
            clock=track.clock,
            rule=group["guide_update"],
            replicas=y,
            lag=0.0 if group["guide_update"] in DRAWN else math.exp(-track.relaxed),
        )

    def _too_early(self) -> str:
        slowest = min(self._tracks, key=lambda track: track.progress)
        group = self.sampler.param_groups[self._tracks.index(slowest)]
        text = (
            f"the thermometer gives no reading before Σ 2·lr/((1−μ)ηN) ≥ {RELAXED:g} since the "
            f"noise came on, now {slowest.relaxed:.3g}"
        )
        if self.progress >= 1:
            return "the thermometer gives no reading in a round of replicas; finish the round"
        if units.heat_of(group) == 0:
            return f"{text}: the noise is off; read while it is on"
        if not group["lr"]:
            return f"{text}; lr is 0 and θ_a stands still"
        steps = math.ceil((RELAXED - slowest.relaxed) / _relaxation(group))
        return f"{text}; make about {max(steps, 1)} more steps at this lr, or use a smaller eta"


def _used(group: dict[str, Any]) -> dict[str, Any]:
    """The group with the lr of its last step, which is one for all replicas of a round."""
    return {**group, "lr": group["round_lr"]} if replicas_of(group) > 1 else group


def _coupling(group: dict[str, Any]) -> float:
    """lr/(ηN), times (1+y)/2: what pulls the mean of the replicas and the guide together."""
    spokes = (1 + replicas_of(group)) / 2
    return float(spokes * units.coupling(group["lr"], group["num_data"], group["eta"]))


def _relaxation(group: dict[str, Any]) -> float:
    spokes, mu = (1 + replicas_of(group)) / 2, group.get("momentum", 0.0)
    return float(spokes * units.relaxation(group["lr"], group["num_data"], group["eta"], mu))


def _friction(group: dict[str, Any]) -> float:
    """1−μ where θ moves alone; 1 elsewhere."""
    return 1.0 - group["momentum"] if group["guide_update"] == "collapsed" else 1.0


def _squared(theta: torch.Tensor, guide: torch.Tensor) -> float:
    total: Any = (theta - guide).square().sum(dtype=torch.float64)
    return float(total.full_tensor() if hasattr(total, "full_tensor") else total)


def _load_track(saved: dict[str, Any]) -> _Track:
    names = {"injected", "kicked", "epoch", "epochs"} & set(saved)  # older ones know no epochs
    spreads = {name: tuple(saved[name]) for name in names}
    return _Track(**{**saved, **spreads})
