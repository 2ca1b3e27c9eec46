"""The search on functions of known minimum, without a single network."""

import math
import random

import pytest

from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.tuning.rungs import Rung, generations, rungs
from entropy_mcmc.tuning.search import RECIPE, Outcome, Result, Trial, run_search
from entropy_mcmc.tuning.space import axis

SPACE = [axis("lr", 0.1), axis("temperature", 0.02)]


class Bowl:
    """NLL with its minimum at `lr` and T = 0.02; shorter runs are worse by a constant."""

    def __init__(self, lr, order=None, diverges=math.inf):
        self.lr, self.order, self.diverges, self.jobs = lr, order, diverges, []

    def __call__(self, jobs):
        losses = {}
        for job in self.order.sample(jobs, len(jobs)) if self.order else jobs:
            losses[job.trial] = self.nll(job)
        self.jobs += jobs
        return [losses[job.trial] for job in jobs]

    def nll(self, job):
        if job.point["lr"] > self.diverges:
            return Result(math.inf, reason="the loss is nan")
        distance = math.log(job.point["lr"] / self.lr) ** 2
        distance += 0.1 * math.log(job.point["temperature"] / 0.02) ** 2
        return Result(distance + 1 / job.epochs, rows=(0.0,) * 3)


def test_the_first_trial_is_the_recipe():
    search = run_search(SPACE, rungs(16, 48), 0, Bowl(0.1))
    assert search.trials[RECIPE].point == {"lr": 0.1, "temperature": 0.02}
    assert search.best.number == RECIPE  # the minimum is there


def test_finalists_run_at_full_length_and_the_recipe_is_one():
    bowl = Bowl(0.02)
    search = run_search(SPACE, rungs(16, 48), 0, bowl)
    full = [job.trial for job in bowl.jobs if job.epochs == 48]
    assert len(full) == 4
    assert RECIPE in full
    assert [job.trial for job in bowl.jobs if job.epochs == 12] == list(range(16))
    # The best three of the short runs are the others.
    short = sorted(range(1, 16), key=lambda n: search.trials[n].results[12].nll)
    assert sorted(full) == sorted([RECIPE, *short[:3]])
    assert search.best.longest == 48
    assert search.best.nll == min(t.nll for t in search.trials if t.longest == 48)


def test_few_trials_all_run_at_full_length():
    bowl = Bowl(0.1)
    run_search(SPACE, rungs(3, 10), 0, bowl)
    assert [(job.trial, job.epochs) for job in bowl.jobs] == [(0, 10), (1, 10), (2, 10)]


def test_the_search_is_a_function_of_its_results():
    """Whatever ends first, and whatever was there before: the same trials."""
    plain = run_search(SPACE, rungs(16, 48), 7, Bowl(0.03))
    mixed = run_search(SPACE, rungs(16, 48), 7, Bowl(0.03, order=random.Random(1)))
    assert plain == mixed
    other = run_search(SPACE, rungs(16, 48), 8, Bowl(0.03))
    assert [t.point for t in other.trials] != [t.point for t in plain.trials]


def test_later_trials_follow_the_results():
    """Proposed by TPE they are better on average than the first half, which is spread evenly."""
    search = run_search(SPACE, rungs(32, 48), 0, Bowl(0.05))
    nll = [trial.results[3].nll for trial in search.trials]
    assert sum(nll[16:]) / 16 < sum(nll[1:16]) / 15


@pytest.mark.parametrize("minimum", [0.002, 1.5])
def test_the_range_grows_towards_a_minimum_outside_it(minimum):
    """The first range is 0.0125 … 0.4; both minima lie outside."""
    search = run_search(SPACE, rungs(16, 48), 0, Bowl(minimum))
    low, high = (math.exp(end) for end in (search.space[0].low, search.space[0].high))
    assert low < minimum < high
    inside = [0.0125 <= t.point["lr"] <= 0.4 for t in search.trials]
    assert all(inside[:8])
    assert not all(inside[8:])
    assert not 0.0125 <= search.best.point["lr"] <= 0.4


def test_a_range_of_the_users_does_not_grow():
    space = [axis("lr", 0.1, [0.05, 0.2]), SPACE[1]]
    search = run_search(space, rungs(16, 48), 0, Bowl(1.5))
    assert max(t.point["lr"] for t in search.trials) <= 0.2
    assert search.space[0] == space[0]


def test_what_is_at_an_end_in_the_end_is_said():
    points = {"lr": 0.39, "temperature": 0.02}, {"lr": 0.1, "temperature": 0.02}
    trials = [Trial(n, point, {48: Result(n + 1.0)}) for n, point in enumerate(points)]
    space = tuple(SPACE)
    assert Outcome(tuple(trials), (Rung(2, 48),), space).on_edge == ["lr"]
    assert Outcome((trials[1],), (Rung(2, 48),), space).on_edge == []


def test_trials_that_diverged_are_not_promoted():
    bowl = Bowl(0.3, diverges=0.2)
    search = run_search(SPACE, rungs(16, 48), 0, bowl)
    assert all(job.point["lr"] <= 0.2 for job in bowl.jobs if job.epochs == 48)
    assert math.isfinite(search.best.nll)
    assert any(math.isinf(t.nll) for t in search.trials)


def test_if_all_diverge_the_reason_is_given():
    with pytest.raises(NonFiniteError, match=r"all 16 trials diverged; .* the loss is nan"):
        run_search(SPACE, rungs(16, 48), 0, Bowl(0.1, diverges=0.0))


def test_rungs():
    assert rungs(64, 160) == (Rung(64, 10), Rung(16, 40), Rung(4, 160))
    assert rungs(16, 2) == (Rung(16, 1), Rung(4, 2)) == rungs(16, 2, least=1)
    assert rungs(16, 1) == (Rung(16, 1),)
    assert rungs(64, 5) == (Rung(64, 1), Rung(4, 5))
    assert rungs(16, 48, least=20) == (Rung(16, 20), Rung(4, 48))
    assert rungs(16, 48, least=50) == (Rung(16, 48),)
    for trials in range(1, 70):
        for epochs in (1, 2, 3, 7, 48):
            planned = rungs(trials, epochs)
            assert planned[0].trials == trials
            assert planned[-1].epochs == epochs
            lengths, counts = zip(*((r.epochs, r.trials) for r in planned), strict=True)
            assert sorted(set(lengths)) == list(lengths)
            assert sorted(counts, reverse=True) == list(counts)
            assert sum(generations(trials)) == trials
