"""What a sampler does on a quadratic energy, in closed form: no run, no search.

There every rule but NUTS, MCLMC and PSGLD is linear: s' = Ms + Bε, with the position first in s.
Each is written below as its equations; M and B are read off by feeding it unit vectors. Then
Σ = MΣMᵀ + BBᵀ, the autocovariances are MᵏΣ, and with C(k) those of the position

    ESS of the mean, per draw    C(0)/Σ_k C(k),  Σ_k C(k) = [(I−M)⁻¹Σ + Σ(I−M)⁻ᵀ − Σ]₀₀
    ESS of the squares           C(0)²/Σ_k C(k)²,  Σ_{k≥0} C(k)² = [S]₀₀,  S = MSMᵀ + wwᵀ, w = Σe₀

since squares of a Gaussian have the autocovariance 2C(k)².
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from effective import measure

Array = Any
Vectors = Sequence[Array]
Slope = Callable[[Array, Array], Array]  # position, its noise → gradient of the energy
Rule = Callable[[Vectors, Vectors, Slope], Vectors]
STABLE = 1 - 1e-9
COARSE = np.geomspace(1e-4, 8.0, 32)  # step sizes among which the best one is taken,
FINE = np.geomspace(1, COARSE[1] / COARSE[0], 13)  # and then from it up to the next, and down


@dataclass(frozen=True)
class Quadratic:
    """A quadratic energy, as the samplers' closed forms need it.

    Attributes:
        curvatures: Eigenvalues of the Hessian.
        directions: Eigenvectors as columns; None if the coordinates are the eigenvectors.
        gradient_variance: Variance of the gradient along each of them, from mini-batches.
        order: Coordinates by their variance, for the groups of the bias.
    """

    curvatures: Array
    directions: Array = None
    gradient_variance: Array = 0.0
    order: Any = None


@dataclass(frozen=True)
class Linear:
    """A rule with the number of its variables, its normals, and the gradients of a call."""

    rule: Rule
    variables: int
    normals: int = 1
    gradients: int = 1


@dataclass(frozen=True)
class Prediction:
    """ESS per gradient of the worst coordinate, and the largest bias over groups of them."""

    per_gradient: float
    bias: float
    variances: Array


def langevin(alpha: float) -> Linear:
    """SGLD, also that of posteriors and of blackjax."""

    def rule(s: Vectors, e: Vectors, slope: Slope) -> Vectors:
        return (s[0] - alpha * slope(s[0], e[-1]) + math.sqrt(2 * alpha) * e[0],)

    return Linear(rule, 1)


def momentum(alpha: float, mu: float, averaged: bool) -> Linear:
    """SGHMC in velocity form; averaged noise makes it BAOAB, and with μ = 0 LM."""
    sigma = math.sqrt(2 * alpha * (1 - mu))

    def rule(s: Vectors, e: Vectors, slope: Slope) -> Vectors:
        x, v, last = s
        noise = (last + e[0]) / 2 if averaged else e[0]
        v = mu * v - alpha * slope(x, e[-1]) + sigma * noise
        return x + v, v, e[0]

    return Linear(rule, 3)


def coupled(alpha: float, eta: float, mu: float = 0.0, averaged: bool = False) -> Linear:
    """EMCMC: θ and guide by the Euler rule, with momentum and averaged noise."""
    sigma = math.sqrt(2 * alpha * (1 - mu))

    def rule(s: Vectors, e: Vectors, slope: Slope) -> Vectors:
        x, a, v, w, last_x, last_a = s
        noise = [(last_x + e[0]) / 2, (last_a + e[1]) / 2] if averaged else e[:2]
        pull = (x - a) / eta
        v = mu * v - alpha * (slope(x, e[-1]) + pull) + sigma * noise[0]
        w = mu * w + alpha * pull + sigma * noise[1]
        return x + v, a + w, v, w, e[0], e[1]

    return Linear(rule, 6, 2)


def exact_guide(alpha: float, eta: float) -> Linear:
    """EMCMC with the exact move of the pair after a step of the gradient."""
    kept = math.exp(-2 * alpha / eta)
    spread = math.sqrt(eta * (1 - kept**2))

    def rule(s: Vectors, e: Vectors, slope: Slope) -> Vectors:
        x = s[0] - alpha * slope(s[0], e[-1])
        middle = (x + s[1]) / 2 + math.sqrt(alpha) * e[0]
        apart = kept * (x - s[1]) + spread * e[1]
        return middle + apart / 2, middle - apart / 2

    return Linear(rule, 2, 2)


def drawn_guide(alpha: float, eta: float) -> Linear:
    """EMCMC with θ_a drawn given θ after the Euler step of θ."""

    def rule(s: Vectors, e: Vectors, slope: Slope) -> Vectors:
        force = slope(s[0], e[-1]) + (s[0] - s[1]) / eta
        x = s[0] - alpha * force + math.sqrt(2 * alpha) * e[0]
        return x, x + math.sqrt(eta) * e[1]

    return Linear(rule, 2, 2)


def euler_momenta(dt: float, friction: float) -> Linear:
    """SGHMC of posteriors: both from the old values."""

    def rule(s: Vectors, e: Vectors, slope: Slope) -> Vectors:
        x, p = s
        kick = dt * slope(x, e[-1])
        return x + dt * p, p - kick - dt * friction * p + math.sqrt(2 * friction * dt) * e[0]

    return Linear(rule, 2)


def refreshed_momenta(dt: float, friction: float, inner: int) -> Linear:
    """SGHMC of blackjax: `inner` such steps with one mini-batch from momenta drawn anew."""
    once = euler_momenta(dt, friction).rule

    def rule(s: Vectors, e: Vectors, slope: Slope) -> Vectors:
        state: Vectors = (s[0], e[0])
        for i in range(inner):
            state = once(state, (e[1 + i], e[-1]), slope)
        return (state[0],)

    return Linear(rule, 1, inner + 1, inner)


def baoa(dt: float, friction: float) -> Linear:
    """BAOA of posteriors: kick, half a drift, friction with noise, half a drift."""
    kept = math.exp(-friction * dt)

    def rule(s: Vectors, e: Vectors, slope: Slope) -> Vectors:
        p = s[1] - dt * slope(s[0], e[-1])
        x = s[0] + dt / 2 * p
        p = kept * p + math.sqrt(1 - kept**2) * e[0]
        return x + dt / 2 * p, p

    return Linear(rule, 2)


def matrices(linear: Linear, quadratic: Quadratic) -> tuple[Array, Array]:
    """M and BBᵀ for each curvature, (direction, variable, variable)."""
    h = np.atleast_1d(np.asarray(quadratic.curvatures, dtype=np.float64))
    heat = np.broadcast_to(np.sqrt(quadratic.gradient_variance), h.shape)
    size = linear.variables + linear.normals + 1  # the last normal is the mini-batch's
    units = np.broadcast_to(np.eye(size)[:, None], (size, len(h), size))

    def slope(x: Array, g: Array) -> Array:
        return h[:, None] * x + heat[:, None] * g

    new = linear.rule(list(units[: linear.variables]), list(units[linear.variables :]), slope)
    both = np.stack(new, axis=1)
    noise = both[..., linear.variables :]
    return both[..., : linear.variables], noise @ noise.swapaxes(1, 2)


def lyapunov(drift: Array, added: Array) -> Array:
    """Σ = MΣMᵀ + Q, by doubling the number of terms of its series."""
    total, power = added, drift
    for _ in range(60):
        more = power @ total @ power.swapaxes(1, 2)
        total = total + more
        if np.abs(more).max() <= 1e-14 * np.abs(total).max():
            break
        power = power @ power
    return total


def predict(linear: Linear, quadratic: Quadratic) -> Prediction | None:
    """What a sampler gives; None if it is unstable."""
    drift, noise = matrices(linear, quadratic)
    if np.abs(np.linalg.eigvals(drift)).max() >= STABLE:
        return None
    sigma = lyapunov(drift, noise)
    variance = sigma[:, 0, 0]
    rest = np.linalg.solve(np.eye(drift.shape[1]) - drift, sigma)
    means = 2 * rest[:, 0, 0] - variance
    column = sigma[:, :, :1]
    squares = 2 * lyapunov(drift, column @ column.swapaxes(1, 2))[:, 0, 0] - variance**2
    spread, total, product = _coordinates(quadratic, variance, means, squares)
    ess = np.minimum(spread / total, spread**2 / product)
    exact = _coordinates(quadratic, 1 / np.asarray(quadratic.curvatures), means, squares)[0]
    order = np.argsort(exact) if quadratic.order is None else quadratic.order
    worst = measure.largest_of_groups(spread / exact - 1, order)
    return Prediction(float(np.clip(ess, 0, 1).min()) / linear.gradients, worst, spread)


def _coordinates(quadratic: Quadratic, variance: Array, means: Array, squares: Array) -> Any:
    """Of eigenvectors → of coordinates: weights are squares of the eigenvectors' entries.

    Squares of a sum of directions also have products of two of them; that part is bounded by
    Cauchy and Schwarz, (Σ_j w_j √(Σ_k C_j(k)²))², so that the ESS is not overrated.
    """
    if quadratic.directions is None:
        return variance, means, squares
    weights = np.asarray(quadratic.directions) ** 2
    return weights @ variance, weights @ means, (weights @ np.sqrt(squares)) ** 2


def best_step(make: Callable[[float], Linear], quadratic: Quadratic) -> tuple[float, Prediction]:
    """The step size with most effective samples per gradient and at most 5 % bias."""

    def accurate(steps: Array) -> list[tuple[float, Prediction]]:
        made = [(float(step), predict(make(step), quadratic)) for step in steps]
        return [(s, p) for s, p in made if p is not None and p.bias <= measure.TOLERATED]

    def best(found: list[tuple[float, Prediction]]) -> tuple[float, Prediction]:
        return max(found, key=lambda pair: pair[1].per_gradient)

    found = accurate(COARSE)
    if not found:
        raise ValueError(f"no step size from {COARSE[0]:g} has at most 5 % bias")
    step = best(found)[0]
    return best([*found, *accurate(step * FINE), *accurate(step / FINE)])
