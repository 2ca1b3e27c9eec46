"""Where the heat comes from: the noise that was injected, or mini-batches.

A reading is T·f + V·k: f and k are known (`expected_reading`), V = N²·Var(ĝ) is the variance of the
mini-batch gradient of the full energy, averaged over coordinates. What can be told apart:
 - with V given, both parts, from one reading;
 - with readings at different lr (k falls with lr, f does not), both parts, if V stayed the same;
 - from readings at one lr without V, only the sum.
What cannot: a drift of θ, which the guide follows late, adds η‖∇U‖²/(4d) and looks like V.
For `gibbs` and `collapsed`, k = 0 and θ_a is drawn afresh: the reading tests that draw and nothing
else.

The reading is that of θ−θ_a. θ itself is heated as much (αV/4) in directions flatter than 1/η, and
twice as much (αV/2) in stiffer ones: `stationary.minibatch_heat`. With y replicas the reading is
heated by αV/(2(1+y)), each θ_i by y times as much in flat directions and by αV/2 in stiff ones. A
too large lr does not show here at all: `pair_temperature` sees it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from entropy_mcmc.diagnostics.expected_reading import DRAWN
from entropy_mcmc.diagnostics.gradient_noise import Estimate
from entropy_mcmc.diagnostics.thermometer_reading import Reading, mean_error
from entropy_mcmc.errors import StateError

THRESHOLD = 3.5  # standard errors; a Gaussian is outside in 1 of 2,149 readings

APART = 100.0  # difference of clocks at which e^{-2·clock} is nothing


@dataclass(frozen=True)
class Verdict:
    """What a reading says.

    Attributes:
        kind: "right", "mini-batch heat", "hot", "cold" or "draw only".
        injected: Temperature of the injected noise; None where it cannot be told apart.
        minibatch: Temperature that mini-batches add to θ−θ_a; None where it cannot be told apart.
        text: The verdict in words.
        theta_heat: Temperature that they add to θ, in directions flatter and stiffer than 1/η; in
            the flattest an epoch's mini-batches cancel, and it is less.
    """

    kind: str
    injected: Estimate | None
    minibatch: Estimate | None
    text: str
    theta_heat: tuple[Estimate, Estimate] | None = None


def separate(readings: Sequence[Reading]) -> tuple[Estimate, Estimate]:
    """Injected temperature and V from readings at different lr: generalised least squares.

    Fits observed_i = (T_inj/T)·expected_i + V·per_variance_i with the correlations of the
    readings. Supposes the same V at each of them. Readings at one lr raise.

    Returns:
        T of the injected noise, and V.
    """
    if len(readings) < 2:
        raise StateError(f"two readings at different lr are needed, got {len(readings)}")
    design = torch.tensor([[r.expected, r.per_variance] for r in readings], dtype=torch.float64)
    observed = torch.tensor([r.observed for r in readings], dtype=torch.float64)
    clocks = torch.tensor([r.clock for r in readings], dtype=torch.float64)
    scale = observed * math.sqrt(2 / readings[0].size)
    correlation = torch.exp(-2 * (clocks[:, None] - clocks).abs())
    weight = torch.linalg.pinv(correlation * scale[:, None] * scale, hermitian=True)
    # Unit columns, so that the condition number measures how much the readings differ.
    norms = design.norm(dim=0)
    if not bool((norms > 0).all()) or float(torch.linalg.cond(design / norms)) > 1e3:
        raise StateError(
            "the readings are at too similar lr to tell injected from mini-batch heat; read at "
            "different phases of the cycle, or pass gradient_variance"
        )
    normal = torch.linalg.inv((design / norms).T @ weight @ (design / norms))
    solution = normal @ (design / norms).T @ weight @ observed / norms
    errors = normal.diagonal().sqrt() / norms
    T = readings[0].temperature
    injected = Estimate(T * float(solution[0]), T * float(errors[0]))
    return injected, Estimate(float(solution[1]), float(errors[1]))


def judge(readings: Sequence[Reading], variance: Estimate | float | None = None) -> Verdict:
    """The verdict on one or several readings.

    Args:
        readings: Of one chain; their mean is judged.
        variance: V of `gradient_variance`, or known otherwise; without it, readings at different
            lr are used where there are some.
    """
    ratio, error = average(readings)
    T, lag = readings[-1].temperature, sum(r.lag for r in readings) / len(readings)
    if readings[-1].rule in DRAWN:
        heat = None if variance is None else _kick_heat(readings, _estimate(variance))
        verdict = _draw_only(ratio, error, T, readings[-1].rule)
        return replace(verdict, theta_heat=heat and (heat, heat))
    if variance is None:
        try:
            injected, V = separate(readings)
        except StateError:
            return _sum_only(ratio, error, T, lag)
    else:
        V = _estimate(variance)
        injected = _subtract(readings, V, error * max(ratio, 1.0))
    share = sum(r.per_variance / r.expected for r in readings) / len(readings)
    minibatch = _scaled(V, T * share)
    exact = readings[-1].rule == "exact"
    kicks = sum((r.per_independent or r.per_variance) / r.expected for r in readings)
    y = readings[-1].replicas
    stiff = _kick_heat(readings, V) if exact else _scaled(V, (1 + y) * T * kicks / len(readings))
    return _judge_parts(injected, minibatch, (_scaled(minibatch, y), stiff), T, lag)


def _estimate(value: Estimate | float) -> Estimate:
    return Estimate(*value) if isinstance(value, tuple) else Estimate(float(value), 0.0)


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(factor * estimate.value, factor * estimate.error)


def _kick_heat(readings: Sequence[Reading], V: Estimate) -> Estimate:
    """αV/2: what gradient noise adds to a θ that moves alone."""
    return _scaled(V, sum(r.alpha for r in readings) / len(readings) / 2)


def average(readings: Sequence[Reading]) -> Estimate:
    """Mean ratio of the readings, with the standard error that their correlation leaves."""
    error = mean_error(readings)
    return Estimate(sum(reading.ratio for reading in readings) / len(readings), error)


def independent(chains: Sequence[Sequence[Reading]]) -> list[Reading]:
    """Readings of several chains in one list; their clocks are set so far apart as to be unrelated.

    >>> one = Reading(1, 9, 1.0, 1.0, 0.0, 1.0, 0.1, clock=2.0, rule="euler")
    >>> [reading.clock for reading in independent([[one], [one]])]
    [2.0, 104.0]
    """
    joined: list[Reading] = []
    for readings in chains:
        start = joined[-1].clock + APART if joined else 0.0
        joined += [replace(reading, clock=start + reading.clock) for reading in readings]
    return joined


def power(size: int, relative_error: float, *, threshold: float = THRESHOLD) -> float:
    """Probability that one reading of `size` coordinates finds a wrong temperature.

    The reading is a χ²_d/d, Gaussian to three digits for d > 1000.

    >>> round(power(78_000, 0.03), 3), round(power(78_000, 0.0), 5)
    (0.991, 0.00047)
    """
    sd, edge = (1 + relative_error) * math.sqrt(2 / size), threshold * math.sqrt(2 / size)
    above = math.erfc((edge - relative_error) / (sd * math.sqrt(2))) / 2
    below = math.erfc((edge + relative_error) / (sd * math.sqrt(2))) / 2
    return above + below


def _subtract(readings: Sequence[Reading], V: Estimate, error: float) -> Estimate:
    T = readings[-1].temperature
    rest = [(r.observed - V.value * r.per_variance) / r.expected for r in readings]
    share = sum(r.per_variance / r.expected for r in readings) / len(readings)
    return Estimate(T * sum(rest) / len(rest), T * math.hypot(error, V.error * share))


def _judge_parts(
    injected: Estimate, minibatch: Estimate, heat: tuple[Estimate, Estimate], T: float, lag: float
) -> Verdict:
    away = (injected.value - T) / injected.error
    late = lag * T / injected.error  # what stiff directions may still lack
    parts = (
        f"injected {injected} against T = {T:.4g}; mini-batches heat θ by {heat[0]} in directions "
        f"flatter than 1/η and by {heat[1]} in stiffer ones"
    )
    if away > THRESHOLD:
        kind, text = (
            "hot",
            f"the coupling is hotter than T, and mini-batches do not explain it: {parts}",
        )
    elif away + late < -THRESHOLD:
        kind, text = "cold", f"the injected noise is colder than T: {parts}"
    elif minibatch.value > THRESHOLD * max(minibatch.error, injected.error):
        kind, text = (
            "mini-batch heat",
            f"the injected noise is right, mini-batches add heat: {parts}",
        )
    else:
        kind, text = "right", f"the injected noise is right: {parts}"
    return Verdict(kind, injected, minibatch, text, heat)


def _sum_only(ratio: float, error: float, T: float, lag: float) -> Verdict:
    shown = Estimate(T * ratio, T * error)
    if ratio - 1 > THRESHOLD * error:
        text = (
            f"the coupling is hotter than T = {T:.4g}: {shown}; one lr and no gradient variance, "
            f"so that injected and mini-batch heat cannot be told apart"
        )
        return Verdict("hot", None, None, text)
    if ratio + lag - 1 < -THRESHOLD * error:
        return Verdict("cold", None, None, f"the coupling is colder than T = {T:.4g}: {shown}")
    text = f"the injected noise is right: {shown} against T = {T:.4g}, no mini-batch heat seen"
    return Verdict("right", None, None, text)


def _draw_only(ratio: float, error: float, T: float, rule: str) -> Verdict:
    good = abs(ratio - 1) <= THRESHOLD * error
    state = "is right" if good else "is wrong"
    text = (
        f"the draw of θ_a {state}: {Estimate(T * ratio, T * error)} against T = {T:.4g}; with "
        f'guide_update="{rule}" this says nothing about θ'
    )
    return Verdict("draw only" if good else ("hot" if ratio > 1 else "cold"), None, None, text)
