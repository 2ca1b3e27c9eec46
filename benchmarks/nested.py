"""Gradients to 5 % in W2 on quadratics: Entropy-MCMC against nested Entropy-SGLD and Entropy-SGD.

On a quadratic energy every rule is linear, so mean and covariance after k steps have a closed form
and nothing is simulated. Six problems: ten curvatures between m and M, T = 1, all chains from three
standard deviations off the mode. The distribution that is aimed at is that of the guide and of
Entropy-SGLD, N(0, 1/h + eta); "there" is W2 <= 5 % of its root mean square radius. Entropy-SGD is
an optimizer: "there" is a distance from the mode of the same size, either of its mean alone or, in
the root mean square, with the noise that the inner chain at T = 1 leaves. All step sizes, the
number of inner steps and their averaging rate are tuned on a grid, each for its own method;
"equal steps" takes the step size of Entropy-MCMC inside and outside. Counts are exact to 3 %.

Run: python benchmarks/nested.py
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PROBLEMS = ((1, 10, 1.0), (1, 10, 0.3), (1, 10, 0.1), (1, 100, 1.0), (1, 100, 0.1), (1, 100, 0.01))
CLOSE, START, SIZE = 0.05, 3.0, 10
STEPS = np.unique(np.round(1.03 ** np.arange(470)).astype(np.int64))  # to a million, by 3 %
INNER = (1, 2, 5, 10, 20, 50)
RATES = (0.05, 0.2, 0.5, 1.0)
NEVER = np.iinfo(np.int64).max


class Problem(NamedTuple):
    """Curvatures, coupling, and the standard deviations that are aimed at."""

    h: Array
    eta: float

    @property
    def sd(self) -> Array:
        """Standard deviations of the smoothed posterior, per direction."""
        return np.sqrt(1 / self.h + self.eta)


def problem(m: float, M: float, eta: float) -> Problem:
    """Ten curvatures from m to M, evenly spaced in their logarithm."""
    return Problem(np.geomspace(m, M, SIZE), eta)


def first(problem: Problem, gap: Array) -> Array:
    """Step at which a distance (…, steps) is first below the threshold."""
    near = gap <= CLOSE * np.sqrt((problem.sd**2).sum())
    return np.where(near.any(-1), STEPS[near.argmax(-1)], NEVER)


def distance(mean: Array, variance: Array, aim: Array) -> Array:
    """W2 between Gaussians with the same axes: N(mean, variance) and N(0, aim²)."""
    return np.sqrt((mean**2 + (np.sqrt(variance) - aim) ** 2).sum(-1))


def joint(problem: Problem, alphas: Array) -> Array:
    """Steps that the guide of Entropy-MCMC needs, for each step size.

    A = [[h+1/η, −1/η], [−1/η, 1/η]] has the same eigenvectors as I − αA: in them both coordinates
    are independent, x_k = (1−αλ)^k·x_0, Var_k = 2α(1−(1−αλ)^{2k})/(1−(1−αλ)²).
    """
    c = np.full(SIZE, 1 / problem.eta)
    A = np.stack([np.stack([problem.h + c, -c], -1), np.stack([-c, c], -1)], -2)
    values, vectors = np.linalg.eigh(A)
    start = START * problem.sd
    along = np.einsum("iab,i->ib", vectors, start)  # θ and θ_a both begin there
    guide = vectors[:, 1, :]
    shrink = 1 - alphas[:, None, None, None] * values  # (alphas, 1, size, 2)
    powers = shrink ** STEPS[:, None, None]
    heat = 2 * alphas[:, None, None, None] * (1 - powers**2) / (1 - shrink**2)
    mean = (guide * along * powers).sum(-1)
    return first(problem, distance(mean, (guide**2 * heat).sum(-1), problem.sd))


def inner(problem: Problem, alpha: float, steps: int, rate: float) -> tuple[Array, Array]:
    """E[mean | θ]/θ and Var[mean | θ] of an inner chain's moving average, by recursion."""
    keep = 1 - alpha * (problem.h + 1 / problem.eta)
    chain, average = np.ones(SIZE), np.ones(SIZE)
    vv, va, aa = np.zeros(SIZE), np.zeros(SIZE), np.zeros(SIZE)
    for _ in range(steps):
        chain = keep * chain + alpha / problem.eta
        vv, va = keep**2 * vv + 2 * alpha, keep * va
        aa = (1 - rate) ** 2 * aa + 2 * rate * (1 - rate) * va + rate**2 * vv
        va = (1 - rate) * va + rate * vv
        average = (1 - rate) * average + rate * chain
    return average, aa


