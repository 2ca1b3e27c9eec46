"""A run that diverges is a result: it is told, it loses a search, and the others go on."""

import json
import math
import re

import pytest

from entropy_mcmc.errors import ConfigError, NonFiniteError
from entropy_mcmc_reproduction import ablations, fashion, search, tasks
from entropy_mcmc_reproduction.items import Outcome, Verdict
from entropy_mcmc_reproduction.jobs import Job, Place, diverged, read, run_all
from entropy_mcmc_reproduction.methods import ENTRIES, job
from entropy_mcmc_reproduction.running import _without, reproduce
from entropy_mcmc_reproduction.scale import scale
from entropy_mcmc_reproduction.text import FAILS, HOLDS, UNDECIDED, compared, number


def silent(_):
    """Instead of print."""


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "results" / "smoke", tmp_path / "work" / "smoke")


def test_a_run_with_an_absurd_step_is_kept_as_diverged_and_not_repeated(place):
    made = job("sgld", 0, scale("smoke"), {"lr": 1e30, "temperature": 1e-3}, group="try")
    run_all([made], place, silent)
    reason = diverged(read(place, made))
    assert reason
    assert str(place.work) not in reason
    before = place.result_file(made.name).stat().st_mtime_ns
    run_all([made], place, silent)
    assert place.result_file(made.name).stat().st_mtime_ns == before


def broken_for(names, ordinary):
    """`tasks.sample`, but some jobs diverge."""

    def sample(settings, place):
        if settings["name"] in names:
            raise NonFiniteError("the loss is nan at step 3")
        return ordinary(settings, place)

    return sample


def test_what_starts_from_a_diverged_run_diverges_and_the_table_says_so(place, monkeypatch):
    warm = ablations.variant("smoke", place, "emcmc", "emcmc")[0].after[0].name
    monkeypatch.setattr(tasks, "sample", broken_for({warm}, tasks.sample))
    folders = {"results": place.results.parent, "work": place.work.parent}
    reproduce(["ablation-augmentation"], "smoke", **folders)
    found = json.loads((place.results / "items" / "ablation-augmentation.json").read_text())
    rows = {row[0]: set(row[1:]) for row in found["rows"]}
    assert rows["not augmented, EMCMC"] == rows["not augmented, SGLD"] == {"–"}
    assert "–" not in rows["augmented, EMCMC"]  # has a start of its own
    assert {verdict["decision"] for verdict in found["verdicts"]} == {UNDECIDED}
    listed = ", ".join(f"ablation/{name}" for name in ["sgld-0", "emcmc-0"])
    note = f"Diverged, and left out above: {listed}. With this gap nothing is decided."
    assert found["notes"][-1] == note


def test_an_outcome_with_a_gap_decides_nothing():
    verdicts = [Verdict("better", "by 3", HOLDS), Verdict("flatter", "by 1", FAILS)]
    whole = Outcome(["a"], [["1"]], verdicts, notes=["first"])
    assert _without([], whole) is whole
    gap = _without(["ablation/emcmc-0"], whole)
    assert [verdict.decision for verdict in gap.verdicts] == [UNDECIDED, UNDECIDED]
    assert gap.notes[0] == "first"
    assert "ablation/emcmc-0" in gap.notes[1]
    assert [verdict.decision for verdict in whole.verdicts] == [HOLDS, FAILS]


def test_a_trial_that_diverged_is_no_gap(place, monkeypatch):
    (first, *_), *_ = [job.after for job in fashion.jobs("smoke", place)]
    monkeypatch.setattr(tasks, "sample", broken_for({first.name}, tasks.sample))
    folders = {"results": place.results.parent, "work": place.work.parent}
    reproduce(["fashion"], "smoke", **folders)
    assert diverged(read(place, first))
    found = json.loads((place.results / "items" / "fashion.json").read_text())
    assert not any("Diverged" in note for note in found["notes"])


def test_infinite_numbers_survive_the_file(place, monkeypatch):
    result = {"test": {"nll": [math.inf, 1.0], "low": -math.inf, "name": "informal"}}
    monkeypatch.setattr(tasks, "sample", lambda settings, place: result)
    made = Job("try/infinite", "tasks:sample", {})
    run_all([made], place, silent)
    text = place.result_file(made.name).read_text()
    assert "Infinity" not in text
    assert read(place, made) == result


def test_a_diverged_trial_loses_and_a_search_without_another_is_refused(place, monkeypatch):
    chosen, lost = scale("laptop"), set()
    few = ("sgd", "sam", "sgld")
    monkeypatch.setattr(search, "ENTRIES", {name: ENTRIES[name] for name in few})

    def sample(settings, place):
        if settings["name"] in lost:
            raise NonFiniteError("the loss is nan at step 3")
        trial = re.findall(r"trial(\d+)", settings["name"]) or [0]  # the warm start has none
        return {"test": {"both": {"nll": 1.0 + int(trial[0])}}}

    monkeypatch.setattr(tasks, "sample", sample)
    lost.add("search/sgld-trial0-0")
    run_all(search.jobs(chosen, few), place, silent)
    found = search.choose(chosen, place)
    assert found["sgd"]["validation_nll"] == 1.0
    assert found["sgld"]["validation_nll"] == 2.0
    assert found["sgld"]["numbers"] == search.trials("sgld", chosen.trials)[1]
    assert "Infinity" not in search.tuned_file(place).read_text()

    lost |= {f"search/sam-trial{i}-0" for i in range(chosen.trials)}
    for name in lost:
        place.result_file(name).unlink()
    run_all(search.jobs(chosen, few), place, silent)
    with pytest.raises(ConfigError, match="every trial of sam diverged"):
        search.choose(chosen, place)


def test_infinite_values_are_shown_and_decide_nothing():
    assert number([math.inf, 1.0, 2.0]) == "inf"
    verdict = compared("better", [1.0, math.inf], [2.0, 3.0], lower=True)
    assert verdict.decision == UNDECIDED
    assert verdict.measured == "a value is not finite"
