"""Order and batches: permutations, pinned, any step at once, slices for ranks."""

import pytest
import torch

from entropy_mcmc.data import Batches, Dataset, load, order
from entropy_mcmc.errors import ConfigError


@pytest.mark.parametrize("n", [1, 2, 1000])
def test_order_is_a_permutation(n):
    assert order(7, 3, n).sort().values.tolist() == list(range(n))


def test_order_is_pinned():
    # Committed values: a run must find the same order on any machine and version.
    assert order(0, 0, 8).tolist() == PINNED[0]
    assert order(0, 1, 8).tolist() == PINNED[1]
    assert order(123456789, 42, 8).tolist() == PINNED[2]


PINNED = [[5, 3, 7, 2, 4, 1, 0, 6], [4, 3, 0, 1, 5, 6, 2, 7], [1, 6, 2, 7, 5, 4, 0, 3]]


def test_order_differs_by_epoch_and_seed():
    assert not torch.equal(order(0, 0, 100), order(0, 1, 100))
    assert not torch.equal(order(0, 0, 100), order(1, 0, 100))


def test_the_caller_may_change_the_order_it_got():
    order(0, 0, 10).zero_()
    assert order(0, 0, 10).sort().values.tolist() == list(range(10))


def test_every_place_of_the_order_is_uniform():
    # 20,000 epochs, seeds fixed: the first of 10 is a uniform draw, 4.5 standard errors for
    # 10 cells: false alarm below 1e-4.
    firsts = torch.tensor([int(order(0, epoch, 10)[0]) for epoch in range(20_000)])
    counts = torch.bincount(firsts, minlength=10)
    assert (counts - 2000).abs().max() < 4.5 * (20_000 * 0.1 * 0.9) ** 0.5


def test_an_epoch_serves_every_row_once():
    batches = Batches(load("digits"), 100, seed=1, drop_last=False)
    rows = torch.cat([batches.rows(step) for step in range(len(batches))])
    assert len(batches) == 15
    assert rows.sort().values.tolist() == list(range(1437))


def test_a_step_needs_no_earlier_step():
    batches = Batches(load("digits"), 64, seed=1, augmented=True)
    walked = [pair for epoch in range(3) for pair in batches.epoch(epoch)]
    step = 2 * len(batches) + 5
    fresh = Batches(load("digits"), 64, seed=1, augmented=True)
    assert all(map(torch.equal, fresh.batch(step), walked[step]))
    resumed = list(fresh.epoch(2, first=5))
    assert len(resumed) == len(batches) - 5
    assert all(map(torch.equal, resumed[0], walked[step]))


def test_batches_have_equal_size_unless_the_last_is_kept():
    dropped = Batches(load("digits"), 100)
    assert {len(y) for _, y in dropped} == {100}
    kept = [len(y) for _, y in Batches(load("digits"), 100, drop_last=False)]
    assert kept == [100] * 14 + [37]


@pytest.mark.parametrize("drop_last", [True, False])
def test_ranks_share_the_batch_of_one_process(drop_last):
    options = {"seed": 4, "augmented": True, "drop_last": drop_last}
    alone = Batches(load("digits"), 96, **options)
    ranks = [Batches(load("digits"), 96, rank=r, ranks=3, **options) for r in range(3)]
    for step in (0, len(alone) - 1, len(alone) + 4):
        parts = [rank.batch(step) for rank in ranks]
        for whole, pieces in zip(alone.batch(step), zip(*parts, strict=True), strict=True):
            assert torch.equal(torch.cat(pieces), whole)


def test_without_shuffle_the_order_is_the_file():
    digits = load("digits")
    batches = Batches(digits, 500, shuffle=False, drop_last=False)
    assert torch.equal(torch.cat([y for _, y in batches]), digits.targets)
    assert torch.equal(torch.cat([x for x, _ in batches]), digits.normalise(digits.inputs))


def test_bad_sizes_are_named():
    digits = load("digits", limit=10)
    with pytest.raises(ConfigError, match="batch_size=11"):
        Batches(digits, 11)
    with pytest.raises(ConfigError, match="multiple of ranks=3"):
        Batches(digits, 10, ranks=3)
    with pytest.raises(ConfigError, match="rank=2"):
        Batches(digits, 10, rank=2, ranks=2)
    table = Dataset("t", torch.zeros(4, 2), torch.zeros(4), "regression", None, (0, 0), (1, 1))
    with pytest.raises(ConfigError, match="needs images"):
        Batches(table, 2, augmented=True)
