"""Lr, noise and samples of a trajectory, and what the passes pay for."""

import math

import pytest
import torch

from entropy_mcmc import SGLD, schedules
from tournament import schedule
from tournament.settings import Settings


def settings(**values):
    return Settings("digits", 0, "sgd", 1, 0.1, **values)


def test_the_cosine_ends_near_zero():
    factors = [schedule.lr_factor(settings(), step, 100) for step in range(100)]
    assert factors[0] == 1.0
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] == pytest.approx((1 + math.cos(math.pi * 0.99)) / 2)


def test_swa_settles_at_its_floor():
    swa = settings(floor=0.2, settle=0.75)
    assert [schedule.lr_factor(swa, step, 100) for step in (0, 75, 99)] == [1.0, 0.2, 0.2]


def test_cycles_restart_and_cover_all_steps():
    four = settings(cycles=4, samples=1)
    starts = [s for s in range(10) if schedule.lr_factor(four, s, 10) == 1.0]
    assert starts == [0, 2, 5, 7]  # ⌊k·10/4⌋


@pytest.mark.parametrize(("steps", "cycles", "warm_up"), [(100, 1, 0.0), (97, 4, 0.3)])
def test_the_course_is_that_of_the_library(steps, cycles, warm_up):
    mine = settings(cycles=cycles, samples=4, warm_up=warm_up)
    sampler = SGLD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, num_data=10, seed=0)
    shape = {"burn_in": 0.5, "samples_per_cycle": 4, "warm_up": warm_up}
    theirs = schedules.Cyclical(sampler, steps, cycles, **shape)
    for step in range(steps):
        assert schedule.lr_factor(mine, step, steps) == pytest.approx(theirs.lr_factor(step))
        assert schedule.is_noisy(mine, step, steps) == theirs.is_noisy(step)
        assert schedule.is_sample(mine, step, steps) == theirs.is_due(step)


def test_fewer_noisy_steps_than_samples_keep_them_all():
    due = [s for s in range(4) if schedule.is_sample(settings(samples=8), s, 4)]
    assert due == [2, 3]


def test_the_refresh_is_paid_for():
    assert schedule.steps_of(24, 6000, 128) * 128 <= 24 * 6000
    paid = schedule.steps_of(24, 6000, 128, refreshed=6000) * 128 + 6000 / 3
    assert 24 * 6000 - 128 < paid <= 24 * 6000


def test_equal_settings_share_a_key():
    assert settings().key == settings().key
    assert settings().key != settings(samples=4).key


def test_an_unknown_optimizer_is_named():
    with pytest.raises(ValueError, match="'adam'"):
        Settings("digits", 0, "adam", 1, 0.1)
