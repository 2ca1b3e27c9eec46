"""The folder of a search is data: every file is read within limits, and damage has one error."""

import json
import math
import os

import pytest

from entropy_mcmc.errors import ConfigError, DamagedFileError
from entropy_mcmc.run.config import RunConfig
from entropy_mcmc.run.config_file import TUNING, in_run_folder
from entropy_mcmc.tuning.options import TuneConfig
from entropy_mcmc.tuning.search import Job, Result
from entropy_mcmc.tuning.search_folder import TuneFolder

JOB = Job(3, 12, {"lr": 0.1})
SOUND = {"nll": 0.5, "rows": [0.5], "scores": {"accuracy": 1.0}, "settings": {"lr": 0.1}}


@pytest.fixture
def folder(tmp_path):
    made = TuneFolder(tmp_path / "search")
    made.lock().release()
    return made


@pytest.mark.parametrize(
    "result",
    [Result(0.5, (0.25, 0.75), {"accuracy": 0.9}), Result(math.inf, reason="the loss is nan")],
)
def test_a_result_is_read_back(folder, result):
    assert folder.result(JOB) is None
    folder.write(JOB, result, seconds=1.0)
    assert folder.result(JOB) == result


@pytest.mark.parametrize(
    "change",
    [
        {"nll": True},
        {"nll": math.nan},
        {"nll": "0.5"},
        {"rows": 3},
        {"rows": [None]},
        {"scores": []},
        {"scores": {"accuracy": [1]}},
        {"settings": {"lr": 5.0}},
        {"settings": {}},
        {"reason": 1},
    ],
)
def test_values_of_another_kind(folder, change):
    text = json.dumps({**SOUND, "reason": "", **change})
    (folder.path / "trials" / "003-epochs-12.json").write_text(text)
    with pytest.raises(DamagedFileError, match=r"003-epochs-12\.json .*remove it"):
        folder.result(JOB)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[" * 100_000, "\ud800"])
def test_no_json_of_a_result(folder, text):
    raw = text.encode("utf-8", "surrogatepass")
    (folder.path / "trials" / "003-epochs-12.json").write_bytes(raw)
    with pytest.raises(DamagedFileError, match="remove it"):
        folder.result(JOB)


def test_a_fifo_does_not_block(folder):
    os.mkfifo(folder.path / "trials" / "003-epochs-12.json")
    with pytest.raises(DamagedFileError, match="no small regular file"):
        folder.result(JOB)


def test_half_written_files_are_removed(folder):
    half = folder.path / "trials" / ".tmp-17-003-epochs-12.json"
    half.write_text("{")
    folder.lock().release()
    assert not half.exists()


def started(folder, config=RunConfig(), **options):  # noqa: B008
    machine = {"torch": "2"}
    folder.check_same(config, TuneConfig(**options), {"rows": 1}, machine, override=False)


def test_what_was_asked_is_kept(folder):
    started(folder)
    started(folder, workers=7, tune_dir="elsewhere")  # these change nothing
    with pytest.raises(ConfigError, match=r"search\.validation: 0\.2 → 0\.3"):
        started(folder, validation=0.3)
    with pytest.raises(ConfigError, match=r"config\.method: 'emcmc' → 'sgd'"):
        started(folder, RunConfig(method="sgd"))
    assert in_run_folder(folder.path / "trials" / "anything.yaml")


@pytest.mark.parametrize("text", ["[]", "config: 3", "a: !!python/name:os.system", "{}"])
def test_a_damaged_record_of_the_search(folder, text):
    (folder.path / TUNING).write_text(text)
    with pytest.raises(DamagedFileError):
        started(folder)
