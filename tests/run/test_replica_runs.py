"""Runs with replicas: samples, budget, kills, and one replica on each process, on gloo."""

import contextlib
import io
import json
import os
import random
import re
import signal
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from itertools import combinations

import pytest
import torch
import yaml
from safetensors.torch import load_file

from entropy_mcmc import Posterior, sample, units
from entropy_mcmc.cli import main
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run import run_folder
from entropy_mcmc.run.commands import baseline_config
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.devices import check_replicas
from entropy_mcmc.run.diagnose import diagnosis_of
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.runner import run
from run.test_ranks import largest_difference, without_config
from run.test_resume import compare, kill_repeatedly, lines
from run.workers import (
    finish,
    finish_ranks,
    start_ranks,
    tiny_config,
    tiny_data,
    tiny_model,
    wait_for_steps,
)


def replicas_config(folder, replicas=2, epochs=20, **sampler):
    """A round of `replicas` gradients is a step; the loss leaves time to be killed."""
    config = tiny_config(folder, "emcmc", epochs=epochs)
    config = replace(config, replicas=replicas, loss="run.workers:slow_loss")
    return with_parts(config, sampler={"fused": "no", **sampler})


def double_config(folder, strategy="auto", **sampler):
    config = replicas_config(folder, **sampler)
    return with_parts(
        config,
        compute={"precision": "64-true", "strategy": strategy, "timeout": 60.0},
        schedule={"coupled": "always"},  # the default of several processes
    )


def test_a_run_keeps_every_replica_and_spends_the_same_gradients(tmp_path):
    config = replicas_config(tmp_path / "run", replicas=3, momentum=0.5)
    made = run(config)
    samples = Counter((s.role, s.replica) for s in made.posterior.samples)
    assert samples == {("theta", 0): 2, ("theta", 1): 2, ("theta", 2): 2, ("guide", None): 2}
    # 20 epochs of 4 batches are 80 gradients: 2 cycles of 13 rounds of 3.
    assert made.record.cycle_steps == 13
    last = [e for e in Journal(tmp_path / "run").events() if e["kind"] == "train"][-1]
    assert (last["step"], last["gradients"]) == (26, 78)
    diagnosis = diagnosis_of(made)
    assert diagnosis.theta_temperature is None
    assert {role.role for role in diagnosis.roles} == {"theta", "guide"}
    text = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert text["replicas"] == 3
    stored = Posterior.open(tmp_path / "run", tiny_model())
    assert stored.predict_proba(made.problem.test.inputs).shape == (64, 3)