def outer(
    problem: Problem, alphas: Array, average: Array, noise: Array, temperature: float
) -> tuple[int, int]:
    """Least outer steps θ ← θ − (α/η)(θ − mean) + √(2αT)ε: whole distribution, and mean alone."""
    a = alphas[:, None, None]
    shrink = 1 - a / problem.eta * (1 - average)
    stable = (np.abs(shrink) < 1).all((-1, -2))
    a, shrink = a[stable], shrink[stable]
    if not len(a):
        return NEVER, NEVER
    powers = shrink ** STEPS[:, None]
    mean = START * problem.sd * powers
    added = (a / problem.eta) ** 2 * noise + 2 * a * temperature
    variance = added * (1 - powers**2) / (1 - shrink**2)
    whole = first(problem, distance(mean, variance, problem.sd * (temperature > 0)))
    return int(whole.min()), int(first(problem, np.sqrt((mean**2).sum(-1))).min())


def nested(problem: Problem, temperature: float, equal: float | None = None) -> tuple[int, int]:
    """Least gradients of Entropy-SGLD (T = 1) or Entropy-SGD (T = 0): whole, and mean alone.

    With `equal`, inner and outer step sizes are that number; L and the averaging are tuned.
    """
    largest = 2 / (problem.h.max() + 1 / problem.eta)
    inside = largest * np.geomspace(1e-2, 0.9, 8) if equal is None else np.array([equal])
    outside = problem.eta * np.geomspace(1e-3, 20, 36) if equal is None else np.array([equal])
    best = [NEVER, NEVER]
    for alpha, steps, rate in itertools.product(inside, INNER, RATES):
        needed = outer(problem, outside, *inner(problem, alpha, steps, rate), temperature)
        best = [min(b, f * steps) if f < NEVER else b for b, f in zip(best, needed, strict=True)]
    return best[0], best[1]


def compare(m: float, M: float, eta: float) -> tuple[int, ...]:
    """Gradients: Entropy-MCMC, Entropy-SGLD; Entropy-SGD rms, mean, and mean at equal steps."""
    case = problem(m, M, eta)
    c = 1 / eta
    largest = 2 / ((M + 2 * c + np.sqrt(M**2 + 4 * c**2)) / 2)
    alphas = largest * np.geomspace(1e-3, 0.95, 120)
    counts = joint(case, alphas)
    equal = float(alphas[counts.argmin()])
    sgld, sgd = nested(case, 1.0)[0], nested(case, 0.0)
    return int(counts.min()), sgld, *sgd, nested(case, 0.0, equal)[1]


def main() -> None:
    """Print a line per problem; in brackets, times the gradients of Entropy-MCMC."""
    head = ("EMCMC", "Entropy-SGLD", "Entropy-SGD rms", "mean", "mean, equal steps")
    shown = "{:>3} {:>4} {:>5} {:>6} {:>14} {:>16} {:>12} {:>18}"
    print(shown.format("m", "M", "eta", *head))
    for m, M, eta in PROBLEMS:
        own, *others = compare(m, M, eta)
        cells = ["never" if n == NEVER else f"{n} ({n / own:.2g}x)" for n in others]
        print(shown.format(m, M, eta, own, *cells))


if __name__ == "__main__":
    main()
