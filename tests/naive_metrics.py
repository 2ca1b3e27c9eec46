"""Metrics written from their definitions, one example at a time, and problems to try them on."""

import math
from fractions import Fraction

import numpy as np


def random_problem(seed, n=60, classes=4, sharpness=2.0):
    """Targets drawn from the rows: gaps of both signs, so that the binning matters."""
    generator = np.random.default_rng(seed)
    logits = sharpness * generator.normal(size=(n, classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return probs, np.array([generator.choice(classes, p=row) for row in probs])


def tied_problem(seed, n=37, classes=3):
    """Few distinct confidences, on bin edges too, with probabilities 0 and 1 among them."""
    generator = np.random.default_rng(seed)
    rows = np.array([[1.0, 0, 0], [0, 0.8, 0.2], [0.4, 0.2, 0.4], [0.2, 0.2, 0.6], [0, 1, 0]])
    targets = generator.integers(classes, size=n)
    return rows[generator.integers(len(rows), size=n)], targets


PROBLEMS = [
    *(random_problem(seed) for seed in range(4)),
    *((random_problem(seed, n=7, sharpness=30.0)[0], np.arange(7) % 4) for seed in range(4, 7)),
    *(tied_problem(seed) for seed in range(7, 11)),
    (np.array([[0.25] * 4]), np.array([3])),
    (np.ones((3, 1)), np.zeros(3, dtype=int)),
]


def naive_top(row):
    best = 0
    for index in range(len(row)):
        if row[index] > row[best]:
            best = index
    return best


def naive_accuracy(probs, targets):
    hits = [naive_top(row) == y for row, y in zip(probs, targets, strict=True)]
    return sum(hits) / len(hits)


def naive_nll(probs, targets):
    terms = [
        -math.log(row[y]) if row[y] > 0 else math.inf for row, y in zip(probs, targets, strict=True)
    ]
    return math.fsum(terms) / len(terms)


def naive_brier(probs, targets):
    return math.fsum(
        (p - (k == y)) ** 2
        for row, y in zip(probs, targets, strict=True)
        for k, p in enumerate(row)
    ) / len(targets)


def naive_ece_width(probs, targets, bins):
    total = 0.0
    for k in range(bins):
        low, high = k / bins, (k + 1) / bins
        gap = math.fsum(
            max(row) - (naive_top(row) == y)
            for row, y in zip(probs, targets, strict=True)
            if low < max(row) <= high
        )
        total += abs(gap)
    return total / len(targets)


def naive_ece_mass(probs, targets, bins):
    """Exact rational arithmetic; a tied row has the mean accuracy of the rows tied with it."""
    rows = sorted((float(max(r)), naive_top(r) == y) for r, y in zip(probs, targets, strict=True))
    n, total = len(rows), Fraction(0)
    for k in range(bins):
        gap = Fraction(0)
        for confidence, _ in rows[k * n // bins : (k + 1) * n // bins]:
            tied = [hit for other, hit in rows if other == confidence]
            gap += Fraction(confidence) - Fraction(sum(tied), len(tied))
        total += abs(gap)
    return float(total / n)


def naive_auroc(inside, outside):
    wins = sum((o > i) + 0.5 * (o == i) for o in outside for i in inside)
    return wins / (len(inside) * len(outside))


def naive_aupr(inside, outside, positive):
    """Σ (recall step)·precision over the distinct thresholds, strictest first."""
    yes, no = (
        (outside, inside) if positive == "out" else ([-s for s in inside], [-s for s in outside])
    )
    area, recall_before = 0.0, 0.0
    for threshold in sorted({*yes, *no}, reverse=True):
        hits = sum(s >= threshold for s in yes)
        alarms = sum(s >= threshold for s in no)
        area += (hits / len(yes) - recall_before) * hits / (hits + alarms)
        recall_before = hits / len(yes)
    return area


def naive_fpr95(inside, outside, positive):
    yes, no = (
        (outside, inside) if positive == "out" else ([-s for s in inside], [-s for s in outside])
    )
    rates = [
        sum(s >= threshold for s in no) / len(no)
        for threshold in {*yes, *no}
        if 20 * sum(s >= threshold for s in yes) >= 19 * len(yes)
    ]
    return min(rates)


def naive_entropy(row):
    return -math.fsum(p * math.log(p) for p in row if p > 0)