# The command, and the call.


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """`emcmc sample --replicas 4` on fewer epochs: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("digits")
    short = ["--schedule.epochs", "6"]
    text, told = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), redirect_stdout(text), redirect_stderr(told):
        assert main(["sample", "--replicas", "4", *short]) == 0
    return folder / "runs" / "digits-emcmc", text.getvalue(), told.getvalue()


def test_the_command_gives_scores_a_diagnosis_and_a_page(digits):
    folder, text, _ = digits
    assert "32 samples in runs/digits-emcmc" in text
    scored = {(e["set"], e["who"]) for e in Journal(folder).evaluations()}
    assert {("test", "emcmc"), ("test", "sgd")} <= scored  # one SGD network beside it
    stored = json.loads((folder / "diagnostics.json").read_text(encoding="utf-8"))
    assert stored["text"] in text
    (theta,) = stored["roles"]
    assert (theta["mixing"]["draws"], theta["mixing"]["chains"]) == (32, 4)
    assert theta["replicas"] == 4
    assert "32 draws of 4 replicas in 1 cycle, " in text
    assert {a["groups"] for a in theta["agreements"]} == {"replicas"}
    assert theta["weights"]["within"] > 0


def test_the_page_tells_of_the_replicas(digits):
    page = (digits[0] / "report.html").read_text(encoding="utf-8")
    assert re.search(r"<dt>Replicas</dt>\s*<dd>4", page)
    assert "along one chain of 1 cycle, with 4 replicas that share a guide" in page
    assert "measured between 4 replicas, which share a guide" in page
    assert "--chains 2" not in page
    for number in range(1, 5):  # in the table of samples
        assert page.count(f"<td>θ, replica {number} of 4</td>") >= 8


def test_the_recipe_that_is_printed_is_that_of_rounds(digits):
    """1,437 rows in batches of 64, 6 epochs: 33 rounds of 4 gradients."""
    folder, _, told = digits
    config = run_folder.read_existing(folder).config
    rounds = units.horizon(config.sampler.lr, 1437, config.sampler.eta) / 4
    share = f"{rounds / 33:.0%} of a chain"
    words = f"the guide averages 4 replicas over ηN/(4·lr) = {rounds:.3g} rounds, {share}"
    assert " ".join(words.split()) in " ".join(told.split())
    assert "√(ηT/4)" in told
    assert "each has a network per replica" in told


def test_the_baseline_is_one_network_on_all_processes():
    config = RunConfig(replicas=4, compute=replace(RunConfig().compute, strategy="replicas"))
    made = baseline_config(config)
    assert (made.method, made.replicas, made.compute.strategy) == ("sgd", 1, "auto")
    kept = with_parts(config, compute={"strategy": "ddp"})
    assert baseline_config(kept).compute.strategy == "ddp"


def test_the_call_is_diagnosed(tmp_path):
    """Two cycles of three samples of four replicas; the guide is one network."""
    (x, y), _ = tiny_data()
    options = {"epochs": 40, "cycles": 2, "burn_in": 0.5, "samples_per_cycle": 3}
    posterior = sample(tiny_model(), (x, y), replicas=4, roles="both", batch_size=16, **options)
    theta, guide = posterior.diagnosis.roles
    assert (theta.mixing.draws, theta.mixing.chains, theta.replicas) == (24, 8, 4)
    assert (guide.mixing.draws, guide.mixing.chains, guide.replicas) == (6, 2, 1)
    names = [name for name, _ in posterior.model.named_parameters()]
    own = {}
    for index, entry in enumerate(posterior.samples):
        if entry.role == "theta":
            flat = torch.cat([posterior[index][name].ravel().double() for name in names])
            own.setdefault((entry.replica, entry.cycle), []).append(flat)
    pairs = [(a - b).square().sum() for g in own.values() for a, b in combinations(g, 2)]
    assert theta.weights.within == pytest.approx(float(sum(pairs) / len(pairs)) ** 0.5, rel=1e-6)
    assert {a.groups for a in theta.agreements} == {"replicas", "cycles"}
    assert set(posterior.diagnosis.movement) == {f"replica {i} of chain 0" for i in range(4)}


# Steps, kills and processes.


def test_every_replica_has_batches_of_its_own(tmp_path, monkeypatch):
    """Round s of y replicas sees the batches s·y … s·y+y−1 of the run."""
    from entropy_mcmc.run.chain import Chain

    asked = []
    plain = Chain._batch

    def batch(self, data_step, index):
        asked.append((self.sampler.current_replica, data_step))
        return plain(self, data_step, index)

    monkeypatch.setattr(Chain, "_batch", batch)
    run(replicas_config(tmp_path / "run", replicas=3, epochs=4))
    assert asked == [(step % 3, step) for step in range(12)]


def test_killed_twice_equals_uninterrupted(tmp_path):
    whole = replicas_config(tmp_path / "whole", epochs=40, momentum=0.5, clip_norm=0.8)
    killed = replace(whole, run_dir=str(tmp_path / "killed"))
    finish(whole)
    hits = kill_repeatedly(killed, 2, lines(tmp_path / "whole"), random.Random(3))
    finish(killed)
    assert hits == 2
    compare(tmp_path / "whole", tmp_path / "killed")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Two replicas in one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    finish_ranks(double_config(folder, momentum=0.5, clip_norm=0.8), 1)
    return folder


def test_a_replica_on_each_process_is_the_chain_of_one_process(tmp_path, alone):
    """Samples and the last checkpoint to 1e-9 in float64: only the order of a sum differs."""
    config = double_config(tmp_path / "two", "replicas", momentum=0.5, clip_norm=0.8)
    finish_ranks(config, 2)
    assert largest_difference(alone, tmp_path / "two") <= 1e-9
    one, two = (Journal(f).events() for f in (alone, tmp_path / "two"))
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert a.pop("kind") == b.pop("kind")
        assert a == pytest.approx(b, rel=1e-9)


PULLS = ("pull_0", "pull_1")  # of each process, which checkpoints of one process do not have


def late_config(folder, strategy="auto"):
    """A guide that moves in every fifth of 66 rounds: the last pulls wait for an exchange."""
    config = double_config(folder, strategy, momentum=0.5, exchange_every=5, eta=0.05)
    return with_parts(config, schedule={"epochs": 33})


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    """Two processes that exchange in every fifth round."""
    folder = tmp_path_factory.mktemp("late") / "run"
    finish_ranks(late_config(folder, "replicas"), 2)
    return folder


def test_processes_that_exchange_in_every_fifth_round_are_the_chain_of_one(tmp_path, late):
    """Samples and the last checkpoint, whose pulls wait, to 1e-9 in float64."""
    finish_ranks(late_config(tmp_path / "one"), 1)
    assert largest_difference(tmp_path / "one", late, more=PULLS) <= 1e-9
    newest = max((late / "checkpoint" / "chain-0").glob("*.safetensors"))
    assert int(newest.stem) % 5
    waiting = [value for name, value in load_file(newest).items() if name.endswith("/pull")]
    assert waiting
    assert all(value.abs().max() > 0 for value in waiting)


@pytest.mark.parametrize("world", [2, 1])
def test_stopped_between_two_exchanges_the_run_goes_on(tmp_path, late, world):
    """Byte for byte on two processes; on one to 1e-9, since sums have another order."""
    config = late_config(tmp_path / "run", "replicas")
    processes = start_ranks(config, 2)
    wait_for_steps(tmp_path / "run")
    for process in processes:
        os.kill(process.pid, signal.SIGTERM)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [143, 143]
    newest = max((tmp_path / "run" / "checkpoint" / "chain-0").glob("*.json"))
    assert int(newest.stem) % 5
    finish_ranks(config, world)
    if world == 2:
        assert without_config(tmp_path / "run") == without_config(late)
    else:
        assert largest_difference(tmp_path / "run", late, more=PULLS) <= 1e-9


def test_lost_process_stops_the_other_and_the_run_goes_on(tmp_path):
    """One of two processes is killed: started again, they give the whole run, byte for byte."""
    config = double_config(tmp_path / "run", "replicas")
    config = with_parts(replace(config, log_every=3), schedule={"epochs": 80})
    processes = start_ranks(config, 2)
    wait_for_steps(tmp_path / "run")
    processes[1].kill()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [1, -signal.SIGKILL]
    assert "because another one failed or was lost" in (tmp_path / "run.log0").read_text()
    finish_ranks(config, 2)
    whole = replace(config, run_dir=str(tmp_path / "whole"))
    finish_ranks(whole, 2)
    assert without_config(tmp_path / "run") == without_config(tmp_path / "whole")


def test_burn_in_is_one_network_by_default_and_coupled_on_several_processes(tmp_path):
    """One process: the recipe's "noisy"; the journal of a run that is killed is that of a whole."""
    made = run(replicas_config(tmp_path / "run", epochs=4))
    assert made.record.config.schedule.coupled == "noisy"
    spread = with_parts(replicas_config(tmp_path / "two"), compute={"strategy": "replicas"})
    assert run(spread).record.config.schedule.coupled != "noisy"


