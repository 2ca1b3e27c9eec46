"""Killed at any moment, the same command gives bit for bit the run of one that was not."""

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from entropy_mcmc.run.config import METHODS, with_parts
from run.workers import contents, finish, start, tiny_config, wait_for_steps


def with_slow_loss(config):
    return replace(config, loss="run.workers:slow_loss")


def lines(folder):
    """How far a run is: lines of its journal."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_repeatedly(config, kills, until, clock, since=0, more_cycles=None):
    """SIGKILL `kills` times, spread over the journal's lines from `since` to 0.85 of `until`.

    The first thing that a kill waits for is progress, not time, so that a slow machine does not
    move it; then up to 20 ms, so that it falls anywhere between two lines, writes included.
    Returns how many kills met a living process.
    """
    hits = 0
    for kill in range(kills):
        target = since + (until - since) * 0.85 * (kill + clock.random()) / kills
        process = start(config, more_cycles)
        while process.is_alive() and lines(Path(config.run_dir)) < int(target):
            time.sleep(0.001)
        time.sleep(clock.uniform(0.0, 0.02))
        hits += process.is_alive()
        process.kill()
        process.join()
    return hits


def killed_equals_whole(tmp_path, method, kills, epochs):
    whole = with_slow_loss(tiny_config(tmp_path / "whole", method, epochs=epochs))
    if method == "sgld":  # the journal counts clipped gradients
        whole = with_parts(whole, sampler={"clip_norm": 0.8})
    killed = replace(whole, run_dir=str(tmp_path / "killed"))
    finish(whole)
    clock = random.Random(f"{kills} kills of {method}")
    hits = kill_repeatedly(killed, kills, lines(tmp_path / "whole"), clock)
    finish(killed)
    assert hits == kills
    compare(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize("method", METHODS)
def test_killed_twice_equals_uninterrupted(tmp_path, method):
    killed_equals_whole(tmp_path, method, kills=2, epochs=40)


@pytest.mark.soak
@pytest.mark.parametrize("method", METHODS)
def test_killed_twenty_times_equals_uninterrupted(tmp_path, method):
    killed_equals_whole(tmp_path, method, kills=20, epochs=500)


def compare(first, second):
    """Equal but for the name of the folder in config.yaml."""
    one, two = contents(first), contents(second)
    assert one.pop("config.yaml") != two.pop("config.yaml")
    assert one == two
    assert any(name.endswith(".safetensors") for name in one)
    lines = (first / "config.yaml").read_text().splitlines()
    assert lines[1:] == (second / "config.yaml").read_text().splitlines()[1:]


def test_extension_killed_and_repeated_is_one_extension(tmp_path):
    whole = tiny_config(tmp_path / "whole", "emcmc", epochs=20, cycles=2)
    killed = with_slow_loss(replace(whole, run_dir=str(tmp_path / "killed")))
    whole = with_slow_loss(whole)
    for config in (whole, killed):
        finish(config)
    first, before = contents(tmp_path / "whole"), lines(tmp_path / "whole")
    finish(whole, more_cycles=2)
    until = lines(tmp_path / "whole")
    assert kill_repeatedly(killed, 1, until, random.Random(1), before, more_cycles=2) == 1
    finish(killed, more_cycles=2)
    compare(tmp_path / "whole", tmp_path / "killed")
    # What the first cycles gave stays as it was.
    longer = contents(tmp_path / "whole")
    samples = {name: value for name, value in first.items() if name.startswith("samples/0")}
    assert samples.items() <= longer.items()
    assert len(longer) > len(first)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_checkpoints_says_so_and_exits(tmp_path, signum, code):
    config = with_slow_loss(tiny_config(tmp_path / "run", "sgld", epochs=2000))
    config = replace(config, output=replace(config.output, checkpoint_seconds=3600.0))
    process = start(config)
    wait_for_steps(tmp_path / "run")
    os.kill(process.pid, signum)
    process.join()
    assert process.exitcode == code
    assert "run the same command again to go on" in (tmp_path / "run.log").read_text()
    assert len(list((tmp_path / "run" / "checkpoint" / "chain-0").glob("*.json"))) == 1


def test_second_process_is_refused(tmp_path):
    config = with_slow_loss(tiny_config(tmp_path / "run", "sgld", epochs=2000))
    first = start(config)
    wait_for_steps(tmp_path / "run")
    second = start(config)
    second.join()
    first.kill()
    first.join()
    assert second.exitcode == 1
    assert "is used by another process" in (tmp_path / "run.log").read_text()
