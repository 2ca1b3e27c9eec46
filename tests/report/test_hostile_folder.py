"""`emcmc report` on a folder from elsewhere: what lies beside the run may be anything."""

import json
import os

import pytest

from entropy_mcmc.errors import DamagedFileError
from entropy_mcmc.report.command import _page
from entropy_mcmc.report.diagnostics_section import diagnostics_section
from entropy_mcmc.report.run_data import RunData, _json, read_flatness
from entropy_mcmc.run.journal import NAME, Journal
from entropy_mcmc.run.run_folder import Record

PICTURE = "fisher.png"


@pytest.fixture
def flatness(tmp_path):
    """A folder as `emcmc flatness` writes it, with one picture."""
    folder = tmp_path / "flatness"
    folder.mkdir()
    (folder / "flatness.json").write_text("[{}]")
    (folder / PICTURE).write_bytes(b"picture")
    return folder


def test_pictures_are_read(flatness):
    assert read_flatness(flatness).pictures == {"fisher": b"picture"}


def test_no_file_of_the_reader_gets_into_the_page(flatness, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    (flatness / PICTURE).unlink()
    (flatness / PICTURE).symlink_to(tmp_path / "secret")
    assert read_flatness(flatness).pictures == {}


def test_devices_are_no_files_of_a_run(flatness):
    """A FIFO would hang in the same place: opening it waits for a writer."""
    for name in (PICTURE, "flatness.json"):
        (flatness / name).unlink()
        (flatness / name).symlink_to(os.devnull)
    assert read_flatness(flatness) is None
    os.mkfifo(flatness / "diagnostics.json")
    assert _json(flatness / "diagnostics.json") is None


@pytest.mark.parametrize(
    "field", [{"loss": "low"}, {"loss": None}, {"lr": [1]}, {"cycle": None}, {"cycle": {}}]
)
def test_a_training_line_holds_numbers(tmp_path, field):
    line = {"kind": "train", "chain": 0, "step": 1, "cycle": 0, "loss": 1.0, "lr": 0.1, **field}
    (tmp_path / NAME).write_text(json.dumps(line) + "\n")
    with pytest.raises(DamagedFileError, match="must be a number"):
        Journal(tmp_path).events()


@pytest.mark.parametrize("value", ["high", [1], {}])
def test_an_evaluation_holds_numbers(tmp_path, value):
    line = {"kind": "evaluate", "set": "test", "who": "emcmc", "nll": None, "ece": float("nan")}
    (tmp_path / NAME).write_text(json.dumps(line) + "\n")
    assert len(Journal(tmp_path).evaluations()) == 1
    (tmp_path / NAME).write_text(json.dumps({**line, "accuracy": value}) + "\n")
    with pytest.raises(DamagedFileError, match="accuracy"):
        Journal(tmp_path).events()


@pytest.mark.parametrize("name", ["parameters", "rows"])
def test_a_record_counts_with_numbers(name):
    with pytest.raises(ValueError, match=name):
        Record(None, {name: "many"}, {}, 1)


@pytest.mark.parametrize("part", ["roles", "advice"])
def test_a_diagnosis_of_another_shape_is_left_out(tmp_path, part):
    run = RunData("run", tmp_path, None, [], [], (), {part: 5}, None, None)
    assert diagnostics_section(run).title == "Diagnostics"


def test_json_of_any_other_shape_is_one_error(tmp_path, monkeypatch):
    def page(runs):
        return runs[0].diagnostics["roles"][0]["mixing"].get("ess")

    monkeypatch.setattr("entropy_mcmc.report.page.page", page)
    diagnosis = {"roles": [{"mixing": 5}]}
    with pytest.raises(DamagedFileError, match=r"diagnostics\.json"):
        _page([RunData("run", tmp_path, None, [], [], (), diagnosis, None, None)])
