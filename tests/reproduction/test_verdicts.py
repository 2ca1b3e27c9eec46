"""Verdicts: how often nothing is called something."""

import numpy as np
import pytest

from entropy_mcmc_reproduction.claims import Claim, verdicts
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS, NOT_RUN, UNDECIDED

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


def results_of(**by_label):
    """Results of labels, one number for each seed."""
    return {
        f"{label}-{seed}": {"measures": {"nll": nll}}
        for label, numbers in by_label.items()
        for seed, nll in enumerate(numbers)
    }


def test_families_are_corrected_apart():
    """The same p value counts once in a family of one, five times in one of five."""
    results = results_of(ours=[1.0, 1.1, 1.05, 0.9], rival=[1.1, 1.17, 1.18, 1.01])
    claims = [Claim("alone", "ours", "rival", family="main")]
    claims += [Claim(f"{i}", "ours", "rival", family="other") for i in range(5)]
    alone, *others = verdicts(claims, results)
    p = [float(v.measured.split("Holm p ")[1].split(",")[0]) for v in (alone, others[0])]
    assert p[1] == pytest.approx(5 * p[0], rel=0.05)
    assert alone.decision == HOLDS


@pytest.mark.parametrize(
    ("gap", "decision"), [(0.005, HOLDS), (0.012, UNDECIDED), (0.05, FAILS), (-0.05, FAILS)]
)
def test_a_claim_that_two_are_alike_is_judged_by_the_margin(gap, decision):
    """A difference that is decided and within the margin is alike; outside, it is not."""
    noise = [0.001, -0.001, 0.002, -0.002]
    ours = [1.0 + gap + 0.9 * abs(gap) * 1000 * n if gap == 0.012 else 1.0 + gap + n for n in noise]
    results = results_of(ours=ours, rival=[1.0] * 4)
    (verdict,) = verdicts([Claim("alike", "ours", "rival", alike=True)], results)
    assert verdict.decision == decision


def test_the_margin_of_a_claim_can_be_its_own():
    results = results_of(ours=[1.0, 1.03, 1.01], rival=[1.011, 1.022, 1.013])
    plain, wider = (Claim("x", "ours", "rival", margin=margin) for margin in (None, 0.05))
    assert verdicts([plain], results)[0].decision == UNDECIDED
    (found,) = verdicts([wider], results)
    assert (found.decision, found.margin) == (ALIKE, 0.05)
    assert found.parties == ["ours", "rival"]


def test_the_margin_of_a_small_nll_is_a_part_of_it():
    """A difference of 0.004 is alike where NLL is 1, and a twentieth of an NLL of 0.08."""
    noise = np.array([1e-3, -1e-3, 2e-3, -2e-3])
    large, small = (
        verdicts([Claim("x", "a", "b")], results_of(a=base + 0.004 + 2 * noise, b=[base] * 4))[0]
        for base in (1.0, 0.08)
    )
    assert (large.decision, large.margin) == (ALIKE, 0.01)
    assert (small.decision, small.margin) == (UNDECIDED, pytest.approx(0.002))
    assert "margin 0.002, 4 seeds" in small.measured


def test_a_difference_below_the_margin_can_be_decided_and_says_so():
    (found,) = verdicts(
        [Claim("x", "a", "b")], results_of(a=[1.0, 1.0, 1.0], b=[1.004, 1.0041, 1.0039])
    )
    assert (found.decision, found.small) == (HOLDS, True)
    assert found.decided == "**holds**, by less than the margin"
    (large,) = verdicts([Claim("x", "a", "b")], results_of(a=[1.0, 1.0], b=[1.04, 1.0401]))
    assert (large.decision, large.small, large.decided) == (HOLDS, False, "**holds**")


def test_a_claim_without_results_is_shown_as_not_run():
    """It is no member of its family: the others are corrected as if it were not there."""
    results = results_of(ours=[1.0, 1.1, 1.05, 0.9], rival=[1.1, 1.17, 1.18, 1.01])
    claims = [
        Claim("than x", "ours", "absent", paper="0.1 against 0.2"),
        Claim("y", "ours", "rival"),
    ]
    missing, made = verdicts(claims, results)
    assert (missing.decision, missing.paper, missing.effect) == (NOT_RUN, "0.1 against 0.2", None)
    assert made == verdicts(claims[1:], results)[0]
