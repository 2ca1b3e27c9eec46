"""The compiled step inside runs: killed and resumed, and over two processes."""

import random
from dataclasses import replace

import pytest

from entropy_mcmc.run.config import with_parts
from entropy_mcmc.samplers.kernel import compiled as fused
from run.test_ranks import double_config, largest_difference
from run.test_resume import compare, kill_repeatedly, lines, with_slow_loss
from run.workers import finish, finish_ranks, tiny_config

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not fused.available("cpu"), reason="no compiler on this machine"),
]


@pytest.mark.parametrize("replicas", [1, 2])
def test_killed_twice_equals_uninterrupted(tmp_path, replicas):
    whole = with_slow_loss(tiny_config(tmp_path / "whole", "emcmc", epochs=300))
    whole = replace(with_parts(whole, sampler={"fused": "yes"}), replicas=replicas)
    if replicas > 1:
        whole = with_parts(whole, sampler={"integrator": "baoab"})
    killed = replace(whole, run_dir=str(tmp_path / "killed"))
    finish(whole)
    until = lines(tmp_path / "whole")
    assert kill_repeatedly(killed, 2, until, random.Random("2 kills, compiled")) == 2
    finish(killed)
    compare(tmp_path / "whole", tmp_path / "killed")
    assert "step_path: 'yes'" in (tmp_path / "whole" / "config.yaml").read_text()


@pytest.mark.parametrize(("precision", "limit"), [("64-true", 1e-9), ("32-true", 1e-4)])
def test_two_ranks_make_the_chain_of_one(tmp_path, precision, limit):
    """20 steps with batch norm; in float32 the order of a sum costs 1e-7, which the steps grow."""
    for name, world in (("one", 1), ("two", 2)):
        config = with_parts(
            double_config(tmp_path / name),
            sampler={"fused": "yes"},
            compute={"precision": precision, "micro_batches": 2, "strategy": "ddp"},
        )
        finish_ranks(config, world)
    assert largest_difference(tmp_path / "one", tmp_path / "two") <= limit
    digests = {(tmp_path / f"two.rank{rank}").read_text() for rank in range(2)}
    assert len(digests) == 1, "replicas differ"
