"""Statistics of the tournament against closed forms and scipy."""

import itertools

import numpy as np
import pytest
from scipy import stats as reference

from tournament import stats


def test_paired_is_the_paired_t_test():
    draws = np.random.default_rng(0)
    ours, theirs = draws.normal(size=10), draws.normal(size=10) + 0.3
    difference = stats.paired(ours, theirs)
    expected = reference.ttest_rel(ours, theirs)
    interval = expected.confidence_interval(0.95)
    assert difference.p == pytest.approx(expected.pvalue)
    assert (difference.low, difference.high) == pytest.approx((interval.low, interval.high))
    assert difference.upper == pytest.approx(
        reference.ttest_rel(ours, theirs, alternative="less").confidence_interval(0.95).high
    )


def test_paired_of_equal_runs_decides_nothing():
    difference = stats.paired([1.0, 2.0], [1.0, 2.0])
    assert (difference.mean, difference.p) == (0.0, 1.0)


def test_a_constant_difference_is_decided():
    assert stats.paired([1.0, 2.0], [0.5, 1.5]).p == 0.0


def test_paired_needs_two_seeds():
    with pytest.raises(ValueError, match="at least 2 seeds, got 1"):
        stats.paired([1.0], [2.0])


def naive_holm(p):
    adjusted = []
    for value in p:
        smaller = sorted(p)[: sorted(p).index(value) + 1]
        adjusted.append(min(1.0, max((len(p) - i) * q for i, q in enumerate(smaller))))
    return adjusted


def test_holm_is_its_definition():
    for p in itertools.permutations([0.001, 0.012, 0.02, 0.8]):
        assert stats.holm(p).tolist() == pytest.approx(naive_holm(p))


@pytest.mark.parametrize(
    ("ours", "lower_is_better", "expected"),
    [
        ([0.1, 0.11, 0.12, 0.1], True, "better"),
        ([0.1, 0.11, 0.12, 0.1], False, "worse"),
        ([0.5, 0.51, 0.49, 0.5], True, "not worse"),
        ([0.5, 0.51, 0.49, 0.5], False, "not worse"),
        ([0.4, 0.7, 0.3, 0.6], True, "open"),
        ([0.4, 0.7, 0.3, 0.6], False, "open"),
    ],
)
def test_verdicts(ours, lower_is_better, expected):
    difference = stats.paired(ours, [0.5, 0.505, 0.495, 0.5])
    assert stats.verdict(difference, difference.p, 0.02, lower_is_better) == expected


def test_worse_within_the_margin_is_still_worse():
    difference = stats.paired([0.503, 0.5031, 0.5029], [0.5, 0.5, 0.5])
    assert stats.verdict(difference, difference.p, 0.01, True) == "worse"


def test_ranks_share_ties():
    values = {"a": 0.3, "b": 0.1, "c": 0.3}
    assert stats.ranks(values, True) == {"a": 2.5, "b": 1.0, "c": 2.5}
    assert stats.ranks(values, False) == {"a": 1.5, "b": 3.0, "c": 1.5}


def test_mean_ranks_of_unanimous_tasks_have_no_width():
    tasks = [{"a": 0.1, "b": 0.2}] * 4
    assert stats.mean_ranks(tasks, True) == {"a": (1.0, 1.0, 1.0), "b": (2.0, 2.0, 2.0)}


def test_mean_ranks_carry_the_doubt_of_few_tasks():
    tasks = [{"a": 0.1, "b": 0.2}, {"a": 0.2, "b": 0.1}]
    assert stats.mean_ranks(tasks, True)["a"] == (1.5, 1.0, 2.0)


def test_mean_ranks_need_the_same_methods():
    with pytest.raises(ValueError, match="same methods"):
        stats.mean_ranks([{"a": 1.0}, {"b": 1.0}], True)


def test_copies_are_one_network():
    one = np.random.default_rng(0).uniform(size=(6, 1, 20, 3))
    assert stats.effective_networks(np.repeat(one, 4, axis=1)) == pytest.approx(1.0)


def test_independent_networks_count_fully():
    # K of 4 independent networks: relative sd about sqrt(2/(99·3000))·√2 = 0.4 %; 5 sd, 1 in 10⁶.
    probs = np.random.default_rng(1).uniform(size=(100, 4, 1000, 3))
    assert stats.effective_networks(probs) == pytest.approx(4.0, rel=0.02)


def test_correlated_networks_follow_the_formula():
    # Variance s² shared within a seed and r² of each sample: K = (s² + r²)/(s² + r²/S).
    draws = np.random.default_rng(2)
    shared, own = draws.normal(size=(200, 1, 800, 1)), draws.normal(size=(200, 8, 800, 1))
    expected = (1 + 4) / (1 + 4 / 8)
    assert stats.effective_networks(shared + 2 * own) == pytest.approx(expected, rel=0.03)


def test_the_closed_form_is_the_mean_over_random_picks():
    probs = np.random.default_rng(3).uniform(size=(3, 2, 5, 2))
    picks = itertools.product(range(2), repeat=3)
    ones = [probs[range(3), pick].var(axis=0, ddof=1).sum() for pick in picks]
    average = probs.mean(axis=1).var(axis=0, ddof=1).sum()
    assert stats.effective_networks(probs) == pytest.approx(np.mean(ones) / average)


def test_the_interval_of_k_covers_it():
    probs = np.random.default_rng(4).uniform(size=(10, 4, 50, 2))
    k, low, high = stats.effective_interval(probs, draws=200)
    assert low < k < high
