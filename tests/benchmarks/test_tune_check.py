"""The table that benchmarks/tune_check.py writes into the docs."""

import json
from importlib import util
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "benchmarks" / "tune_check.py"


@pytest.fixture(scope="module")
def check():
    spec = util.spec_from_file_location("tune_check", SOURCE)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(**rivals):
    tuned = {"0": 0.10, "1": 0.12, "2": 0.14}
    return {"task": "digits", "test_nll": {"tuned": tuned, "recipe": tuned}, "tournament": rivals}


def test_rows(check):
    rival = {"0": 0.08, "1": 0.105, "2": 0.115}
    first, second = check.rows_of(record(SGHMC=rival))
    assert first[1:5] == ["recipe", "0.1200", "0.1200", "+0.0000"]
    assert second[1:5] == ["tournament's SGHMC", "0.1000", "0.1200", "+0.0200"]
    assert (first[-1], second[-1]) == ("yes", "no")


def test_a_rival_of_one_common_seed_has_no_row(check):
    assert len(check.rows_of(record(SGHMC={"0": 0.1, "9": 0.1}))) == 1


def test_the_page_has_the_marks_and_keeps_the_rest(check, tmp_path, monkeypatch):
    text = check.PAGE.read_text()
    page = tmp_path / "tuning.md"
    page.write_text(text)
    monkeypatch.setattr(check, "PAGE", page)
    check.render()
    rendered = page.read_text()
    for part in (text.partition(check.BEGIN)[0], text.partition(check.END)[2]):
        assert part in rendered
    assert rendered == text, "run `python benchmarks/tune_check.py --render` and commit"


def test_the_rivals_are_those_of_trials_where_there_are_any(check, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "TOURNAMENT", tmp_path)
    assert check.best_of("digits") == {}
    write(tmp_path / "own", {"SGD": 0.2, "EMCMC": 0.3, "ensemble 4": 0.1})
    assert check.best_of("digits") == {"SGD": {0: 0.2}, "EMCMC": {0: 0.3}}
    write(tmp_path / "trials", {"EMCMC": 0.05})
    assert check.best_of("digits") == {"EMCMC": {0: 0.05}}


def write(league, nll):
    (league / "digits").mkdir(parents=True)
    for name, value in nll.items():
        record = {"method": name, "seed": 0, "measures": {"nll": value}, "diverged": False}
        (league / "digits" / f"{name}.json").write_text(json.dumps(record))
