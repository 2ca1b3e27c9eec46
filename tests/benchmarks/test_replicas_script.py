"""benchmarks/replicas.py on tiny tasks: cells, resume, tables."""

import importlib.util
import json
from pathlib import Path

import pytest


@pytest.fixture
def script(tiny, monkeypatch):
    place = Path(__file__).parents[2] / "benchmarks" / "replicas.py"
    spec = importlib.util.spec_from_file_location("replicas_script", place)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.syspath_prepend("")  # the script puts its folder on the path: undone after the test
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TASKS", tiny)
    return module


def test_every_method_makes_its_cell_and_a_second_start_none(script, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(script, "FLATNESS_ROWS", 40)
    flat = {"largest_eigenvalue": 1.0, "learning_coefficient": 2.0}
    monkeypatch.setattr(script, "flatness_of", lambda *_: flat)
    options = script.argparse.Namespace(tasks=["tiny-bn"], seeds=2, results=tmp_path)
    script.run(options)
    assert len(capsys.readouterr().out.splitlines()) == 8
    script.run(options)
    assert capsys.readouterr().out == ""
    cell = json.loads((tmp_path / "tiny-bn-y=4-0.json").read_text())
    assert set(cell["scores"]) == {"samples", "last", "guide"}
    assert cell["scores"]["samples"]["networks"] == 8
    assert cell["scores"]["guide"]["networks"] == 1
    page = script.render(tmp_path)
    assert page.count("| y = 2, guide |") == 1
    assert "SAM, last" in page


def test_flatness_of_a_tiny_network(script, tiny):
    split = tiny["tiny"].rows(0)
    measured = script.flatness_of(tiny["tiny"].network(), split.train, 0)
    assert measured["largest_eigenvalue"] > 0
    assert measured["learning_coefficient_error"] > 0


def test_plan_and_samples(script, tiny):
    assert "4 methods × 5 seeds, about 1 minutes" in script.plan(["tiny"], 5)
    assert sorted(script.sample_steps(80, 4, 0.5)) == [59, 79]
    assert sorted(script.sample_steps(81, 1, 0.5))[-1] == 80
