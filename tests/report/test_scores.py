"""The numbers behind the figures, against the metrics and against naive versions."""

import math

import numpy as np
import pytest

from entropy_mcmc import metrics
from entropy_mcmc.evaluation import calibration_bins
from entropy_mcmc.report.figures.quality import wilson
from entropy_mcmc.report.member_scores import coverages, roc

RNG = np.random.default_rng(5)


def random_probs(rows=300, classes=4):
    """Calibrated up to noise: gaps of both signs, so that the number of bins matters."""
    probs = RNG.dirichlet(np.full(classes, 0.4), rows)
    return probs, np.array([RNG.choice(classes, p=row) for row in probs])


def test_bins_give_the_calibration_error():
    probs, targets = random_probs()
    bins = calibration_bins(probs, targets)
    assert bins[:, 2].sum() == len(targets)
    away = (np.abs(bins[:, 0] - bins[:, 1]) * bins[:, 2]).sum() / len(targets)
    assert away == pytest.approx(metrics.ece(probs, targets), abs=1e-12)


def test_area_under_the_roc_curve_is_the_auroc():
    known, other = RNG.normal(0, 1, 200).round(1), RNG.normal(0.7, 1, 150).round(1)  # ties
    alarms, hits = roc(known, other)
    assert (alarms[0], hits[0], alarms[-1], hits[-1]) == (0, 0, 1, 1)
    area = np.trapezoid(hits, alarms)
    assert area == pytest.approx(metrics.auroc(known, other), abs=1e-12)


def test_roc_counts_alarms_as_written():
    known, other = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0])
    points = {
        (float((known >= edge).mean()), float((other >= edge).mean()))
        for edge in (1.0, 2.0, 3.0, 4.0, 5.0)
    }
    actual = set(zip(*(values.tolist() for values in roc(known, other)), strict=True))
    assert {(round(a, 9), round(h, 9)) for a, h in actual} == {
        (round(a, 9), round(h, 9)) for a, h in points
    }


def test_coverage_of_a_known_distribution():
    # 20,000 exact draws: the standard error of a share is below 0.0036; 4.5 of them, 1 in 1e5.
    truth = np.random.default_rng(0).normal(2.0, 3.0, 20_000)
    for level, inside in coverages(np.full(20_000, 2.0), np.full(20_000, 9.0), truth):
        assert abs(inside - level) < 4.5 * math.sqrt(level * (1 - level) / 20_000)


@pytest.mark.parametrize(("right", "count"), [(0, 1), (1, 1), (3, 10), (10, 10), (400, 900)])
def test_wilson_ends_solve_its_equation(right, count):
    """|p̂ − p| = z·√(p(1−p)/n) at both ends."""
    share = right / count
    down, up = wilson(share, count)
    for end in (share - down, share + up):
        reach = math.sqrt(max(end * (1 - end), 0) / count)
        assert abs(share - end) == pytest.approx(reach, abs=1e-9)
