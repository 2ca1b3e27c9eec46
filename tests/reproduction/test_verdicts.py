"""Verdicts: how often nothing is called something."""

import numpy as np
import pytest

from entropy_mcmc_reproduction.claims import Claim, verdicts
from entropy_mcmc_reproduction.text import FAILS, HOLDS

REPEATS, RIVALS = 1500, 4


@pytest.mark.parametrize("seeds", [3, 10])
def test_without_an_effect_one_family_in_twenty_decides_something(seeds):
    """Four rivals alike: Holm keeps the chance of any decision at 5 %, or below it."""
    draws = np.random.default_rng(seeds).normal(size=(REPEATS, RIVALS + 1, seeds))
    claims = [Claim(f"than {i}", "0", str(i)) for i in range(1, RIVALS + 1)]
    wrong = 0
    for family in draws:
        results = {
            f"{label}-{seed}": {"measures": {"nll": nll}}
            for label, values in enumerate(family)
            for seed, nll in enumerate(values)
        }
        wrong += any(v.decision in (HOLDS, FAILS) for v in verdicts(claims, results))
    # Four standard errors above 5 %: a false alarm less than once in 30,000 runs. Claims share
    # ours, so that decisions come together and families with one are fewer than 5 %.
    error = (0.05 * 0.95 / REPEATS) ** 0.5
    assert 0.02 < wrong / REPEATS < 0.05 + 4 * error
