"""Verdicts: how often nothing is called something."""

import numpy as np
import pytest

from entropy_mcmc_reproduction.text import FAILS, HOLDS, UNDECIDED, compared, decision

REPEATS = 4000


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_without_an_effect_one_claim_in_twenty_is_decided(seeds):
    draws = np.random.default_rng(seeds).normal(size=(2, REPEATS, seeds))
    made = [
        compared("nothing", a.tolist(), b.tolist(), lower=True).decision
        for a, b in zip(*draws, strict=True)
    ]
    share = np.mean([found != UNDECIDED for found in made])
    # Four standard errors: a false alarm once in 16,000 runs.
    assert share == pytest.approx(0.05, abs=4 * (0.05 * 0.95 / REPEATS) ** 0.5)


def test_two_standard_errors_of_three_seeds_decide_nothing():
    assert decision(2.5, 1.0, 3) == UNDECIDED
    assert decision(4.31, 1.0, 3) == HOLDS
    assert decision(-4.31, 1.0, 3) == FAILS
