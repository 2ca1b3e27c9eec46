"""Buckets cover every element once, and the finite check sees what it must."""

import itertools

import pytest
import torch

from entropy_mcmc import noise
from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.samplers import SGLD
from entropy_mcmc.samplers.kernel import compiled
from entropy_mcmc.samplers.kernel.advance import advance
from entropy_mcmc.samplers.kernel.finite_gradients import FiniteWatch
from entropy_mcmc.samplers.kernel.tensor_buckets import (
    MERGED,
    SMALL,
    Slot,
    merged_counters,
    plan,
    slot,
)
from entropy_mcmc.samplers.rule import Update
from entropy_mcmc.samplers.sgld import Coefficients, Variables


def test_every_slot_is_in_exactly_one_bucket():
    sizes = [10, SMALL, SMALL - 1, 3, 10**6, 0, *([SMALL - 1] * 40)]
    slots = tuple(Slot(i, 0, size) for i, size in enumerate(sizes))
    buckets = plan(slots)
    assert sorted(i for b in buckets for i in b.members) == list(range(len(sizes)))
    for bucket in buckets:
        assert bucket.slots == tuple(slots[i] for i in bucket.members)
        if len(bucket.members) > 1:
            assert sum(s.size for s in bucket.slots) <= MERGED


def test_small_tensors_of_different_devices_are_not_merged():
    """Devices are only named here, so that it is shown on a machine that has none of them."""
    first, second = torch.device("cuda:0"), torch.device("cuda:1")
    homes = [first, second, first, second, first]
    sizes = [10, 20, SMALL, 30, 40]
    slots = tuple(Slot(i, 0, s, h) for i, (s, h) in enumerate(zip(sizes, homes, strict=True)))
    assert [bucket.members for bucket in plan(slots)] == [(2,), (0, 4), (1, 3)]


def test_one_group_on_two_devices_steps_like_its_parts():
    """`meta` stands for the other device: it computes nothing, but refuses to be mixed."""

    def stepped(*others):
        mine = torch.arange(5.0).requires_grad_()
        params = [mine, *others]
        for param in params:
            param.grad = torch.ones_like(param)
        sampler = SGLD(params, 0.1, num_data=10, seed=0, check_every=0, fused=False)
        sampler.step()
        return mine.detach()

    other = torch.zeros(7, device="meta", requires_grad=True)
    assert torch.equal(stepped(), stepped(other))


def test_merged_counters_are_those_of_each_tensor(device):
    slots = (Slot(4, 0, 3), Slot(9, 2**32 - 2, 4))
    x0, x1 = merged_counters(slots, device)
    expected = [noise.counter_words(4, i) for i in range(3)]
    expected += [noise.counter_words(9, 2**32 - 2 + i) for i in range(4)]
    assert list(zip(x0.tolist(), x1.tolist(), strict=True)) == expected


def test_a_plain_parameter_owns_all_its_elements():
    assert slot(3, torch.zeros(4, 5)) == Slot(3, 0, 20, torch.device("cpu"))


def test_ranges_never_cross_a_multiple_of_2_30():
    for start, size in [(0, 5), (2**30 - 1, 3), (2**32 - 7, 2**31), (5, 2**30)]:
        ranges = compiled._ranges(start, size)
        assert ranges[0][0] == start
        assert sum(length for _, length in ranges) == size
        for (a, length), (b, _) in itertools.pairwise(ranges):
            assert a + length == b
        assert all(a // 2**30 == (a + n - 1) // 2**30 for a, n in ranges)


def test_non_contiguous_and_empty_tensors_move(device):
    theta = torch.arange(12.0, device=device).reshape(3, 4).t()
    empty = torch.zeros(0, device=device)
    grads = [torch.ones(4, 3, device=device), empty.clone()]

    def down(v, grad, eps, c):
        return Variables(v.theta - c.lr * grad)

    expected = theta - 2.0
    slots = (Slot(0, 0, 12), Slot(1, 0, 0))
    update = Update(down, Variables, Coefficients(2.0, 0.0, 0.0), normals=0)
    advance(update, [[theta, empty]], [grads], None, slots, fused=False)
    assert torch.equal(theta, expected)


def look(watch, grads, step):
    watch.record(list(range(len(grads))), grads, step)
    watch.report()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_bad_element_is_seen_and_named(device, bad, dtype):
    grads = [torch.randn(1000, device=device).to(dtype) for _ in range(3)]
    watch = FiniteWatch(["a", "b", "c"])
    watch.record([0, 1, 2], grads, 6)
    watch.report()
    grads[1][77] = bad
    with pytest.raises(NonFiniteError, match="gradient of b is NaN or infinite at step 7"):
        look(watch, grads, 7)


def test_opposite_infinities_do_not_cancel(device):
    grad = torch.zeros(100, device=device)
    grad[3], grad[4] = float("inf"), -float("inf")
    watch = FiniteWatch(["a"])
    with pytest.raises(NonFiniteError):
        look(watch, [grad], 1)


def test_a_sum_that_overflows_is_no_alarm(device):
    watch = FiniteWatch(["a"])
    watch.record([0], [torch.full((1000,), 3e38, device=device)], 1)
    watch.report()
    assert all(int(first.min()) > 10**9 for first in watch.first_bad.values())
