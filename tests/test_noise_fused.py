"""The normals of the compiled path: the same integers, the same numbers to 1e-5, and their quality.

The quality tests run the polynomial Box-Muller uncompiled: the compiled kernel is the same source,
and one test here compares the two number by number.
"""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from entropy_mcmc import noise
from entropy_mcmc.samplers.kernel.compiled import OPTIONS
from entropy_mcmc.samplers.kernel.inductor import quiet_compiler, two_vectors_at_a_time

CPU = torch.device("cpu")
SIZE = 2**20


def draw(*, step=0, parameter=0, start=0, stride=1, seed=31, size=SIZE):
    """Normals of elements start, start+stride, …, as float64 arrays."""
    index = start + torch.arange(size, dtype=torch.int64) * stride
    x0, x1 = index.to(torch.int32), (parameter * 2**10 + (index >> 32)).to(torch.int32)
    pair = noise.compiled_normal_pair(noise.step_schedule(seed, step), x0, x1)
    return [x.double().numpy() for x in pair]


def z_score(a, b):
    return float((a * b).mean() * np.sqrt(a.size))


def test_compiled_integers_are_the_eager_ones_and_normals_agree():
    def both(words, x0, x1):
        bits = noise.threefry2x32(words.unbind(), x0, x1, noise.ELEMENT_ROUNDS)
        return *bits, *noise.polynomial_box_muller(*bits)

    schedule = noise.step_schedule(5, 10**9)
    x0, x1 = noise.counters(7, 2**32 - 500, 100_003, CPU)
    with quiet_compiler(), two_vectors_at_a_time():
        compiled = torch.compile(both, dynamic=True, fullgraph=True, options=OPTIONS)
        got = compiled(torch.tensor(schedule, dtype=torch.int32), x0, x1)
    bits = noise.threefry2x32(schedule, x0, x1, noise.ELEMENT_ROUNDS)
    assert all(torch.equal(a, b) for a, b in zip(got[:2], bits, strict=True))
    for a, b in zip(got[2:], noise.box_muller(*bits), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_polynomials_agree_with_libm_at_the_edges():
    edge = [0, 1, 2, 3, -1, -2, -3, 2**31 - 1, -(2**31), 2**30, -(2**30), 1518500249, 1518500250]
    words = torch.tensor(edge, dtype=torch.int32)
    x0, x1 = words.repeat_interleave(len(edge)), words.repeat(len(edge))
    for a, b in zip(noise.polynomial_box_muller(x0, x1), noise.box_muller(x0, x1), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_step_schedules_are_those_of_each_step():
    for seed, start, stream in [(0, 0, 0), (2**63 - 1, 2**32 - 2, 255), (9, 10**12, 3)]:
        columns = noise.step_schedules(seed, start, 5, stream).t().tolist()
        assert [tuple(c) for c in columns] == [
            noise.step_schedule(seed, start + i, stream) for i in range(5)
        ]


# |z| < 5 has a false-alarm rate of 6e-7; there are about 150 z-scores below: 1e-4 in all.


@pytest.fixture(scope="module")
def many():
    """6 steps, 10^9 apart, x 2^20 elements x 2 variables = 1.3e7 numbers."""
    return np.array([draw(step=s * 10**9) for s in range(6)])


def test_moments_and_distribution(many):
    x = many.ravel()
    for order, mean, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        assert abs(((x**order).mean() - mean) * np.sqrt(x.size / variance)) < 5
    assert stats.kstest(x[::4], "norm").pvalue > 1e-5  # false-alarm rate 1e-5


@pytest.mark.parametrize("square", [False, True])
def test_no_correlation_between_steps_far_apart(many, square):
    x = (many**2 - 1) / np.sqrt(2) if square else many
    for (i, j), a, b in itertools.product(itertools.combinations(range(6), 2), (0, 1), (0, 1)):
        assert abs(z_score(x[i, a], x[j, b])) < 5


@pytest.mark.parametrize("stride", [2**10, 2**16, 2**21 + 1, 2**22])
def test_long_strides_look_independent(stride):
    """At 2^20 elements the longest stride runs through 2^42 counters: all of one parameter's."""
    first, second = draw(stride=stride)
    for x in (first, second):
        assert abs(x.mean() * np.sqrt(x.size)) < 5
        assert abs((x**2 - 1).mean() * np.sqrt(x.size / 2)) < 5
        for lag in (1, 2, 64):
            assert abs(z_score(x[lag:], x[:-lag])) < 5
    assert abs(z_score(first, second)) < 5
    assert stats.kstest(first, "norm").pvalue > 1e-5


@pytest.mark.parametrize("start", [2**31, 2**32 - SIZE // 2, 2**33, 2**41])
def test_beyond_two_to_the_32_elements(start):
    here, there = draw(), draw(start=start)
    for a, b in itertools.product(here, there):
        assert abs(z_score(a, b)) < 5
        assert abs(z_score((a**2 - 1) / np.sqrt(2), (b**2 - 1) / np.sqrt(2))) < 5
