r"""What the coupling thermometer should read: the variance of δ = θ−θ_a, step by step.

On a flat energy (h = 0) δ moves by itself, so its variance per coordinate is a scalar recursion
that follows any schedule of lr, noise, T and η exactly. With q = α/η, α = lr/N:

.. math::
    \text{euler:}\quad  s &\leftarrow (1-2q)^2 s + 4\alpha T + \alpha^2 V \\
    \text{exact:}\quad  s &\leftarrow e^{-4q}(s + \alpha^2 V) + \eta T(1-e^{-4q}) \\
    \text{gibbs, collapsed:}\quad  s &\leftarrow \eta T

where V = N²·Var(ĝ) per coordinate is the mini-batch noise of the full energy's gradient. The
parts in T (injected heat) and in V (mini-batch heat) add up, and are kept apart here. Momentum
makes s a 2×2 covariance of (δ, v). At constant lr the Euler rule ends at s/(ηT) = 1/(1−q) and
s/η = αV/(4(1−q)): mini-batches heat the thermometer by αV/4. With the integrators `lm` (v is the
half of the noise that the next step adds) and `baoab` it ends at s/(ηT) = 1.

With y replicas δ is mean θ_i − θ_a: (1+y)q stands for 2q, 2αT(1+1/y) for 4αT, V/y for V, and the
reading is y·s/η, which ends at T/(1−(1+y)q/2) for Euler.

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
# Rules that draw θ_a given θ: what they read is that draw.
DRAWN = ("gibbs", "collapsed")


class Move(NamedTuple):
    """One step of δ: z = (δ, v) → Mz + `injected`·ξ + `kicked`·ζ, with ζ of variance V."""

    matrix: tuple[float, float, float, float]
    injected: tuple[float, float]
    kicked: tuple[float, float]

    def apply(self, spread: Spread, noise: tuple[float, float]) -> Spread:
        """Covariance after the step, which adds `noise` times one standard normal."""
        a, b, c, d = self.matrix
        dd, dv, vv = spread
        new = (
            a * a * dd + 2 * a * b * dv + b * b * vv,
            a * c * dd + (a * d + b * c) * dv + b * d * vv,
            c * c * dd + 2 * c * d * dv + d * d * vv,
        )
        return plus_square(new, noise)

    def push(self, state: tuple[float, float]) -> tuple[float, float]:
        """(δ, v) after the step, given one unit of gradient noise."""
        a, b, c, d = self.matrix
        delta, velocity = a * state[0] + b * state[1], c * state[0] + d * state[1]
        return delta + self.kicked[0], velocity + self.kicked[1]

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
        group: lr, num_data, eta, temperature, noise, momentum, guide_update and integrator are
            read.
        last_lr: lr of the step before, 0 for none: velocities are rescaled by √(lr/lr_last).
    """
    alpha, eta = units.step_size(group["lr"], group["num_data"]), group["eta"]
    q, heat = alpha / eta, units.heat_of(group)
    if group["guide_update"] in DRAWN:
        return Move((0.0, 0.0, 0.0, 0.0), (math.sqrt(eta * heat), 0.0), (0.0, 0.0))
    if group["guide_update"] == "exact":
        kept = math.exp(-2 * q)
        fresh = math.sqrt(-eta * heat * math.expm1(-4 * q))
        return Move((kept, 0.0, 0.0, 0.0), (fresh, 0.0), (kept * alpha, 0.0))
    mu, integrator, y = group["momentum"], integrator_of(group), replicas_of(group)
    pull, kick = (1 + y) * q, alpha / math.sqrt(y)
    noise = math.sqrt(2 * alpha * heat * (1 + 1 / y) * (1 - mu))  # that of θ and that of θ_a
    if integrator == "lm":
        carry = units.carried_momentum(1.0, group["lr"], last_lr)
        return Move((1 - pull, carry, 0.0, 0.0), (noise / 2, noise / 2), (kick, 0.0))
    if integrator == "baoab":
        carry, share = units.carried_momentum(1.0, group["lr"], last_lr), 2 / (1 + mu)
        matrix = (1 - pull, (1 + mu) * carry / 2, -pull * mu * share, mu * carry)
        return Move(matrix, (noise / 2, noise), (kick, mu * share * kick))
    if not mu:
        return Move((1 - pull, 0.0, 0.0, 0.0), (noise, 0.0), (kick, 0.0))
    carried = units.carried_momentum(mu, group["lr"], last_lr)
    return Move((1 - pull, carried, -pull, carried), (noise, noise), (kick, kick))


def integrator_of(group: Mapping[str, Any]) -> str:
    """The group's integrator; groups that older versions saved have only one."""
    return str(group.get("integrator", "euler"))


def replicas_of(group: Mapping[str, Any]) -> int:
    """Number of replicas of a group; groups that older versions saved have one."""
    return int(group.get("replicas", 1))


def curvature_factor(group: Mapping[str, Any], h: float) -> float:
    """Ratio of the stationary reading at a mean curvature h of the full energy to that at h = 0.

    Both at T = 1 and exact gradients, from the closed forms of `stationary`.

    >>> group = dict(lr=0.1, num_data=1, eta=0.5, momentum=0.0, guide_update="euler")
    >>> round(curvature_factor(group, 1.0), 4)  # 1.2583 against 1.25
    1.0066
    """
    alpha, eta = units.step_size(group["lr"], group["num_data"]), float(group["eta"])
    unbiased = group["guide_update"] in DRAWN or integrator_of(group) != "euler"
    if h == 0 or alpha == 0 or unbiased:
        return 1.0
    if group["guide_update"] == "exact":
        return stationary.exact_covariance(alpha, h, eta).difference / eta
    alpha /= 1 + float(group["momentum"])  # the variance with momentum is Euler's at α/(1+μ)
    y = replicas_of(group)
    if y > 1:
        flat = eta / y / (1 - (1 + y) * alpha / (2 * eta))
        return stationary.replica_covariance(alpha, h, eta, y).difference / flat
    return stationary.thermometer_factor(alpha, h, eta) / stationary.thermometer_factor(
        alpha, 0.0, eta
    )
