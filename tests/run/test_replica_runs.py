"""Runs with replicas: samples, budget, kills, and one replica on each process, on gloo."""

import random
import signal
from collections import Counter
from dataclasses import replace

import pytest
import yaml

from entropy_mcmc import Posterior
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.diagnose import diagnosis_of
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.runner import run
from run.test_ranks import largest_difference, without_config
from run.test_resume import compare, kill_repeatedly, lines
from run.workers import finish, finish_ranks, start_ranks, tiny_config, tiny_model, wait_for_steps


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


def test_processes_that_are_not_as_many_as_replicas_are_refused(tmp_path):
    config = replace(double_config(tmp_path / "run", "replicas"), replicas=3)
    processes = start_ranks(config, 2)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [1, 1]
    assert "replicas=3 on 2 processes" in (tmp_path / "run.log0").read_text()
