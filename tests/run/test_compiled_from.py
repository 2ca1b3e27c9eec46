"""A checkpoint records the step from which on steps are compiled."""

import json

import pytest

from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.runner import run
from entropy_mcmc.samplers.kernel import compiled
from run.workers import tiny_config


@pytest.mark.parametrize(("least", "expected"), [(2**16, None), (10, 10**9)])
def test_checkpoints_record_the_step(tmp_path, monkeypatch, least, expected):
    """The network has 83 weights: it is never compiled, or, where that counts as large, later."""
    monkeypatch.setattr(compiled, "SMALL_MODEL", least)
    monkeypatch.setattr(compiled, "WORTH_COMPILING", 83 * 10**9)
    config = tiny_config(tmp_path / "run", "emcmc", epochs=4)
    run(with_parts(config, sampler={"fused": "auto"}))
    files = sorted((tmp_path / "run" / "checkpoint" / "chain-0").glob("*.json"))
    assert json.loads(files[-1].read_text())["numbers"]["compiled_from"] == expected