def test_one_network_in_burn_in_is_refused_on_several_processes(tmp_path):
    config = with_parts(double_config(tmp_path / "run", "replicas"), schedule={"coupled": "noisy"})
    with pytest.raises(ConfigError, match=r"coupled must be 'always' with compute.strategy='repl"):
        run(config)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "sghmc"}, "replicas must be 1 for method 'sghmc'.*use method emcmc, or --ch"),
        ({"replicas": 0}, "replicas must be a whole number of at least 1"),
    ],
)
def test_refusals(tmp_path, change, message):
    config = replicas_config(tmp_path / "run")
    with pytest.raises(ConfigError, match=message):
        run(replace(config, **change))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"replicas": 5, "batch_size": 32},
            r"^schedule.epochs=1 gives 2 gradients \(mini-batches of data.batch_size=32\), fewer "
            "than the 5 that one round of replicas=5 needs; use more epochs, smaller batches or "
            "fewer replicas$",
        ),
        (
            {"replicas": 3, "batch_size": 16, "cycles": 2},
            "gives 4 .*, fewer than the 6 that one round of replicas=3 in each of 2 cycles needs; "
            "use more epochs, smaller batches, fewer replicas or fewer cycles$",
        ),
        (
            {"replicas": 2, "batch_size": 16},
            "gives 4 .*, which is 2 rounds of replicas=2 for each cycle, and schedule.burn_in=0.75 "
            "leaves none for a sample; use .* fewer replicas or a smaller burn_in$",
        ),
        (
            {"batch_size": 64},
            "gives 1 gradient .*, which is one step for each cycle, and .*burn_in",
        ),
        (
            {"method": "sgd", "batch_size": 64, "burn_in": 0.5},
            "which is one step for each cycle, and schedule.burn_in=0.5 leaves none",
        ),
    ],
)
def test_a_budget_too_small_for_a_sample_is_refused_in_its_own_words(options, message):
    """And not by a number of samples that nobody gave."""
    data, _ = tiny_data()
    with pytest.raises(ConfigError, match=message):
        sample(tiny_model(), data, epochs=1, **options)


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        (1, "got replicas=1; use --replicas 2, or leave compute.strategy out"),
        (3, "got replicas=3; use --replicas 2, or start 3 processes or one"),
    ],
)
def test_the_remedy_for_processes_without_a_replica_each(replicas, message):
    with pytest.raises(ConfigError, match=f"replicas must be 2 on 2 processes .*{message}"):
        check_replicas(replicas, processes=2)
    check_replicas(replicas, processes=1)
    check_replicas(replicas, processes=replicas)


def test_processes_that_are_not_as_many_as_replicas_are_refused(tmp_path):
    config = replace(double_config(tmp_path / "run", "replicas"), replicas=3)
    processes = start_ranks(config, 2)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [1, 1]
    assert "replicas must be 2 on 2 processes" in (tmp_path / "run.log0").read_text()
