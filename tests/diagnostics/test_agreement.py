"""Chains, cycles and halves that differ are found; independent draws are not flagged."""

import pytest
import torch

from entropy_mcmc.diagnostics import agreements, exchangeable, pooled_rhat, rhat_limit
from entropy_mcmc.diagnostics.agreement import labellings


def draws(chains, cycles, each, seed, apart=0.0, width=5):
    """Independent draws, chains `apart` standard deviations from each other, and their labels."""
    g = torch.Generator().manual_seed(seed)
    labels = [(c, k) for c in range(chains) for k in range(cycles) for _ in range(each)]
    shift = torch.tensor([apart * c for c, _ in labels])[:, None]
    return torch.randn(len(labels), width, generator=g) + shift, labels


@pytest.mark.parametrize(
    ("chains", "cycles", "each"), [(1, 1, 10), (1, 1, 20), (4, 1, 10), (1, 4, 4), (1, 4, 2)]
)
def test_independent_draws_are_not_flagged(chains, cycles, each):
    """At most 1 % of them; more than 5 of 100 would happen once in 1,900 tries at that rate.

    With R-hat above 1.05 as the limit, 10 draws were flagged in 97 of 100 cases.
    """
    verdicts = [agreements(*draws(chains, cycles, each, seed)) for seed in range(100)]
    assert sum(any(a.verdict == "differ" for a in one) for one in verdicts) <= 5
    assert all(len(one) == 1 for one in verdicts)


def test_predictions_that_all_move_together_are_not_flagged():
    """Twenty copies of one prediction scatter as much as one: its limit must hold for them."""
    flagged = 0
    for seed in range(100):
        values, labels = draws(2, 1, 10, seed, width=1)
        flagged += agreements(values.repeat(1, 20), labels)[0].verdict == "differ"
    assert flagged <= 5


@pytest.mark.parametrize(
    ("chains", "cycles", "each"), [(2, 1, 10), (2, 1, 4), (4, 1, 4), (4, 2, 2), (3, 1, 3)]
)
def test_chains_far_apart_differ(chains, cycles, each):
    """5 standard deviations apart."""
    agreement = agreements(*draws(chains, cycles, each, 0, apart=5.0))
    assert agreement[0].groups == "chains"
    assert agreement[0].verdict == "differ"
    assert agreement[0].rhat > 3
    assert f"{chains} chains" in str(agreement[0])


def test_cycles_and_halves_that_differ():
    values, labels = draws(1, 4, 4, 0)
    values += 5 * torch.tensor([cycle for _, cycle in labels])[:, None]
    (agreement,) = agreements(values, labels)
    assert (agreement.groups, agreement.verdict) == ("cycles", "differ")
    values, labels = draws(1, 1, 16, 0)
    values += torch.linspace(0, 6, 16)[:, None]
    (agreement,) = agreements(values, labels)
    assert (agreement.groups, agreement.verdict) == ("halves", "differ")
    # One draw in each of many cycles is one sequence.
    (agreement,) = agreements(values, [(0, cycle) for cycle in range(16)])
    assert (agreement.groups, agreement.verdict) == ("halves", "differ")


def test_a_certain_but_small_difference_is_said_to_be_small():
    """A third of a standard deviation in 200 predictions: p is tiny, R-hat small."""
    g = torch.Generator().manual_seed(0)
    labels = [(0, 0)] * 20 + [(1, 0)] * 20
    values = torch.randn(40, 200, generator=g)
    values[:20] += 0.35
    (agreement,) = agreements(values, labels)
    assert agreement.p <= 0.005
    assert agreement.rhat < 1.1
    assert agreement.verdict == "slightly"


def test_too_few_draws_are_said():
    """Two cycles of two draws have three distinct labellings: p is never below 1/3."""
    values, labels = draws(1, 2, 2, 0)
    values += 9 * torch.tensor([cycle for _, cycle in labels])[:, None]
    (agreement,) = agreements(values, labels)
    assert agreement.p == pytest.approx(1 / 3)
    assert agreement.verdict == "too few"
    assert agreements(values[:3], [(0, 0)] * 3) == ()


def test_small_problems_are_enumerated():
    """p is exact: 2 of 70 labellings of two groups of four are as tight as two clear groups."""
    values, labels = draws(2, 1, 4, 0, apart=50.0)
    assert labellings([4, 4]) == 70
    assert exchangeable(values, labels) == pytest.approx(2 / 70)


def test_the_limit_of_rhat_is_that_of_independent_draws():
    """2,000 R-hats of 2 chains of 10: 5 % above the 5 % limit, within 3 standard errors (1.5 %)."""
    labels = [0] * 10 + [1] * 10
    g = torch.Generator().manual_seed(0)
    rhat = [pooled_rhat(torch.randn(20, 1, generator=g), labels) for _ in range(2000)]
    above = sum(r > rhat_limit(2, 20, 0.05) for r in rhat) / 2000
    assert above == pytest.approx(0.05, abs=0.015)


def test_pooled_rhat_by_hand():
    """Within 0.5 + 0.5, between 2·(1 + 1) on one degree of freedom: F = 4/(1/2), n = 2."""
    values = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    assert pooled_rhat(values, [0, 0, 1, 1]) == pytest.approx(((8 + 1) / 2) ** 0.5)
    assert pooled_rhat(torch.ones(4, 2), [0, 0, 1, 1]) == 1.0
    assert pooled_rhat(torch.tensor([[0.0], [0.0], [1.0], [1.0]]), [0, 0, 1, 1]) == float("inf")
