"""A run that diverges is a result: it is told, decides nothing, and the others go on."""

import json
import math

import pytest

from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc_reproduction import stored_runs
from entropy_mcmc_reproduction.items import Outcome, Verdict
from entropy_mcmc_reproduction.jobs import Job, Place, diverged, read, run_all
from entropy_mcmc_reproduction.running import _without, reproduce
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS, UNDECIDED, number
from tournament.methods import METHODS


def silent(_):
    """Instead of print."""


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "results" / "smoke", tmp_path / "work" / "smoke")


def test_a_run_with_an_absurd_step_is_kept_as_diverged_and_not_repeated(place):
    made = stored_runs.job("try/sgd", METHODS["SGD"], "digits", 0, {"lr": 1e30}, 0.05)
    run_all([made], place, silent)
    reason = diverged(read(place, made))
    assert reason
    assert str(place.work) not in reason
    before = place.result_file(made.name).stat().st_mtime_ns
    run_all([made], place, silent)
    assert place.result_file(made.name).stat().st_mtime_ns == before


def test_the_table_names_what_diverged(place, monkeypatch):
    ordinary = stored_runs.measure

    def measure(settings, place):
        if settings["knobs"]["guide_update"] == "exact" and settings["seed"] == 1:
            raise NonFiniteError("the loss is nan at step 3")
        return ordinary(settings, place)

    monkeypatch.setattr(stored_runs, "measure", measure)
    reproduce(["gibbs"], "smoke", results=place.results.parent, work=place.work.parent)
    found = json.loads((place.results / "items" / "gibbs.json").read_text())
    assert [row[:2] for row in found["rows"]] == [["euler", "2"], ["exact", "1"], ["gibbs", "2"]]
    lost = "ablations/emcmc-exact-1"
    assert found["notes"][-1].startswith(f"Diverged, and left out above: {lost}. What needs them ")


def test_what_needs_a_lost_run_is_not_decided():
    """A claim that names other runs stands; one that names none, or roles of a run, does not."""
    parties = [["a/x", "a/y"], ["a/x", "a/z"], ["role", "a/y"], []]
    verdicts = [Verdict("better", "by 3", HOLDS, parties=each) for each in parties]
    whole = Outcome(["a"], [["1"]], verdicts, notes=["first"])
    jobs = ["a/x-0", "a/y-0", "a/z-0", "a/z-1"]
    assert _without([], whole, jobs) is whole
    gap = _without(["a/z-1"], whole, jobs)
    assert [v.decision for v in gap.verdicts] == [HOLDS, UNDECIDED, UNDECIDED, UNDECIDED]
    assert gap.notes[0] == "first"
    assert "a/z-1" in gap.notes[1]
    assert {verdict.decision for verdict in whole.verdicts} == {HOLDS}


@pytest.mark.parametrize(
    ("decision", "effect", "lost", "expected"),
    [
        (HOLDS, [2.0, 1.0, 3.0], "y", HOLDS),  # theirs is behind, and lost a run
        (HOLDS, [2.0, 1.0, 3.0], "x", UNDECIDED),
        (FAILS, [-2.0, -3.0, -1.0], "x", FAILS),
        (FAILS, [-2.0, -3.0, -1.0], "y", UNDECIDED),
        (ALIKE, [0.0, -0.1, 0.1], "y", UNDECIDED),
        (HOLDS, [0.2, 0.1, 0.3], "y", UNDECIDED),  # by less than the margin
        (HOLDS, [0.2, -0.1, 1.3], "y", UNDECIDED),  # a claim that they are alike
    ],
)
def test_what_is_decided_against_the_party_that_lost_a_run_stands(decision, effect, lost, expected):
    verdict = Verdict("better", "", decision, effect=effect, margin=0.5, parties=["a/x", "a/y"])
    jobs = [f"a/{name}-{seed}" for name in "xy" for seed in range(3)]
    gap = _without([f"a/{lost}-1"], Outcome([], [], [verdict]), jobs)
    assert [found.decision for found in gap.verdicts] == [expected]


def test_a_score_that_is_not_finite_is_a_lost_run():
    assert diverged({"measures": {"nll": math.inf, "ece": 0.1}}) == "nll is not finite"
    assert diverged({"measures": {"nll": 0.3, "by severity": [math.inf]}}) is None
    assert diverged({"diverged": "a weight"}) == "a weight"


def test_infinite_numbers_survive_the_file(place, monkeypatch):
    result = {"test": {"nll": [math.inf, 1.0], "low": -math.inf, "name": "informal"}}
    monkeypatch.setattr(stored_runs, "measure", lambda settings, place: result)
    made = Job("try/infinite", "stored_runs:measure", {})
    run_all([made], place, silent)
    text = place.result_file(made.name).read_text()
    assert "Infinity" not in text
    assert read(place, made) == result


def test_infinite_values_are_shown():
    assert number([math.inf, 1.0, 2.0]) == "inf"
