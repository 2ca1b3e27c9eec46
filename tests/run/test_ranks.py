"""One chain over several processes: the same chain as on one, on gloo."""

import os
import signal
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.run_folder import lock, read_existing
from run.workers import (
    contents,
    finish_ranks,
    start_ranks,
    tiny_config,
    wait_for_steps,
)


def double_config(folder, method="emcmc", strategy="auto", epochs=5):
    """20 steps for methods with one gradient per step, 4 micro-batches of 4 rows, float64."""
    config = tiny_config(folder, method, epochs=epochs, cycles=1)
    compute = replace(
        config.compute, precision="64-true", micro_batches=4, strategy=strategy, timeout=60.0
    )
    return replace(config, compute=compute)


def largest_difference(first, second, more=()):
    """Over the last checkpoint and all samples; `more` are variables that only one may have."""
    names = [p.relative_to(first) for p in (first / "samples").glob("*.safetensors")]
    newest = max((first / "checkpoint" / "chain-0").glob("*.safetensors"))
    worst = 0.0
    for name in [*names, newest.relative_to(first)]:
        one, two = (
            {k: v for k, v in load_file(folder / name).items() if k.rpartition("/")[2] not in more}
            for folder in (first, second)
        )
        assert one.keys() == two.keys()
        worst = max(worst, *((one[k].double() - two[k].double()).abs().max() for k in one))
    assert len(names) >= 1
    return float(worst)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run of one process that accumulates the four micro-batches."""
    folder = tmp_path_factory.mktemp("alone") / "emcmc"
    finish_ranks(double_config(folder), 1)
    return folder


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    """The run of two processes with DDP."""
    folder = tmp_path_factory.mktemp("spread") / "two"
    finish_ranks(double_config(folder, strategy="ddp"), 2)
    return folder


def digests(folder):
    return {folder.with_name(f"{folder.name}.rank{rank}").read_text() for rank in range(2)}


def test_two_ranks_make_the_chain_of_one(alone, spread):
    assert largest_difference(alone, spread) <= 1e-9
    assert len(digests(spread)) == 1, "replicas differ"


def test_shards_make_the_chain_of_one_and_of_ddp(tmp_path, alone, spread):
    finish_ranks(double_config(tmp_path / "two", strategy="fsdp2"), 2)
    assert largest_difference(alone, tmp_path / "two") <= 1e-9
    assert largest_difference(spread, tmp_path / "two") <= 1e-9
    assert len(digests(tmp_path / "two")) == 1, "replicas differ"


@pytest.mark.parametrize("method", ["sam", "entropy-sgld"])
def test_two_ranks_make_the_chain_of_one_with_closures(tmp_path, method):
    for name, world in (("one", 1), ("two", 2)):
        finish_ranks(double_config(tmp_path / name, method), world)
    assert largest_difference(tmp_path / "one", tmp_path / "two") <= 1e-9


def test_lost_rank_stops_the_other_and_one_rank_goes_on(tmp_path):
    config = replace(
        double_config(tmp_path / "run", epochs=40), loss="run.workers:slow_loss", log_every=5
    )
    whole = replace(config, run_dir=str(tmp_path / "whole"))
    processes = start_ranks(config, 2)
    wait_for_steps(tmp_path / "run")
    processes[1].kill()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [1, -signal.SIGKILL]
    assert "because another one failed or was lost" in (tmp_path / "run.log0").read_text()
    finish_ranks(config, 1)
    finish_ranks(whole, 1)
    assert largest_difference(tmp_path / "run", tmp_path / "whole") <= 1e-9


def chains_config(folder, method="emcmc", chains=4, epochs=20):
    """Chains that ranks share out among themselves, slow enough to be killed."""
    config = tiny_config(folder, method, epochs=epochs)
    compute = replace(config.compute, strategy="chains", timeout=60.0)
    return replace(config, compute=compute, chains=chains, loss="run.workers:slow_loss")


def without_config(folder):
    return {name: value for name, value in contents(folder).items() if name != "config.yaml"}


def test_lines_after_a_resume_of_two_ranks_are_those_of_an_uninterrupted_run(tmp_path):
    """The stop falls between two lines: each rank goes on with its own part of the mean loss."""
    whole = replace(
        double_config(tmp_path / "whole", strategy="ddp", epochs=20),
        loss="run.workers:slow_loss",
    )
    stopped = replace(whole, run_dir=str(tmp_path / "stopped"))
    finish_ranks(whole, 2)
    processes = start_ranks(stopped, 2)
    wait_for_steps(tmp_path / "stopped")
    for process in processes:
        os.kill(process.pid, signal.SIGTERM)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [143, 143]
    finish_ranks(stopped, 2)
    one, two = (Journal(tmp_path / name).events() for name in ("whole", "stopped"))
    assert one == two


@pytest.fixture(scope="module")
def one_after_another(tmp_path_factory):
    """Three chains of one process."""
    folder = tmp_path_factory.mktemp("sequence") / "run"
    finish_ranks(chains_config(folder, chains=3), 1)
    return folder


def test_chains_of_two_ranks_are_those_of_one_process(tmp_path, one_after_another):
    """Three chains, so that one rank has two of them: all files are the same, byte by byte."""
    finish_ranks(chains_config(tmp_path / "run", chains=3), 2)
    files = without_config(tmp_path / "run")
    assert files == without_config(one_after_another)
    assert sum(name.startswith("samples/") for name in files) == 3 * 4 + 1


@pytest.mark.parametrize("lost", [0, 1])
def test_lost_rank_stops_the_other_chains_which_go_on(tmp_path, one_after_another, lost):
    config = chains_config(tmp_path / "run", chains=3)
    processes = start_ranks(config, 2)
    wait_for_steps(tmp_path / "run", f"metrics.chain-{lost}.jsonl")
    processes[lost].kill()
    for process in processes:
        process.join()
    codes = [1, 1]
    codes[lost] = -signal.SIGKILL
    assert [process.exitcode for process in processes] == codes
    log = (tmp_path / f"run.log{1 - lost}").read_text()
    assert f"process {lost} was lost; " in log
    assert "run the same command again" in log
    assert "with any number of processes" in log
    finish_ranks(config, 2)
    assert without_config(tmp_path / "run") == without_config(one_after_another)


def test_rank_that_waits_for_another_is_told_of_its_loss(tmp_path):
    """Rank 1 has finished its chain when rank 0 is killed in the middle of its second one."""
    config = chains_config(tmp_path / "run", chains=3, epochs=200)
    processes = start_ranks(config, 2)
    wait_for_steps(tmp_path / "run", "metrics.chain-2.jsonl")
    wait_for_steps(tmp_path / "run", "checkpoint/chain-1/000000000800.json")
    processes[0].kill()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [-signal.SIGKILL, 1]
    said = "process 0 was lost; the chains of process 1 are finished"
    assert said in (tmp_path / "run.log1").read_text()


def test_chains_go_on_with_one_rank(tmp_path, one_after_another):
    config = chains_config(tmp_path / "run", chains=3)
    processes = start_ranks(config, 2)
    wait_for_steps(tmp_path / "run", "metrics.chain-1.jsonl")
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
    assert {process.exitcode for process in processes} <= {1, 128 + signal.SIGTERM}
    finish_ranks(config, 1)
    files, wanted = without_config(tmp_path / "run"), without_config(one_after_another)
    # The journal has the same lines, but those of both interrupted chains come first.
    del files["metrics.jsonl"], wanted["metrics.jsonl"]
    assert files == wanted
    one, two = (
        sorted((folder / "metrics.jsonl").read_text().splitlines())
        for folder in (tmp_path / "run", one_after_another)
    )
    assert one == two


def test_without_a_number_there_is_a_chain_for_each_rank_also_later(tmp_path):
    config = replace(chains_config(tmp_path / "run", epochs=4), chains=None)
    finish_ranks(config, 2)
    before = contents(tmp_path / "run")
    assert read_existing(tmp_path / "run").config.chains == 2
    finish_ranks(config, 1)
    assert contents(tmp_path / "run") == before


def test_error_of_one_chain_stops_the_others(tmp_path):
    config = chains_config(tmp_path / "run", chains=2, epochs=400)
    config = replace(config, loss="run.workers:loss_that_fails_on_rank_1")
    processes = start_ranks(config, 2)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [1, 1]
    assert "process 1 stopped with an error" in (tmp_path / "run.log0").read_text()
    assert "NaN or infinite" in (tmp_path / "run.log1").read_text()


def test_folder_taken_by_another_stops_all_ranks_with_a_message(tmp_path):
    held = lock(tmp_path / "run")
    processes = start_ranks(chains_config(tmp_path / "run"), 2)
    for process in processes:
        process.join()
    held.release()
    assert [process.exitcode for process in processes] == [1, 1]
    assert "is used by another process" in (tmp_path / "run.log0").read_text()
    assert "process 0 stopped before the first step" in (tmp_path / "run.log1").read_text()


def test_error_of_another_rank_before_the_first_step_is_explained(tmp_path):
    config = with_parts(
        double_config(tmp_path / "run"), data={"name": "run.workers:data_that_is_missing_on_rank_1"}
    )
    processes = start_ranks(config, 2)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [1, 1]
    assert "the files are not there" in (tmp_path / "run.log1").read_text()
    assert "another one failed or was lost" in (tmp_path / "run.log0").read_text()
