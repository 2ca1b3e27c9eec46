"""Settings of the league without trials."""

import pytest

from tournament import own
from tournament.methods import METHODS, methods_of
from tournament.tasks import TASKS


@pytest.mark.parametrize("name", TASKS)
def test_prior_and_momentum_are_shared(name):
    task = TASKS[name]
    made = own.recipe(task)
    for method in methods_of(task):
        knobs = own.knobs(method, task)
        if method.optimizer in ("sgd", "sghmc", "sgld", "emcmc"):
            assert knobs["prior_variance"] == made.prior_variance
            assert knobs["momentum"] == (0 if method.optimizer == "sgld" else made.momentum)
            assert knobs["lr"] == made.lr * (4 if method.optimizer == "sgld" else 1)
            assert knobs["noise_from"] == own.recipe(task, method.chains).burn_in
        if method.optimizer == "emcmc":
            assert knobs["temperature"] == made.temperature
            assert knobs["lr"] == made.lr


def test_rivals_have_the_same_noise():
    task = TASKS["digits"]
    ours, theirs = (own.knobs(METHODS[name], task) for name in ("EMCMC", "SGHMC"))
    for name in ("temperature", "noise_from"):
        assert ours[name] == theirs[name]


def test_halves_are_equal_and_have_both_regimes():
    halves = [task.half for task in TASKS.values()]
    assert halves.count("development") == halves.count("confirmation") == 6


@pytest.mark.parametrize("name", ["digits", "breast-cancer"])
def test_the_number_of_rows_is_as_stated(name):
    assert len(TASKS[name].rows(0).train.x) == TASKS[name].train
