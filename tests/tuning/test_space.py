"""Axes: logarithmic, around the recipe, wider when the best value is at an end."""

import math

import pytest

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.tuning.options import TuneConfig
from entropy_mcmc.tuning.space import KNOBS, axis, ends, widened


def test_the_first_range_is_around_the_recipe():
    searched = axis("prior_variance", 0.04)
    assert searched.value(searched.low) == pytest.approx(0.004)
    assert searched.value(searched.high) == pytest.approx(0.4)


def test_momentum_is_searched_as_one_minus_momentum():
    searched = axis("momentum", 0.9)
    assert sorted((searched.value(searched.low), searched.value(searched.high))) == [0.6, 0.975]
    # 0 is a limit, not a point at infinity.
    still = axis("momentum", 0.0)
    assert still.value(still.high) == 0.0
    assert still.on_edge(0.0) == 0


@pytest.mark.parametrize("name", KNOBS)
def test_values_and_places_are_inverse(name):
    start = 0.5
    searched = axis(name, start)
    for part in (0.0, 0.3, 1.0):
        place = searched.low + part * (searched.high - searched.low)
        assert searched.place(searched.value(place)) == pytest.approx(place, abs=1e-3)


@pytest.mark.parametrize(("value", "side"), [(0.0126, -1), (0.1, 0), (0.39, 1)])
def test_an_end_is_noticed(value, side):
    assert axis("lr", 0.1).on_edge(value) == side


def test_the_range_is_widened_at_the_end_where_the_best_is():
    space = [axis("lr", 0.1), axis("temperature", 0.02)]
    wider, probe = widened(space, {"lr": 0.4, "temperature": 0.02})
    assert wider[0].low == space[0].low
    assert wider[0].high == pytest.approx(space[0].high + 0.5 * math.log(32))
    assert wider[1] == space[1]
    assert probe["temperature"] == 0.02
    assert 0.4 < probe["lr"] < wider[0].value(wider[0].high)


def test_nothing_is_widened_in_the_middle():
    space = [axis("lr", 0.1)]
    assert widened(space, {"lr": 0.1}) == (space, None)


def test_a_range_of_the_users_is_kept():
    space = [axis("lr", 0.1, [0.05, 0.2])]
    assert (space[0].low, space[0].high) == ends("lr", 0.05, 0.2)
    assert widened(space, {"lr": 0.2}) == (space, None)


def test_no_range_leaves_what_can_work():
    searched = axis("horizon", 1.0)
    assert searched.value(searched.high) == 2.0
    assert searched.on_edge(2.0) == 0


def test_a_start_that_cannot_be_searched_from():
    with pytest.raises(ConfigError, match=r"temperature cannot be searched from 0\.0"):
        axis("temperature", 0.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trials": 0}, "trials must be a whole number of at least 1, got trials=0"),
        ({"validation": 1.0}, "validation must be less than 1"),
        ({"validation": -0.2}, "validation must be greater than 0"),
        ({"workers": 0}, "workers must be a whole number"),
        ({"search": ["speed"]}, "search knows lr, .*got 'speed'"),
        ({"search": []}, "search must name something"),
        ({"ranges": {"speed": [0, 1]}}, "search knows"),
        ({"ranges": {"lr": [0.3, 0.1]}}, r"low < high .*got \[0\.3, 0\.1\]"),
        ({"ranges": {"lr": [0.1]}}, "two ends"),
        ({"ranges": {"lr": "0.1, 0.3"}}, "must be a pair"),
        ({"ranges": {"lr": [0.1, "x"]}}, "must be a Python number"),
        ({"ranges": {"momentum": [0.5, 1.0]}}, r"≤ 0\.998"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ConfigError, match=words):
        TuneConfig(**options)
