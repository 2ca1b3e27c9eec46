"""A store or checkpoint that is lost or damaged is noticed; old folders without checksums open."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from entropy_mcmc.errors import DamagedFileError
from entropy_mcmc.run import checkpoint as checkpoints
from entropy_mcmc.run.checkpoint import Checkpoint
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.run_folder import lock
from entropy_mcmc.run.runner import run
from entropy_mcmc.run.signals import Interrupted, Interrupts
from run.workers import tiny_config


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run with two samples of each role."""
    config = tiny_config(tmp_path_factory.mktemp("finished") / "run", "emcmc", epochs=8)
    run(config)
    return config


@pytest.fixture
def copy(finished, tmp_path):
    shutil.copytree(finished.run_dir, tmp_path / "run")
    return replace(finished, run_dir=str(tmp_path / "run")), tmp_path / "run"


def newest(folder, kind="json"):
    return max((folder / "checkpoint" / "chain-0").glob(f"*.{kind}"))


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_finished_run_notices_that_its_samples_are_gone(copy):
    config, folder = copy
    shutil.rmtree(folder / "samples")
    with pytest.raises(DamagedFileError, match=r"the samples are lost; restore .*samples from"):
        run(config)
    assert not (folder / "samples").exists()  # a copy can be put there


def test_a_store_that_was_made_anew_is_noticed(copy, tmp_path):
    """As after `rm -r samples/` and a version that then went on."""
    config, folder = copy
    other = with_parts(config, schedule={"epochs": 2})
    run(replace(other, run_dir=str(tmp_path / "other")))
    shutil.rmtree(folder / "samples")
    shutil.copytree(tmp_path / "other" / "samples", folder / "samples")
    with pytest.raises(DamagedFileError, match=r"some are lost or not those that were stored"):
        run(config)


def test_more_samples_than_the_checkpoint_counts_resume(tmp_path, monkeypatch):
    """What a kill between the manifest and the checkpoint leaves."""
    config = tiny_config(tmp_path / "run", "emcmc", epochs=8)
    monkeypatch.setattr(Interrupts, "received", 15, raising=False)
    monkeypatch.setattr(Interrupts, "__init__", lambda self: setattr(self, "_old", {}))
    with pytest.raises(Interrupted):
        run(config)  # stops after its first step, with a checkpoint
    monkeypatch.undo()
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "run" / "checkpoint", before)
    whole = run(config).posterior
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    shutil.copytree(before, tmp_path / "run" / "checkpoint")
    again = run(config).posterior
    assert [s.file.sha256 for s in again.samples] == [s.file.sha256 for s in whole.samples]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["numbers"]["groups"][0].update(seed=c["numbers"]["groups"][0]["seed"] ^ 1),
        lambda c: c.update(step=c["step"] + 1),
        lambda c: c["samples"].update(count=0),
        lambda c: c.update(numbers={}),
    ],
    ids=["seed", "step", "count", "numbers"],
)
def test_a_flipped_bit_in_the_json_is_noticed(copy, change):
    config, folder = copy
    for path in (folder / "checkpoint" / "chain-0").glob("*.json"):
        edit(path, change)
    with pytest.raises(DamagedFileError, match="no whole checkpoint is left"):
        run(config)


def test_an_old_checkpoint_is_used_unverified(copy, capsys):
    config, folder = copy

    def older(content):
        del content["checksum"], content["samples"]

    for path in (folder / "checkpoint" / "chain-0").glob("*.json"):
        edit(path, older)
    assert len(run(config).posterior) == 4
    assert "used unverified" in capsys.readouterr().err


def test_a_checkpoint_with_empty_numbers_is_one_message(copy):
    config, folder = copy

    def empty(content):
        del content["checksum"]
        content["numbers"] = {}

    edit(newest(folder), empty)
    with pytest.raises(DamagedFileError, match=r"does not fit this run .*KeyError"):
        run(config)


def test_a_pipe_in_the_place_of_a_checkpoint_does_not_hang(tmp_path):
    import os

    checkpoints.save(tmp_path, Checkpoint(3, {"a": torch.zeros(2)}, {"n": 1}))
    for kind in ("safetensors", "json"):
        path = tmp_path / f"000000000003.{kind}"
        kept = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(DamagedFileError, match="000000000003"):
            checkpoints.load(tmp_path)
        path.unlink()
        path.write_bytes(kept)
    assert checkpoints.load(tmp_path).numbers == {"n": 1}


def test_files_left_by_kills_are_removed(tmp_path):
    (tmp_path / "checkpoint" / "chain-0").mkdir(parents=True)
    left = [".tmp-12-config.yaml", "checkpoint/chain-0/.tmpA1b2C3", "checkpoint/chain-0/.tmp-7-x"]
    for name in [*left, "mine.txt", "checkpoint/chain-0/mine"]:
        (tmp_path / name).write_text("x")
    lock(tmp_path).release()
    assert not any((tmp_path / name).exists() for name in left)
    assert (tmp_path / "mine.txt").exists()
    assert (tmp_path / "checkpoint/chain-0/mine").exists()
