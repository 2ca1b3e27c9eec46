"""Whole searches on tiny data: killed, parallel, by every method, and what they leave behind."""

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import yaml

import entropy_mcmc
from entropy_mcmc.cli import main
from entropy_mcmc.errors import ConfigError, DamagedFileError, NonFiniteError, StateError
from entropy_mcmc.posterior.atomic_files import WriterLock
from entropy_mcmc.run.config import METHODS, from_dict
from entropy_mcmc.run.config_file import in_run_folder
from entropy_mcmc.tuning import workers as processes
from run.workers import slow_loss, tiny_data, tiny_items, tiny_model

TINY = {"batch_size": 8, "epochs": 16, "cycles": 1, "burn_in": 0.5, "samples_per_cycle": 2}


def tuned(folder, **options):
    given = {"method": "sghmc", "trials": 6, "workers": 1, **TINY, **options}
    return entropy_mcmc.tune(tiny_model, tiny_data(), tune_dir=folder, **given)


def table_files(folder):
    """Everything that must not depend on how the search went."""
    kept = {p.name: p.read_bytes() for p in Path(folder).iterdir() if p.suffix in (".csv", ".svg")}
    kept["chosen"] = (folder / "chosen.yaml").read_bytes()
    for path in sorted((folder / "trials").glob("*.json")):
        content = json.loads(path.read_text())
        del content["seconds"]
        kept[path.name] = content
    return kept


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One search, uninterrupted, one trial at a time."""
    folder = tmp_path_factory.mktemp("tune") / "serial"
    return tuned(folder)


def test_the_table(finished):
    lines = str(finished).splitlines()
    assert lines[0].split() == ["trial", "lr", "prior", "var.", "T", "4", "epochs", "16", "epochs"]
    assert len(lines[1:7]) == 6
    assert max(map(len, lines)) <= 80
    assert sum("recipe" in line for line in lines[1:7]) == 1
    best = finished.outcome.best
    assert lines[1].split()[0] == str(best.number)
    assert f"chosen: trial {best.number}, NLL {best.nll:.4f} on 13 validation rows" in lines
    full = [t for t in finished.outcome.trials if 16 in t.results]
    assert len(full) == 4
    assert finished.nll == min(t.nll for t in full)


def test_the_nll_is_that_of_the_held_out_rows(finished):
    """Sampled again by hand, on the rows that were left."""
    from entropy_mcmc import metrics
    from entropy_mcmc.tuning.split import split

    fit, held = split(tiny_data()[0], 0.2, seed=0, batch_size=8)
    best = finished.outcome.best
    options = {**TINY, **best.point, "threads": 1}
    posterior = entropy_mcmc.sample(tiny_model, fit, method="sghmc", **options)
    probs = posterior.predict_proba(held.inputs)
    assert metrics.nll(probs, held.targets) == pytest.approx(finished.nll, abs=1e-6)
    rows = best.results[16].rows
    assert sum(rows) / len(rows) == pytest.approx(finished.nll, abs=1e-6)


def test_the_first_trial_is_the_recipe(finished):
    """What `sample` does with the same options and nothing else."""
    from entropy_mcmc.run.methods import METHODS as HOW

    start = finished.outcome.recipe.point
    assert start["lr"] == HOW["sghmc"].defaults["lr"]
    assert start["temperature"] == HOW["sghmc"].defaults["temperature"]


def test_parallel_is_serial(finished, tmp_path):
    again = tuned(tmp_path / "parallel", workers=3)
    assert str(again) == str(finished)
    assert table_files(again.folder) == table_files(finished.folder)


def test_the_same_call_reads_what_is_there(finished, monkeypatch):
    monkeypatch.setattr(processes, "run_trial", None)  # nothing may run
    assert str(tuned(finished.folder)) == str(finished)


FORK = multiprocessing.get_context("fork")  # everything is imported here already


def search(folder, log):
    sys.stderr = Path(log).open("a")  # noqa: SIM115
    tuned(folder, workers=2, loss=slow_loss, checkpoint_seconds=0.05)


def started(folder, log):
    process = FORK.Process(target=search, args=(folder, log))
    process.start()
    return process


def files(folder):
    return sum(len(names) for *_, names in os.walk(folder))  # folders may vanish meanwhile


def wait_for_files(process, folder, count):
    """Until the search has written so many files more than now."""
    wanted = files(folder) + count
    while files(folder) < wanted and process.is_alive():
        time.sleep(0.01)


@pytest.mark.usefixtures("finished")  # which imports what the forked searches need
def test_killed_and_resumed_it_finds_the_same(tmp_path):
    """SIGKILL at random moments, in whatever the search and its workers do then."""
    moments, killed, log = random.Random(4), tmp_path / "killed", tmp_path / "log"
    kills = 0
    for _ in range(5):
        process = started(killed, log)
        wait_for_files(process, killed, moments.randint(1, 8))
        time.sleep(moments.uniform(0, 0.1))
        if not process.is_alive():  # the search was faster than its killer
            break
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
    assert kills > 0
    process = started(killed, log)
    process.join()
    assert process.exitcode == 0, log.read_text()
    whole = tuned(tmp_path / "whole", workers=1, loss=slow_loss)
    assert table_files(killed) == table_files(whole.folder)
    assert {p.suffix for p in (killed / "trials").iterdir()} == {".json"}  # no samples are left


@pytest.mark.usefixtures("finished")
def test_workers_die_with_the_search(tmp_path):
    process = started(tmp_path / "a", tmp_path / "log")
    while not list((tmp_path / "a").glob("trials/*-epochs-*/metrics.jsonl")):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    for place in (tmp_path / "a" / "trials").glob("*-epochs-*/"):
        with suppress(FileNotFoundError):  # the trial's last act, before its worker died
            WriterLock(place, wait=True).release()  # free once its worker is gone


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method, tmp_path):
    samples = (
        {"samples_per_cycle": 1} if method in ("sgd", "sam", "entropy-sgd", "ensemble") else {}
    )
    chains = {"chains": 2} if method == "ensemble" else {}
    tuning = tuned(tmp_path / "a", method=method, trials=2, epochs=5, **samples, **chains)
    assert tuning.config.method == method
    names = {axis.name for axis in tuning.outcome.space}
    rate = "inner_lr" if method.startswith("entropy-") else "lr"
    assert {rate, "prior_variance"} <= names
    assert ("horizon" in names) == (method == "emcmc")
    assert ("rho" in names) == (method in ("sam", "bsam"))
    assert ("temperature" in names) == (
        method in ("emcmc", "sgld", "psgld", "sghmc", "entropy-sgld", "bsam")
    )
    # The chosen options can be sampled with, on all rows.
    posterior = entropy_mcmc.sample(tiny_model, tiny_data(), **tuning.options)
    assert len(posterior) >= 1


def test_the_horizon_is_a_part_of_the_cycle(tmp_path):
    tuning = tuned(tmp_path / "a", method="emcmc", trials=2, search=["horizon"], lr=0.1)
    chosen = tuning.outcome.best.point["horizon"]
    steps = 16 * (64 // 8)  # of a cycle, with all rows
    assert tuning.config.sampler.eta * 64 / 0.1 == pytest.approx(max(4, chosen * steps))


def test_regression_and_torch_data_sets(tmp_path):
    x = torch.linspace(-1, 1, 80)[:, None]
    network = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    before = [p.clone() for p in network.parameters()]
    pairs = (x, x[:, 0].sin())
    tuning = entropy_mcmc.tune(network, pairs, method="sgd", trials=2, epochs=3, batch_size=8)
    assert "rmse" in tuning.outcome.best.results[3].scores
    assert all(map(torch.equal, before, network.parameters()))  # nobody moved the user's network
    items = entropy_mcmc.tune(
        tiny_model, tiny_items(), method="sgd", trials=2, epochs=3, batch_size=8
    )
    assert items.nll > 0


def test_what_is_given_is_kept(tmp_path):
    tuning = tuned(tmp_path / "a", trials=2, epochs=4, lr=0.07, weight_decay=1e-3)
    assert [axis.name for axis in tuning.outcome.space] == ["temperature"]
    assert (tuning.config.sampler.lr, tuning.config.sampler.weight_decay) == (0.07, 1e-3)
    # Named in `search`, a given value is where the search starts.
    start = tuned(tmp_path / "b", trials=2, epochs=4, lr=0.07, search=["lr"])
    assert start.outcome.recipe.point == {"lr": 0.07}


NAMED = ["--data.name", "run.workers:tiny_data", "--model.name", "run.workers:tiny_model"]
QUICK = [
    *("--method", "sgd", "--trials", "2", "--workers", "1"),
    *("--schedule.epochs", "3", "--data.batch_size", "8", "--output.progress", "false"),
]


def test_the_command_and_what_it_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *NAMED, *QUICK]) == 0
    out = capsys.readouterr().out
    folder = Path("runs/tune-run.workers.tiny_data-sgd")
    assert {p.name for p in folder.iterdir()} >= {"chosen.yaml", "trials.csv", "tune.svg"}
    assert "<svg" in (folder / "tune.svg").read_text()
    command = out.splitlines()[-1].removeprefix("sample with it: emcmc ").split()
    assert command[:2] == ["sample", "--config"]
    content = yaml.safe_load((folder / "chosen.yaml").read_text())
    assert from_dict(content).schedule.epochs == 3
    # The folder is data: what it names is imported only if the user names it, too.
    assert in_run_folder(folder / "chosen.yaml")
    assert main(command[:3]) == 1
    assert "names code to import and call" in capsys.readouterr().err
    assert main([*command, "--run_dir", "mine", "--output.report", "false"]) == 0
    assert (
        yaml.safe_load(Path("mine/config.yaml").read_text())["sampler"]["lr"]
        == (content["sampler"]["lr"])
    )
    assert main(["tune", *NAMED, *QUICK]) == 0
    assert capsys.readouterr().out.endswith(out)


def test_other_options_in_the_same_folder_are_refused(finished):
    with pytest.raises(ConfigError, match=r"config\.seed: 0 → 1"):
        tuned(finished.folder, seed=1)
    with pytest.raises(ConfigError, match=r"search\.trials: 6 → 7"):
        tuned(finished.folder, trials=7)


def test_other_versions_are_refused_unless_accepted(finished, monkeypatch):
    monkeypatch.setattr("optuna.__version__", "0.1")
    with pytest.raises(ConfigError, match=r"(?s)optuna: '5\S+ → '0\.1'.*--override"):
        tuned(finished.folder)
    assert str(tuned(finished.folder, override=True)) == str(finished)


def test_a_folder_in_use(finished):
    with WriterLock(finished.folder), pytest.raises(StateError, match="used by another search"):
        tuned(finished.folder)


def test_a_damaged_result_is_named(tmp_path):
    options = {"method": "sgd", "trials": 1, "epochs": 2}
    tuning = tuned(tmp_path / "a", **options)
    (path,) = (tuning.folder / "trials").glob("*.json")
    path.write_text("{")
    with pytest.raises(DamagedFileError, match=r"000-epochs-2\.json .*remove it"):
        tuned(tmp_path / "a", **options)
    path.unlink()
    assert str(tuned(tmp_path / "a", **options)) == str(tuning)


def failing_loss(output, target):
    raise RuntimeError("my own mistake")


def nan_loss(output, target):
    return output.sum() * float("nan")


def test_a_mistake_in_the_users_code_is_shown(tmp_path):
    with pytest.raises(StateError, match=r"(?s)trial 0 .*in failing_loss.*my own mistake"):
        tuned(tmp_path / "a", loss=failing_loss)


def test_all_trials_diverge(tmp_path):
    with pytest.raises(NonFiniteError, match=r"all 2 trials diverged; the first said: .*NaN"):
        tuned(tmp_path / "a", loss=nan_loss, trials=2)


def dying_loss(output, target):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_is_said(tmp_path):
    with pytest.raises(StateError, match=r"trial 0 .* died \(exit code -9\); if memory"):
        tuned(tmp_path / "a", loss=dying_loss)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"search": ["horizon"]}, "method 'sghmc' has no horizon to search; it has lr"),
        ({"ranges": {"rho": [0.1, 0.2]}}, r"ranges\.rho is given, but search has only lr"),
        ({"lr": 0.1, "temperature": 0.1, "prior_variance": 1.0}, "nothing is left to choose"),
        ({"devices": 2}, r"compute\.devices must be 1 in a search"),
        ({"epoch": 3}, "has no option 'epoch'"),
        ({"method": "adam"}, "method must be one of"),
        ({"validation": 0.01}, "gives 1 rows to judge by"),
    ],
)
def test_bad_input(options, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        tuned(tmp_path / "a", **options)


def test_without_optuna(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'entropy-mcmc\[tune\]'"):
        tuned(tmp_path / "a")


def test_jobs_in_this_process_give_the_same(finished, tmp_path, monkeypatch):
    """As on a machine where a GPU is in use: no forks."""
    monkeypatch.setattr("entropy_mcmc.tuning.search_runner.start_method", lambda: None)
    assert str(tuned(tmp_path / "a")) == str(finished)


@pytest.mark.soak
def test_spawned_workers_give_the_same(tmp_path, monkeypatch):
    options = {"trials": 2, "epochs": 3, "method": "sgd", "workers": 2}
    forked = tuned(tmp_path / "a", **options)
    monkeypatch.setattr("entropy_mcmc.tuning.search_runner.start_method", lambda: "spawn")
    assert table_files(tuned(tmp_path / "b", **options).folder) == table_files(forked.folder)
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        tuned(tmp_path / "c", loss=lambda output, target: output.sum(), **options)
