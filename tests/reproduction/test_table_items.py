"""Logistic regression and UCI at smoke scale, interrupted and continued."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from entropy_mcmc.errors import ConfigError
from entropy_mcmc_reproduction import logistic
from entropy_mcmc_reproduction.items import item
from entropy_mcmc_reproduction.jobs import Place, read
from entropy_mcmc_reproduction.running import reproduce
from entropy_mcmc_reproduction.trials import latin

ITEMS = ["logistic", "regression"]


def make(name, base):
    reproduce([name], "smoke", results=base / "results", work=base / "work")
    return json.loads((base / "results" / "smoke" / "items" / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Every item once, without interruption."""
    base = tmp_path_factory.mktemp("table-items")
    return {name: make(name, base) for name in ITEMS} | {"base": base}


@pytest.mark.parametrize("name", ITEMS)
def test_smoke_scale_gives_a_table_a_figure_and_verdicts(whole, name):
    found = whole[name]
    assert found["rows"]
    assert all(len(row) == len(found["columns"]) for row in found["rows"])
    assert not any("nan" in cell or "inf" in cell for row in found["rows"] for cell in row)
    assert found["verdicts"]
    assert found["runs"] == found["wanted_runs"]
    assert found["versions"]["torch"] == [torch.__version__]
    for figure in found["figures"]:
        path = whole["base"] / "results" / "smoke" / "items" / f"{figure}.png"
        assert path.stat().st_size > 5_000


def test_interrupted_between_jobs_it_continues_to_the_same_table(whole, tmp_path, monkeypatch):
    calls, compute = [], logistic.compute

    def stops(settings, place):
        calls.append(settings["method"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return compute(settings, place)

    monkeypatch.setattr(logistic, "compute", stops)
    with pytest.raises(KeyboardInterrupt):
        make("logistic", tmp_path)
    assert calls == ["emcmc", "sgld"]
    found = make("logistic", tmp_path)
    assert calls[2:] == ["sgld", "entropy-sgd", "entropy-sgld", "sgd"]  # what was finished is kept
    assert found["rows"] == whole["logistic"]["rows"]
    assert found["verdicts"] == whole["logistic"]["verdicts"]


def test_killed_it_continues_to_the_same_table(whole, tmp_path):
    command = [sys.executable, "-m", "entropy_mcmc", "reproduce", "regression", "--scale", "smoke"]
    command += ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
    runs = tmp_path / "results" / "smoke" / "runs" / "regression"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=_one_thread())
    try:
        while process.poll() is None and not list(runs.glob("*.json")):
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*.json")}
    assert 1 <= len(before) < 6
    found = make("regression", tmp_path)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert found["rows"] == whole["regression"]["rows"]
    assert found["verdicts"] == whole["regression"]["verdicts"]


def _one_thread():
    return {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}


def test_damaged_or_changed_results_are_refused(whole, tmp_path):
    place = Place(tmp_path, tmp_path / "work")
    job = logistic.jobs("smoke", place)[0]
    stored = (whole["base"] / "results/smoke/runs/logistic/emcmc.json").read_text()
    path = place.result_file(job.name)
    path.parent.mkdir(parents=True)
    path.write_text(stored)
    assert read(place, job)["rows"] == 271 - 60
    path.write_text(stored[: len(stored) // 2])
    with pytest.raises(ConfigError, match=r"emcmc\.json is damaged .* delete it"):
        read(place, job)
    changed = json.loads(stored)
    changed["settings"]["trials"] = 7
    path.write_text(json.dumps(changed))
    with pytest.raises(ConfigError, match=r"other settings \(trials: 7 → 3\)"):
        read(place, job)


@pytest.mark.parametrize("name", ITEMS)
def test_without_data_it_says_what_is_missing(name, tmp_path):
    reason = item(name).unavailable("laptop", Place(tmp_path, tmp_path, None))
    assert "EMCMC_DATA" in reason
    assert item(name).unavailable("laptop", Place(tmp_path, tmp_path, "data")) is None


@pytest.mark.parametrize("name", ITEMS)
def test_laptop_jobs_have_equal_trials_for_every_method(name, tmp_path):
    jobs = item(name).jobs("laptop", Place(tmp_path, tmp_path, "data"))
    tried = [job.settings["trials"] for job in jobs if job.settings["method"] != "hmc"]
    assert len(tried) == {"logistic": 5, "regression": 45}[name]
    assert len(set(tried)) == 1


def test_trials_cover_every_range_evenly():
    found = latin("emcmc", {"lr": (0.01, 1.0), "horizon": (1.0, 100.0)}, 4)
    for name, low in (("lr", 0.01), ("horizon", 1.0)):
        steps = sorted(math.log10(trial[name] / low) for trial in found)
        assert steps == pytest.approx([0.25, 0.75, 1.25, 1.75], abs=1e-3)
    assert found == latin("emcmc", {"lr": (0.01, 1.0), "horizon": (1.0, 100.0)}, 4)
