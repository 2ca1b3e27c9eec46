"""Attacks that take long: a disk that is really full, and several commands in one folder."""

import shutil
import subprocess
from dataclasses import replace

import pytest

from run.workers import contents, finish, start, tiny_config, wait_for_steps


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 200 kB, where this process may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here (it needs root)")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.soak
def test_a_full_disk_and_then_a_larger_one(tmp_path, small_disk):
    """The run stops with one message, and goes on to the samples of an uninterrupted one."""
    whole = tiny_config(tmp_path / "whole", "emcmc", epochs=200, cycles=40)
    config = replace(whole, run_dir=str(small_disk / "run"))
    finish(whole)
    process = start(config)
    process.join()
    assert process.exitcode == 1
    assert "the disk is full" in (small_disk / "run.log").read_text()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    finish(config)
    one, two = contents(tmp_path / "whole"), contents(small_disk / "run")
    one.pop("config.yaml"), two.pop("config.yaml")
    assert one == two


@pytest.mark.soak
def test_four_commands_in_one_folder(tmp_path):
    """One works, the others are refused and change nothing."""
    whole = replace(tiny_config(tmp_path / "whole", "sgld"), loss="run.workers:slow_loss")
    config = replace(whole, run_dir=str(tmp_path / "run"))
    finish(whole)
    for _ in range(5):
        processes = [start(config) for _ in range(4)]
        wait_for_steps(tmp_path / "run")
        for process in processes:
            process.join()
        assert sorted(process.exitcode for process in processes).count(0) >= 1
        assert {process.exitcode for process in processes} <= {0, 1}
        one, two = contents(tmp_path / "whole"), contents(tmp_path / "run")
        one.pop("config.yaml"), two.pop("config.yaml")
        assert one == two
        shutil.rmtree(tmp_path / "run")
