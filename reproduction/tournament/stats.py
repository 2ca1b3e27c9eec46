"""Statistics of the rules: paired intervals, Holm, equivalence, mean ranks, different networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]

MARGINS = {"nll": 0.01, "ece": 0.005, "auroc": 0.01}
LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences, its 95 % t interval, the two-sided p value, the upper bound.

    `upper` is the end of the one-sided 95 % interval, which "not worse" needs.
    """

    mean: float
    low: float
    high: float
    p: float
    upper: float


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Ours minus theirs over the same seeds, by Student's t.

    >>> round(paired([1.0, 2.0, 3.0], [0.0, 1.5, 1.0]).mean, 4)
    1.1667
    """
    differences = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)
    count = len(differences)
    if count < 2:
        raise ValueError(f"paired needs at least 2 seeds, got {count}")
    mean = float(differences.mean())
    error = float(differences.std(ddof=1)) / math.sqrt(count)
    if error == 0:
        return Difference(mean, mean, mean, float(mean == 0), mean)
    two_sided, one_sided = stats.t.ppf([1 - LEVEL / 2, 1 - LEVEL], count - 1)
    p = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    half = float(two_sided) * error
    return Difference(mean, mean - half, mean + half, p, mean + float(one_sided) * error)


def holm(p_values: Sequence[float]) -> Floats:
    """Adjusted p values of Holm's step-down correction.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    ranked = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[ranked] * (len(p) - np.arange(len(p))))
    adjusted = np.empty_like(p)
    adjusted[ranked] = np.minimum(1.0, stepped)
    return adjusted


def verdict(difference: Difference, adjusted_p: float, margin: float, lower_is_better: bool) -> str:
    """One of "better", "worse", "not worse" and "open": ours against theirs."""
    sign = 1.0 if lower_is_better else -1.0
    if adjusted_p < LEVEL:
        return "better" if sign * difference.mean < 0 else "worse"
    # The one-sided bound on the bad side: mirrored where larger is better.
    upper = difference.upper if lower_is_better else difference.upper - 2 * difference.mean
    return "not worse" if upper < margin else "open"


def ranks(values: Mapping[str, float], lower_is_better: bool) -> dict[str, float]:
    """Rank of every method on one task, 1 the best; ties share their mean rank."""
    sign = 1.0 if lower_is_better else -1.0
    order = stats.rankdata([sign * value for value in values.values()])
    return {name: float(rank) for name, rank in zip(values, order, strict=True)}


def mean_ranks(
    tasks: Sequence[Mapping[str, float]], lower_is_better: bool, draws: int = 10_000, seed: int = 0
) -> dict[str, tuple[float, float, float]]:
    """Mean rank of every method with its 95 % bootstrap interval over tasks.

    `tasks` holds for each task the methods' means; methods must be the same everywhere.
    """
    names = list(tasks[0])
    if any(set(task) != set(names) for task in tasks):
        raise ValueError("every task must have the same methods")
    table = np.array([[ranks(task, lower_is_better)[name] for name in names] for task in tasks])
    picks = np.random.default_rng(seed).integers(len(table), size=(draws, len(table)))
    low, high = np.quantile(table[picks].mean(axis=1), [0.025, 0.975], axis=0)
    means = table.mean(axis=0)
    return {name: (float(means[i]), float(low[i]), float(high[i])) for i, name in enumerate(names)}


def effective_networks(probs: Floats) -> float:
    """K of the rules, from probabilities (seeds, samples, rows, classes).

    The numerator is the expected variance over seeds of one sample picked at random for each
    seed, in closed form; the denominator the variance of the averages. Copies give 1.
    """
    mean, square = probs.mean(axis=1), np.square(probs).mean(axis=1)
    return float(_variance_of_one(mean, square) / _variance(mean))


def _variance_of_one(mean: Floats, square: Floats) -> float:
    n = len(mean)
    products = np.square(mean.sum(axis=0)) - np.square(mean).sum(axis=0)
    return float((square.mean(axis=0) - products / (n * (n - 1))).sum())


def _variance(mean: Floats) -> float:
    return float(mean.var(axis=0, ddof=1).sum())


def effective_interval(
    probs: Floats, draws: int = 1000, seed: int = 0
) -> tuple[float, float, float]:
    """K and its 95 % bootstrap interval over seeds.

    A seed drawn twice makes the variance of the averages too small, so each draw keeps the
    distinct seeds only and needs at least two of them.
    """
    picks = np.random.default_rng(seed).integers(len(probs), size=(draws, len(probs)))
    distinct = [np.unique(pick) for pick in picks]
    values = [effective_networks(probs[pick]) for pick in distinct if len(pick) > 1]
    low, high = np.quantile(values, [0.025, 0.975])
    return effective_networks(probs), float(low), float(high)


def effective_of_one_run(samples: int, within: float, between: float) -> float:
    """S/(1 + (S−1)ρ), ρ = 1 − distance within / distance between chains, from 0 to 1.

    >>> effective_of_one_run(4, within=0.0, between=1.0), effective_of_one_run(4, 1.0, 1.0)
    (1.0, 4.0)
    """
    rho = min(1.0, max(0.0, 1 - within / between))
    return samples / (1 + (samples - 1) * rho)
