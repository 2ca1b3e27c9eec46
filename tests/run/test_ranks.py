"""One chain over several processes: the same chain as on one, on gloo."""

import signal
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from run.workers import finish_ranks, start_ranks, tiny_config, wait_for_steps


def double_config(folder, method="emcmc", strategy="auto", epochs=5):
    """20 steps for methods with one gradient per step, 4 micro-batches of 4 rows, float64."""
    config = tiny_config(folder, method, epochs=epochs, cycles=1)
    compute = replace(
        config.compute, precision="64-true", micro_batches=4, strategy=strategy, timeout=60.0
    )
    return replace(config, compute=compute)


def largest_difference(first, second):
    """Over the last checkpoint and all samples."""
    names = [p.relative_to(first) for p in (first / "samples").glob("*.safetensors")]
    newest = max((first / "checkpoint" / "chain-0").glob("*.safetensors"))
    worst = 0.0
    for name in [*names, newest.relative_to(first)]:
        one, two = load_file(first / name), load_file(second / name)
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


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_ranks_make_the_chain_of_one(tmp_path, alone, strategy):
    finish_ranks(double_config(tmp_path / "two", strategy=strategy), 2)
    assert largest_difference(alone, tmp_path / "two") <= 1e-9
    digests = {(tmp_path / f"two.rank{rank}").read_text() for rank in range(2)}
    assert len(digests) == 1, "replicas differ"


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
    assert "another one was lost" in (tmp_path / "run.log0").read_text()
    finish_ranks(config, 1)
    finish_ranks(whole, 1)
    assert largest_difference(tmp_path / "run", tmp_path / "whole") <= 1e-9
