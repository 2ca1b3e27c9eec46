"""The generator's known answers, its addressing, and the quality of the normals."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from entropy_mcmc import noise
from entropy_mcmc.errors import ConfigError

# Published known-answer vectors of Random123: rounds, key, counter, result.
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
KNOWN_ANSWERS = [
    (13, (0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
    (13, (0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0xFD36D048, 0x2D17272C)),
    (13, PI[2:], PI[:2], (0xBA3E4725, 0xF27D669E)),
    (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    (20, (0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
    (20, PI[2:], PI[:2], (0xC4923A9C, 0x483DF7A0)),
]


def words(*values):
    return [torch.tensor([noise._signed(v)], dtype=torch.int32) for v in values]


@pytest.mark.parametrize(("rounds", "key", "counter", "answer"), KNOWN_ANSWERS)
def test_known_answers(rounds, key, counter, answer):
    schedule = noise.key_schedule(key[0] + 2**32 * key[1], rounds)
    out = noise.threefry2x32(schedule, *words(*counter), rounds)
    assert tuple(int(x) % 2**32 for x in out) == answer


def naive_threefry(key, counter, rounds):
    """Straight from the paper, on Python integers."""
    mask = 0xFFFFFFFF
    ks = [key & mask, key >> 32, 0x1BD11BDA ^ (key & mask) ^ (key >> 32)]
    x = [(counter[0] + ks[0]) & mask, (counter[1] + ks[1]) & mask]
    for r in range(rounds):
        rot = noise.ROTATIONS[r % 8]
        x[0] = (x[0] + x[1]) & mask
        x[1] = ((x[1] << rot | x[1] >> (32 - rot)) & mask) ^ x[0]
        if (r + 1) % 4 == 0:
            i = (r + 1) // 4
            x[0] = (x[0] + ks[i % 3]) & mask
            x[1] = (x[1] + ks[(i + 1) % 3] + i) & mask
    return x


def test_bits_equal_the_naive_generator_at_every_address():
    for seed, step, stream, inner, parameter, element in [
        (0, 0, 0, 0, 0, 0),
        (2**63 - 1, 2**40 - 1, 255, 2**16 - 1, 2**22 - 1, 2**42 - 1),
        (12345, 10**9, 3, 17, 61, 2**32 + 5),
        (7, 2**32, 1, 0, 1, 2**31),
    ]:
        low, high = divmod(step + inner * 2**40 + stream * 2**56, 2**32)[::-1]
        k = naive_threefry(seed, (low, high), 20)
        expected = naive_threefry(
            k[0] + (k[1] << 32), (element % 2**32, parameter * 1024 + element // 2**32), 13
        )
        x0, x1 = noise.counters(parameter, element, 1, torch.device("cpu"))
        schedule = noise.step_schedule(seed, step, stream, inner)
        out = noise.threefry2x32(schedule, x0, x1, noise.ELEMENT_ROUNDS)
        assert [int(x) % 2**32 for x in out] == expected


def test_counters_carry_into_the_high_word(device):
    for start in (2**32 - 3, 2**31 - 3, 5 * 2**32 - 3, 0):
        x0, x1 = noise.counters(9, start, 6, device)
        pairs = list(zip(x0.tolist(), x1.expand_as(x0).tolist(), strict=True))
        assert pairs == [noise.counter_words(9, start + i) for i in range(6)]


def test_a_slice_is_the_slice_of_the_whole(device):
    schedule = noise.step_schedule(1, 2)
    whole = noise.normal_pair(schedule, *noise.counters(4, 0, 1000, device))
    part = noise.normal_pair(schedule, *noise.counters(4, 123, 50, device))
    for a, b in zip(whole, part, strict=True):
        torch.testing.assert_close(a[123:173], b, rtol=0, atol=0)


def test_keys_of_steps_streams_and_inner_steps_are_all_different():
    addresses = itertools.product(range(20), range(4), range(20))
    keys = {noise.step_schedule(5, step, stream, inner) for step, stream, inner in addresses}
    assert len(keys) == 20 * 4 * 20


@pytest.mark.parametrize("bad", [{"step": -1}, {"step": 2**40}, {"stream": 256}, {"inner": 2**16}])
def test_addresses_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        noise.step_schedule(**{"seed": 0, "step": 0, **bad})


@pytest.mark.parametrize("bad", [(2**22, 0), (0, 2**42), (-1, 0)])
def test_counters_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError, match="parameter"):
        noise.counter_words(*bad)


@pytest.mark.parametrize("bad", [-1, 2**63, 1.5, "a", True])
def test_seeds_out_of_range_are_refused(bad):
    with pytest.raises(ConfigError, match="seed"):
        noise.check_seed(bad)


def test_unseeded_draws_differ_and_follow_manual_seed():
    torch.manual_seed(3)
    first, second = noise.check_seed(None), noise.check_seed(None)
    torch.manual_seed(3)
    assert first != second
    assert noise.check_seed(None) == first


# Quality. Each test below is one or a few z-scores under a fixed seed; |z| < 5 has a false-alarm
# rate of 6e-7 each, about 1e-4 for all of them together.

SIZE = 2**20


def draw(device, *, step=0, parameter=0, start=0, stream=0, seed=20, size=SIZE):
    schedule = noise.step_schedule(seed, step, stream)
    pair = noise.normal_pair(schedule, *noise.counters(parameter, start, size, device))
    return [x.double().cpu().numpy() for x in pair]


def correlation_z(a, b):
    return float((a * b).mean() * np.sqrt(a.size))


@pytest.fixture(scope="module")
def ten_million():
    """10 steps x 2^20 elements x 2 variables = 2.1e7 numbers."""
    return np.array([draw(torch.device("cpu"), step=s) for s in range(10)])


def test_moments_to_order_four(ten_million):
    x = ten_million.ravel()
    assert x.size >= 10**7
    for order, mean, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        z = ((x**order).mean() - mean) * np.sqrt(x.size / variance)
        assert abs(z) < 5, f"moment {order}: z = {z:.2f}"


@pytest.mark.parametrize("variable", [0, 1])
def test_kolmogorov_smirnov(ten_million, variable):
    x = ten_million[:, variable].ravel()
    assert stats.kstest(x, "norm").pvalue > 1e-5  # false-alarm rate 1e-5


def test_tails(ten_million):
    x = np.abs(ten_million.ravel())
    for threshold in (3.0, 4.0, 4.8):
        p = 2 * stats.norm.sf(threshold)
        z = ((x > threshold).sum() - p * x.size) / np.sqrt(p * x.size)
        assert abs(z) < 5, f"beyond {threshold}: z = {z:.2f}"
    assert x.max() < 6.67


@pytest.mark.parametrize("square", [False, True])
def test_no_correlation_between_elements_steps_and_variables(ten_million, square):
    x = (ten_million**2 - 1) / np.sqrt(2) if square else ten_million
    for lag in (1, 2, 8, 64, 4096):
        assert abs(correlation_z(x[:, 0, lag:].ravel(), x[:, 0, :-lag].ravel())) < 5
        assert abs(correlation_z(x[:, 1, lag:].ravel(), x[:, 0, :-lag].ravel())) < 5
    for steps in (1, 2, 7):
        for a, b in itertools.product((0, 1), (0, 1)):
            assert abs(correlation_z(x[steps:, a].ravel(), x[:-steps, b].ravel())) < 5
    assert abs(correlation_z(x[:, 0].ravel(), x[:, 1].ravel())) < 5


@pytest.mark.parametrize(
    "other",
    [
        {"parameter": 1},
        {"parameter": 2**21},
        {"step": 10**9},
        {"step": 2**32},
        {"start": 2**32},
        {"start": 2**41},
        {"stream": 1},
        {"seed": 21},
        {"seed": 20 + 2**32},
    ],
)
def test_no_correlation_with_other_addresses(other):
    here, there = draw(torch.device("cpu")), draw(torch.device("cpu"), **other)
    for a, b in itertools.product(here, there):
        assert abs(correlation_z(a, b)) < 5
        assert abs(correlation_z((a**2 - 1) / np.sqrt(2), (b**2 - 1) / np.sqrt(2))) < 5


@pytest.mark.parametrize("keys", [1, 3])
def test_eager_forms_give_the_integers_of_the_plain_one(keys):
    """NumPy's and torch's in-place forms, at the edges of signed words, for one key and several."""
    edges = torch.tensor([0, 1, -1, 2**31 - 1, -(2**31), 0x1BD11BDA], dtype=torch.int32)
    low, high = edges.repeat(6), edges.repeat_interleave(6)
    words = noise.step_schedule(seed=2**62 + 1, step=2**39 + 5)
    if keys > 1:
        columns = [noise.step_schedules(seed, 2**33, 1) for seed in range(keys)]
        words = torch.stack(columns, dim=-1)[:, 0, :, None].unbind()
        low, high = low.expand(keys, -1), high[None]
    before = low.clone(), high.clone()
    expected = noise.threefry2x32(words, low, high, noise.ELEMENT_ROUNDS)
    for form in (noise._threefry_of_numpy, noise._threefry_of_torch):
        result = form(words, low, high, noise.ELEMENT_ROUNDS)
        assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))
        assert torch.equal(low, before[0])
        assert torch.equal(high, before[1])
