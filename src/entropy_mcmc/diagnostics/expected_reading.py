r"""What the coupling thermometer should read: the law of δ = θ−θ_a, step by step.

On a flat energy (h = 0) δ moves by itself, so its variance per coordinate is a scalar recursion
that follows any schedule of lr, noise, T and η exactly. With q = α/η, α = lr/N:

.. math::
    \text{euler:}\quad  s &\leftarrow (1-2q)^2 s + 4\alpha T + \alpha^2 V \\
    \text{exact:}\quad  s &\leftarrow e^{-4q}(s + \alpha^2 V) + \eta T(1-e^{-4q}) \\
    \text{gibbs:}\quad  s &\leftarrow \eta T

where V = N²·Var(ĝ) per coordinate is the mini-batch noise of the full energy's gradient. The
parts in T (injected heat) and in V (mini-batch heat) add up, and are kept apart here. Momentum
makes s a 2×2 covariance of (δ, v). At constant lr the Euler rule ends at s/(ηT) = 1/(1−q) and
s/η = αV/(4(1−q)): mini-batches heat the thermometer by αV/4.

Curvature changes little: the stationary reading is 1/(1 − q(4−αh)/(4−2αh)), larger by about the
factor 1 + qαh/4, where h is the mean curvature over the coordinates. At q = 0.025 even αh = 1
gives 0.6 %; in a network most directions are flat and it is far below the standard error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from entropy_mcmc import stationary, units

# Covariance (δδ, δv, vv) of one coordinate.
Spread = tuple[float, float, float]
# A draw that forgets its past at once; e^{-50} is below the resolution of a double.
_FORGOTTEN = 50.0


class Move(NamedTuple):
    """One step of δ: z = (δ, v) → Mz + noise of δ (`drawn`) or of v (`pushed`), per T and V."""

    matrix: tuple[float, float, float, float]
    injected: float
    kicked: float
    through_velocity: bool

    def apply(self, spread: Spread, noise: float) -> Spread:
        """Covariance after the step, `noise` being the variance that it adds."""
        a, b, c, d = self.matrix
        dd, dv, vv = spread
        new = (
            a * a * dd + 2 * a * b * dv + b * b * vv,
            a * c * dd + (a * d + b * c) * dv + b * d * vv,
            c * c * dd + 2 * c * d * dv + d * d * vv,
        )
        if self.through_velocity:  # δ moves by the new velocity, noise included
            return new[0] + noise, new[1] + noise, new[2] + noise
        return new[0] + noise, new[1], new[2]

    def push(self, state: tuple[float, float]) -> tuple[float, float]:
        """(δ, v) after the step, given one unit of gradient noise."""
        a, b, c, d = self.matrix
        kick = math.sqrt(self.kicked)
        delta, velocity = a * state[0] + b * state[1] + kick, c * state[0] + d * state[1]
        return delta, velocity + kick if self.through_velocity else velocity

    @property
    def forgetting(self) -> float:
        """−log of the spectral radius: how fast δ forgets, per step (0: not at all)."""
        a, b, c, d = self.matrix
        half, det = (a + d) / 2, a * d - b * c
        root = half * half - det
        radius = abs(half) + math.sqrt(root) if root >= 0 else math.sqrt(det)
        return min(-math.log(radius), _FORGOTTEN) if radius > 0 else _FORGOTTEN


def plus_square(spread: Spread, state: tuple[float, float]) -> Spread:
    """Covariance with the outer product of (δ, v) added."""
    delta, velocity = state
    return spread[0] + delta**2, spread[1] + delta * velocity, spread[2] + velocity**2


def move(group: Mapping[str, Any], last_lr: float) -> Move:
    """The step that a parameter group of `EntropyMCMC` makes with its present entries.

    Args:
        group: lr, num_data, eta, temperature, noise, momentum and guide_update are read.
        last_lr: lr of the step before, 0 for none: velocities are rescaled by √(lr/lr_last).
    """
    alpha, eta = units.step_size(group["lr"], group["num_data"]), group["eta"]
    q, heat = alpha / eta, units.heat_of(group)
    if group["guide_update"] == "gibbs":
        return Move((0.0, 0.0, 0.0, 0.0), eta * heat, 0.0, False)
    if group["guide_update"] == "exact":
        kept = math.exp(-2 * q)
        fresh = -eta * heat * math.expm1(-4 * q)
        return Move((kept, 0.0, 0.0, 0.0), fresh, (kept * alpha) ** 2, False)
    mu = group["momentum"]
    injected, kicked = 4 * alpha * heat * (1 - mu), alpha**2
    if not mu:
        return Move((1 - 2 * q, 0.0, 0.0, 0.0), injected, kicked, False)
    carried = units.carried_momentum(mu, group["lr"], last_lr)
    return Move((1 - 2 * q, carried, -2 * q, carried), injected, kicked, True)


def curvature_factor(group: Mapping[str, Any], h: float) -> float:
    """By how much a mean curvature h of the full energy raises the stationary reading over h = 0.

    Both at T = 1 and exact gradients, from the closed forms of `stationary`.

    >>> group = dict(lr=0.1, num_data=1, eta=0.5, momentum=0.0, guide_update="euler")
    >>> round(curvature_factor(group, 1.0), 4)  # 1.2583 against 1.25
    1.0066
    """
    alpha, eta = units.step_size(group["lr"], group["num_data"]), float(group["eta"])
    if h == 0 or alpha == 0 or group["guide_update"] == "gibbs":
        return 1.0
    if group["guide_update"] == "exact":
        return stationary.exact_covariance(alpha, h, eta).difference / eta
    alpha /= 1 + group["momentum"]  # the law with momentum is Euler's at α/(1+μ)
    return stationary.thermometer_factor(alpha, h, eta) / stationary.thermometer_factor(
        alpha, 0.0, eta
    )
