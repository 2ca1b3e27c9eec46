"""Every schedule value by value against its formula, and `Cyclical` against its definition."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entropy_mcmc import SGLD, EntropyMCMC, schedules
from entropy_mcmc.errors import ConfigError, StateError

STEPS = range(101)


def test_constant():
    assert [schedules.constant(0.3)(t) for t in STEPS] == [0.3] * 101


def test_linear():
    expected = [(100 - t) / 100 * (0.5 - 0.01) + 0.01 for t in STEPS]
    assert [schedules.linear(0.5, 0.01, 100)(t) for t in STEPS] == pytest.approx(expected)


def test_exponential():
    expected = [0.5 * (0.01 / 0.5) ** (t / 100) for t in STEPS]
    assert [schedules.exponential(0.5, 0.01, 100)(t) for t in STEPS] == pytest.approx(expected)


def test_step():
    expected = [0.5] * 30 + [0.05] * 30 + [0.005] * 30 + [0.0005] * 11
    assert [schedules.step(0.5, 30, 0.1)(t) for t in STEPS] == pytest.approx(expected)


@pytest.mark.parametrize("cycles", [1, 3, 4])
def test_cyclical_is_equation_one(cycles):
    # Zhang et al. 2020, Eq. 1, counts iterations k from 1.
    length = math.ceil(101 / cycles)
    expected = [
        0.5 / 2 * (math.cos(math.pi * ((k - 1) % length) / length) + 1) for k in range(1, 102)
    ]
    schedule = schedules.cyclical(0.5, 101, cycles)
    assert [schedule(t) for t in STEPS] == pytest.approx(expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: schedules.constant(-1.0),
        lambda: schedules.linear(-0.1, 0.0, 10),
        lambda: schedules.linear(0.1, 0.0, 0),
        lambda: schedules.exponential(0.1, 0.0, 10),
        lambda: schedules.step(0.1, 0),
        lambda: schedules.cyclical(0.1, 10, 0),
        lambda: schedules.constant(float("nan")),
    ],
)
def test_schedules_refuse_bad_numbers(make):
    with pytest.raises(ConfigError, match="must be"):
        make()


def make_sampler(*lrs):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(2))], "lr": lr} for lr in lrs or (0.2,)]
    return SGLD(groups, lr=0.1, num_data=10, seed=0)


def naive(total, cycles, burn_in, samples, warm_up=0.0):
    """Rows (lr factor, noise, due) written straight from the definition in `Cyclical`."""
    rows, rise = [], math.ceil(warm_up * (total // cycles))
    for k in range(cycles):
        start, end = k * total // cycles, (k + 1) * total // cycles
        n = end - start
        first = math.ceil(burn_in * n)
        due = {first - 1 + i * (n - first) // samples for i in range(1, samples + 1)}
        for j in range(n):
            factor = (1 + math.cos(math.pi * j / n)) / 2
            if k == 0 and j < rise:
                factor *= (j + 1) / rise
            rows.append((factor, j >= first, j in due))
    return rows


@given(
    total=st.integers(1, 120),
    cycles=st.integers(1, 9),
    burn_in=st.sampled_from([0.0, 0.25, 0.5, 0.8, 0.9]),
    samples=st.integers(1, 5),
    warm_up=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
)
def test_cyclical_equals_the_definition(total, cycles, burn_in, samples, warm_up):
    sampler = make_sampler()
    try:
        cycle = schedules.Cyclical(sampler, total, cycles, burn_in, samples, warm_up=warm_up)
    except ConfigError:
        lengths = [(k + 1) * total // cycles - k * total // cycles for k in range(cycles)]
        assert min(n - math.ceil(burn_in * n) for n in lengths) < samples
        return
    group, rows = sampler.param_groups[0], []
    for _ in range(total):
        lr, noise = group["lr"], group["noise"]
        rows.append((lr / 0.2, noise, cycle.step()))
    expected = naive(total, cycles, burn_in, samples, warm_up)
    assert [r[1:] for r in rows] == [r[1:] for r in expected]
    assert [r[0] for r in rows] == pytest.approx([r[0] for r in expected])
    assert sum(due for *_, due in rows) == cycles * samples
    assert rows[-1][2]
    with pytest.raises(StateError, match="total_steps"):
        cycle.step()


def replicated(y):
    param = torch.nn.Parameter(torch.zeros(2))
    return param, EntropyMCMC([param], lr=0.2, num_data=10, eta=1.0, replicas=y, seed=0)


@given(
    total=st.integers(4, 60),
    y=st.integers(1, 4),
    cycles=st.integers(1, 3),
    burn_in=st.sampled_from([0.0, 0.5, 0.8]),
    samples=st.integers(1, 3),
    warm_up=st.sampled_from([0.0, 0.3]),
)
def test_the_steps_of_replicas_are_their_rounds(total, y, cycles, burn_in, samples, warm_up):
    """S calls are ⌊S/y⌋ rounds by the definition; calls after the last keep its values."""
    param, sampler = replicated(y)
    options = {"cycles": cycles, "burn_in": burn_in, "samples_per_cycle": samples}
    try:
        cycle = schedules.Cyclical(sampler, total, warm_up=warm_up, **options)
    except ConfigError:
        lengths = [
            (k + 1) * (total // y) // cycles - k * (total // y) // cycles for k in range(cycles)
        ]
        assert min(n - math.ceil(burn_in * n) for n in lengths) < samples
        return
    rows = naive(total // y, cycles, burn_in, samples, warm_up)
    group, due = sampler.param_groups[0], 0
    for call in range(total):
        number = min(call // y, len(rows) - 1)
        factor, noisy, sampled = rows[number]
        assert (group["lr"] / 0.2, group["noise"]) == (pytest.approx(factor), noisy)
        assert cycle.cycle(call) == ((number + 1) * cycles - 1) // len(rows)
        param.grad = torch.zeros(2)
        sampler.step()
        if cycle.step():
            due += 1
            assert sampled
            assert sampler.current_replica == 0  # all have moved
            assert sampler.param_groups[0]["step"] == (call + 1) / y
    assert due == cycles * samples


def test_a_sample_waits_for_the_end_of_a_round(tmp_path):
    """A step that was skipped (by a gradient scaler) leaves the sampler in mid-round."""
    param, sampler = replicated(3)
    cycle = schedules.Cyclical(sampler, 24, cycles=1, burn_in=0.5, samples_per_cycle=2)
    due = []
    for call in range(24):
        if call != 4:
            param.grad = torch.zeros(2)
            sampler.step()
        if call == 19:  # a sample is owed: a new schedule goes on with it
            torch.save(cycle.state_dict(), tmp_path / "cycle.pt")
            cycle = schedules.Cyclical(sampler, 24, cycles=1, burn_in=0.5, samples_per_cycle=2)
            cycle.load_state_dict(torch.load(tmp_path / "cycle.pt", weights_only=True))
        if cycle.step():
            due.append((call, sampler.current_replica))
    # Due at calls 17 and 23; there is no call after the last to wait for.
    assert due == [(18, 0), (23, 2)]


def test_too_many_samples_for_the_rounds_of_replicas_are_refused():
    sampler = replicated(4)[1]
    with pytest.raises(ConfigError, match=r"at most 2, the noisy steps of a cycle of 4 rounds of"):
        schedules.Cyclical(sampler, 16, cycles=1, burn_in=0.5, samples_per_cycle=3)
    with pytest.raises(ConfigError, match=r"cycles must be at most 2, the rounds of 4 replicas in"):
        schedules.Cyclical(sampler, 11, cycles=3)
    message = (
        r"^total_steps must be at least 4, one round of the .* replicas, got total_steps=3; make"
    )
    with pytest.raises(ConfigError, match=message):
        schedules.Cyclical(sampler, 3, cycles=2)


def test_groups_keep_their_own_base_lr():
    sampler = make_sampler(0.2, 0.4)
    cycle = schedules.Cyclical(sampler, 10, cycles=1, burn_in=0.5)
    for _ in range(5):
        cycle.step()
    assert [g["lr"] for g in sampler.param_groups] == pytest.approx([0.1, 0.2])


def test_temperature_is_never_overwritten():
    sampler = make_sampler()
    cycle = schedules.Cyclical(sampler, 10, cycles=1)
    for _ in range(10):
        cycle.step()
        assert sampler.param_groups[0]["temperature"] == 1.0


def test_plain_optimizers_are_driven_too():
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.2)
    cycle = schedules.Cyclical(sgd, 10, cycles=2, samples_per_cycle=1)
    cycle.step()
    assert sgd.param_groups[0]["lr"] < 0.2
    assert "noise" not in sgd.param_groups[0]


def test_state_dict_continues(tmp_path):
    whole, part = make_sampler(), make_sampler()
    reference = schedules.Cyclical(whole, 20, cycles=2, burn_in=0.5)
    first = schedules.Cyclical(part, 20, cycles=2, burn_in=0.5)
    for _ in range(7):
        reference.step()
        first.step()
    torch.save(first.state_dict(), tmp_path / "cycle.pt")
    fresh = make_sampler()
    second = schedules.Cyclical(fresh, 5, cycles=1, burn_in=0.0)
    second.load_state_dict(torch.load(tmp_path / "cycle.pt", weights_only=True))
    for _ in range(13):
        assert fresh.param_groups[0]["lr"] == whole.param_groups[0]["lr"]
        assert fresh.param_groups[0]["noise"] == whole.param_groups[0]["noise"]
        assert second.step() == reference.step()


def test_state_dict_of_something_else_is_refused():
    cycle = schedules.Cyclical(make_sampler(), 10, cycles=1)
    with pytest.raises(ConfigError, match="entries"):
        cycle.load_state_dict({"last_epoch": 3})
    state = cycle.state_dict()
    with pytest.raises(ConfigError, match="groups"):
        schedules.Cyclical(make_sampler(0.1, 0.2), 10, cycles=1).load_state_dict(state)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"total_steps": 0}, "total_steps"),
        ({"total_steps": 3, "cycles": 4}, "cycles"),
        ({"total_steps": 10, "cycles": 1, "burn_in": 1.5}, "burn_in"),
        ({"total_steps": 10, "cycles": 1, "burn_in": float("nan")}, "burn_in"),
        ({"total_steps": 10, "cycles": 1, "samples_per_cycle": 3}, "samples_per_cycle"),
        ({"total_steps": 10, "cycles": 1, "samples_per_cycle": -1}, "samples_per_cycle"),
    ],
)
def test_cyclical_refuses(arguments, name):
    with pytest.raises(ConfigError, match=name):
        schedules.Cyclical(make_sampler(), **arguments)


def test_lr_falls_to_its_floor_during_burn_in_and_stays_there():
    sampler = SGLD([torch.nn.Parameter(torch.zeros(2))], lr=0.4, num_data=10, seed=0)
    cycle = schedules.Cyclical(sampler, 20, 2, burn_in=0.4, samples_per_cycle=2, floor=0.25)
    lrs = []
    for _ in range(20):
        lrs.append(sampler.param_groups[0]["lr"])
        cycle.step()
    # From the definition: a cosine from lr₀ to lr₀/4 over the 4 steps of burn-in, then lr₀/4.
    falling = [0.4 * (0.25 + 0.75 / 2 * (1 + math.cos(math.pi * j / 4))) for j in range(4)]
    assert lrs == pytest.approx([*falling, *[0.1] * 6] * 2)


@pytest.mark.parametrize("floor", [-0.1, 1.5])
def test_a_floor_outside_its_range_is_refused(floor):
    sampler = SGLD([torch.nn.Parameter(torch.zeros(2))], lr=0.4, num_data=10, seed=0)
    with pytest.raises(ConfigError, match=f"floor must be from 0 to 1.*{floor}"):
        schedules.Cyclical(sampler, 20, 2, floor=floor)


@pytest.mark.parametrize("warm_up", [-0.1, 1.1])
def test_a_warm_up_is_a_part_of_the_first_cycle(warm_up):
    with pytest.raises(ConfigError, match="warm_up must be from 0 to 1, a part of the first cycle"):
        schedules.Cyclical(make_sampler(), 10, cycles=1, burn_in=0.5, warm_up=warm_up)


def test_a_state_without_a_warm_up_is_read():
    cycle = schedules.Cyclical(make_sampler(), 10, cycles=1, burn_in=0.5)
    state = {name: value for name, value in cycle.state_dict().items() if name != "warm_up"}
    again = schedules.Cyclical(make_sampler(), 10, cycles=1, burn_in=0.5, warm_up=0.5)
    again.load_state_dict(state)
    assert again.warm_up == 0.0
    assert again.lr_factor(0) == 1.0
