"""The search of the rivals' settings: which one wins, and what is written of it."""

import json
import math
from pathlib import Path

import pytest

from tournament import own, page_extra, rivals
from tournament.methods import by_name
from tournament.settings import Settings
from tournament.store import Store
from tournament.tasks import TASKS

RESULTS = Path(__file__).parents[2] / "results" / "tournament"


def rows(nll):
    """Results of every setting of IVON on every task and seed, by nll(task, seed, values)."""
    return {
        task: [
            {"rival": "IVON", "values": v, "seed": s, "nll": nll(task, s, v)}
            for v in rivals.grid("IVON")
            for s in rivals.SEEDS
        ]
        for task in rivals.SEARCHED
    }


def chosen(folder, made, monkeypatch):
    monkeypatch.setattr(rivals, "GRID", {"IVON": rivals.GRID["IVON"]})
    for task, found in made.items():
        (folder / f"rivals-{task}.json").write_text(json.dumps({"rows": found}))
    return rivals.chosen(folder)["IVON"]


def test_the_authors_setting_comes_first_and_wins_ties(tmp_path, monkeypatch):
    assert rivals.grid("SAM")[0] == {"rho": 0.05}
    assert rivals.grid("IVON")[0] == {"lr": 0.2, "temperature": 1.0, "scale": 0.5}
    assert chosen(tmp_path, rows(lambda *_: 0.5), monkeypatch) == rivals.authors("IVON")


def test_tasks_count_alike_whatever_their_nll(tmp_path, monkeypatch):
    """Half of a small NLL is more than a tenth of a large one."""

    def nll(task, seed, values):
        if task == "digits":
            return 0.01 if values["lr"] == 0.6 else 0.02
        return 0.9 if values["lr"] == 2.0 else 1.0

    best = chosen(tmp_path, rows(nll), monkeypatch)
    assert best["lr"] == 0.6
    found = [{**row, "task": task} for task, part in rows(nll).items() for row in part]
    expected = math.log(0.5) / len(rivals.SEARCHED)
    assert rivals.score(found, "IVON", best) == pytest.approx(expected)


def test_a_setting_that_diverged_once_is_out(tmp_path, monkeypatch):
    def nll(task, seed, values):
        if values["lr"] == 2.0:
            return None if (task, seed) == ("digits-bn", 91) else 0.001
        return 0.4 if values["lr"] == 0.6 else 0.5

    assert chosen(tmp_path, rows(nll), monkeypatch)["lr"] == 0.6


def test_runs_have_the_grid_and_seeds_that_judge_nothing(tmp_path):
    task = TASKS["digits"]
    made = rivals.runs(task)
    assert len(made) == 2 * sum(len(rivals.grid(name)) for name in rivals.GRID)
    for (name, values, seed), (_, (settings,)) in made.items():
        assert isinstance(settings, Settings), name
        assert seed == settings.seed >= 90 > max(t.seeds for t in TASKS.values())
        assert all(getattr(settings, knob) == value for knob, value in values)
    rivals.write(task, Store(tmp_path), tmp_path)
    assert json.loads((tmp_path / "rivals-digits.json").read_text()) == {"rows": []}


def test_a_gain_that_two_seeds_cannot_tell_leaves_the_authors_setting(tmp_path, monkeypatch):
    for gain, lr in ((0.004, 0.2), (0.006, 0.6)):
        made = rows(lambda task, seed, v, g=gain: 1 - g if v["lr"] == 0.6 else 1.0)
        assert chosen(tmp_path, made, monkeypatch)["lr"] == lr


@pytest.mark.parametrize("name", rivals.GRID)
def test_the_rivals_have_what_the_search_chose(name):
    knobs = own.knobs(by_name(name), TASKS["digits"])
    best = rivals.chosen(RESULTS)[name]
    assert {knob: knobs[knob] for knob in best} == best


def test_the_lr_of_a_rival_that_diverges_on_a_longer_task_is_searched_there(tmp_path):
    task = TASKS["fashion-mlp-60k"]
    made = rivals.runs(task)
    assert {(name, seed) for name, _, seed in made} == {("bSAM", 90), ("bSAM", 91)}
    for (_, ((knob, lr),), _), (_, (settings,)) in made.items():
        assert (knob, settings.lr, settings.temperature) == ("lr", lr, 0.005)
    for name, each in rivals.chosen_again(RESULTS).items():
        for rival, lr in each.items():
            assert own.knobs(by_name(rival), TASKS[name])["lr"] == lr
            assert min(rivals.AGAIN[name][rival]) < lr < max(rivals.AGAIN[name][rival])
    assert own.knobs(by_name("bSAM"), TASKS["fashion-mlp"])["lr"] == 1.0


def test_a_lr_that_diverged_once_is_never_chosen(tmp_path, monkeypatch):
    monkeypatch.setattr(rivals, "AGAIN", {"digits": {"bSAM": (1.0, 0.5)}})
    nll = {(1.0, 90): 0.1, (1.0, 91): None, (0.5, 90): 0.8, (0.5, 91): 0.9}
    found = [
        {"rival": "bSAM", "values": {"lr": lr}, "seed": seed, "nll": value}
        for (lr, seed), value in nll.items()
    ]
    (tmp_path / "rivals-digits.json").write_text(json.dumps({"rows": found}))
    assert rivals.chosen_again(tmp_path) == {"digits": {"bSAM": 0.5}}


def test_the_page_shows_what_the_search_chose(tmp_path):
    assert page_extra.searched(tmp_path) == ""
    text = page_extra.searched(RESULTS)
    assert "| SAM | rho 0.05 | rho 0.05 | +0.0 % | +0.0 % | +0.0 % |" in text
