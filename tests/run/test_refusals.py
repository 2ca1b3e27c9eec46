"""What cannot work is refused with one message, and before any file is written."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from entropy_mcmc.cli import main
from entropy_mcmc.data import load
from entropy_mcmc.errors import ConfigError, DamagedFileError, StateError
from entropy_mcmc.run import sample
from entropy_mcmc.run.checkpoint import Checkpoint, explained
from entropy_mcmc.run.checkpoint import save as save_checkpoint
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.devices import check_device
from entropy_mcmc.run.flatness_command import flatness_command
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.other_processes import WORKING, Peers
from entropy_mcmc.run.predict import read_inputs
from entropy_mcmc.run.runner import run
from run.workers import TRUSTED, tiny_config, tiny_data, tiny_model

SHORT = {"epochs": 4, "cycles": 1, "batch_size": 16, "samples_per_cycle": 1, "burn_in": 0.5}


@pytest.mark.parametrize("more", [-1, 0, 1.5])
def test_more_cycles_must_be_a_number_of_cycles(tmp_path, more):
    config = tiny_config(tmp_path / "run", "sgld", epochs=4)
    run(config)
    before = (tmp_path / "run" / "config.yaml").read_bytes()
    with pytest.raises(ConfigError, match="more_cycles must be a whole number of at least 1"):
        run(config, more_cycles=more)
    assert (tmp_path / "run" / "config.yaml").read_bytes() == before


FIRST_STARTS = {
    "roles": (lambda c: replace(c, roles="guide"), "has no guide"),
    "samples": (lambda c: with_parts(c, schedule={"samples_per_cycle": 500}), "samples_per_cycle"),
    "lr": (lambda c: with_parts(c, sampler={"temperature": -1.0}), "temperature"),
    "workers": (
        lambda c: with_parts(c, data={"workers": 2, "name": "run.workers:tiny_items"}),
        "data.workers must be 0",
    ),
}


@pytest.mark.parametrize(("change", "message"), FIRST_STARTS.values(), ids=FIRST_STARTS)
def test_a_refused_first_start_leaves_no_config(tmp_path, change, message):
    config = tiny_config(tmp_path / "run", "sgld", epochs=4)
    with pytest.raises(ConfigError, match=message):
        run(change(config))
    assert not (tmp_path / "run" / "config.yaml").exists()
    assert len(run(config).posterior) == 2  # the corrected command is not refused


def test_more_cycles_at_the_first_start(tmp_path):
    config = tiny_config(tmp_path / "run", "sgld", epochs=4)
    with pytest.raises(StateError, match="has not begun, got 2"):
        run(config, more_cycles=2)
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize("name", ["foo", "meta", "cuda:99", "cpu:-3"])
def test_devices_that_are_not_there(name, tmp_path, capsys):
    with pytest.raises(ConfigError, match="device must be one that is here"):
        check_device(name)
    assert main(["evaluate", str(tmp_path), "--device", name]) == 1
    assert "device must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"options": {"limt": 3}}, "no option data.options.limt .*limit.*, got 3; they have"),
        ({"options": {"split": "test"}}, "no option data.options.split"),
        ({"name": "run.workers:tiny_data", "options": {"lines": 3}}, "it takes rows"),
    ],
)
def test_unknown_options_of_data(tmp_path, part, message):
    config = with_parts(RunConfig(run_dir=str(tmp_path / "run")), data=part)
    with pytest.raises(ConfigError, match=message):
        run(config)


def test_unknown_options_of_a_model(tmp_path):
    config = tiny_config(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"model.options do not fit tiny_model .*it takes none"):
        run(with_parts(config, model={"options": {"width": 3}}))


X, Y = tiny_data()[0]
WRONG_DATA = {
    "none": (None, "data must be given, got None"),
    "x only": (X, r"got one array of shape \(64, 4\)"),
    "items of x only": (torch.utils.data.TensorDataset(X), "must be pairs .*got items of 1 parts"),
    "complex": ((X.to(torch.complex64), Y), "inputs must be real numbers, got torch.complex64"),
    "complex items": (
        torch.utils.data.TensorDataset(X.to(torch.complex64), Y),
        "inputs must be real numbers",
    ),
    "complex targets": ((X, Y.to(torch.complex64)), "targets must be real numbers"),
    "label": ((X, Y + 10**8), "labels must be less than 100000, got 10000000"),
    "0-d": ((X, Y[0]), "targets must have one entry for each row"),
    "no train": ({"test": (X, Y)}, "must have an entry train, got test"),
}


@pytest.mark.parametrize(("data", "message"), WRONG_DATA.values(), ids=WRONG_DATA)
def test_data_that_cannot_be_learned_from(tmp_path, data, message):
    with pytest.raises(ConfigError, match=message):
        sample(tiny_model, data, run_dir=tmp_path / "run", **SHORT)
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, "model must be given, got None"),
        (nn.Linear(4, 3, device="meta"), "weight on the meta device"),
    ],
)
def test_models_that_cannot_learn(tmp_path, model, message):
    with pytest.raises(ConfigError, match=message):
        sample(model, (X, Y), run_dir=tmp_path / "run", **SHORT)


@pytest.mark.parametrize("lr", [0, -0.1])
def test_a_learning_rate_of_zero_is_called_so(tmp_path, lr):
    with pytest.raises(ConfigError, match=r"sampler.lr must be greater than 0, got sampler.lr="):
        sample(tiny_model, (X, Y), run_dir=tmp_path / "run", lr=lr, **SHORT)


def archive(path, **arrays):
    whole = {"x_train": np.zeros((4, 2)), "y_train": np.arange(4), **arrays}
    np.savez_compressed(path, **whole, x_test=whole["x_train"], y_test=whole["y_train"])
    return path


def with_shape(path, old, new):
    """The archive with another shape in the header of an array, and nothing compressed."""
    import zipfile

    with zipfile.ZipFile(path) as archived:
        members = {name: archived.read(name) for name in archived.namelist()}
    with zipfile.ZipFile(path, "w") as changed:
        for name, content in members.items():
            changed.writestr(name, content.replace(old, new))
    return path


WRONG_ARCHIVES = {
    "truncated": lambda p: p.write_bytes(archive(p).read_bytes()[:300]),
    "misnamed": lambda p: p.write_text("1,2,3"),
    "an array": lambda p: p.write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', }"),
    "empty": lambda p: p.write_bytes(b""),
    "huge": lambda p: with_shape(archive(p), b"(4, 2), }", b"(4, 2222222222222222), }"),
    "bomb": lambda p: archive(p, x_train=np.zeros((4, 10**7 * 2), dtype=np.uint8)),
    "label": lambda p: archive(p, y_train=np.array([0, 1, 2, 10**8])),
    "0-d": lambda p: archive(p, y_train=np.array(3)),
    "x only": lambda p: np.savez(p, x_train=np.zeros((4, 2))),
    "complex": lambda p: archive(p, x_train=np.zeros((4, 2), dtype=complex)),
}


@pytest.mark.parametrize("make", WRONG_ARCHIVES.values(), ids=WRONG_ARCHIVES)
def test_archives_that_are_damaged(tmp_path, make, monkeypatch):
    monkeypatch.setattr("entropy_mcmc.data.tabular.LARGEST_UNPACKED", 10**7)
    path = tmp_path / "data.npz"
    make(path)
    with pytest.raises((DamagedFileError, ConfigError)):
        load("npz", folder=path)


@pytest.mark.parametrize("place", range(0, 100, 7))
def test_a_flipped_bit_in_an_archive(tmp_path, place):
    """It is noticed, or it is in a field that does not matter, such as a time."""
    path = archive(tmp_path / "data.npz")
    whole = load("npz", folder=path)
    content = bytearray(path.read_bytes())
    content[place * len(content) // 100] ^= 0x10
    path.write_bytes(content)
    try:
        other = load("npz", folder=path)
    except (DamagedFileError, ConfigError):
        return
    assert torch.equal(other.inputs, whole.inputs)


def test_inputs_to_predict_that_are_damaged(tmp_path):
    path = tmp_path / "in.npz"
    np.savez(path, x=np.zeros((3, 4)))
    assert read_inputs(path).shape == (3, 4)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DamagedFileError, match="no archive of plain arrays"):
        read_inputs(path)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe{}\n", b"[" * 100_000, b'{"kind": "train", "chain": 0}\n']
)
def test_journal_that_is_damaged(tmp_path, content):
    journal = Journal(tmp_path)
    journal.append({"kind": "train", "chain": 0, "step": 1})
    journal.path.write_bytes(content + journal.path.read_bytes())
    with pytest.raises(DamagedFileError, match=r"metrics.jsonl is damaged .*restore it"):
        journal.events()


def test_flatness_where_nothing_can_be_written(tmp_path):
    config = tiny_config(tmp_path / "run", "sgd", epochs=2)
    run(config)
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="the folder cannot be written"):
        flatness_command([config.run_dir], output=str(tmp_path / "file" / "out"), trust=TRUSTED)


def test_the_checkpoint_is_named_only_where_there_is_one(tmp_path):
    def message():
        with pytest.raises(StateError) as caught, explained(tmp_path):
            raise OSError(28, "No space left on device")
        return str(caught.value)

    assert "last checkpoint" not in message()
    save_checkpoint(tmp_path / "checkpoint" / "chain-0", Checkpoint(3, {"a": X}, {}))
    assert "the last checkpoint is intact" in message()


def test_evaluating_while_a_run_writes_keeps_nothing(tmp_path, capsys):
    """The journal's lines stay, and the run makes the last evaluation itself."""
    from entropy_mcmc.run.run_folder import lock

    journal = Journal(tmp_path)
    journal.append({"kind": "train", "chain": 0, "step": 1})
    held = lock(tmp_path)
    assert journal.replace_evaluations([{"set": "test", "who": "early"}]) is False
    journal.append({"kind": "train", "chain": 0, "step": 2})
    held.release()
    assert journal.replace_evaluations([{"set": "test", "who": "last"}]) is True
    kinds = [(e["kind"], e.get("who", e.get("step"))) for e in journal.events()]
    assert kinds == [("train", 1), ("train", 2), ("evaluate", "last")]


def test_evaluate_command_during_a_run(tmp_path, capsys):
    config = tiny_config(tmp_path / "run", "sgld", epochs=4)
    run(config)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    from entropy_mcmc.run.run_folder import lock

    held = lock(tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run"), "--corruptions", "[none]", "--trust"]) == 0
    held.release()
    said = capsys.readouterr()
    assert "accuracy" in said.out
    assert "are not kept" in said.err
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def silent_peers(timeout):
    """What a process sees whose peer does not say anything."""
    peers = object.__new__(Peers)
    peers.rank, peers.others, peers.timeout = 0, [1], timeout
    peers._heard, peers._last = {}, {1: 0.0}
    return peers


def test_a_hung_process_is_not_waited_for_beyond_the_timeout():
    with pytest.raises(StateError, match=r"process 1 has said nothing for .*--compute.timeout; ok"):
        silent_peers(0.05).wait("ok")


def test_a_process_that_works_is_waited_for(monkeypatch):
    """By a clock of its own: on a loaded machine 0.02 s of sleep may last 0.3 s."""
    peers, now, said = silent_peers(0.2), [100.0], []

    def working(seconds):
        now[0] += seconds
        peers._last[1] = now[0]  # what the listening thread does at WORKING
        said.append(WORKING)
        if len(said) > 40:  # four times the timeout
            peers._heard[1] = 0

    clock = SimpleNamespace(sleep=working, monotonic=lambda: now[0])
    monkeypatch.setattr("entropy_mcmc.run.other_processes.time", clock)
    peers.wait("ok")
    assert now[0] > 100.0 + 4 * peers.timeout


def test_deep_json_of_a_checkpoint(tmp_path):
    from entropy_mcmc.run.checkpoint import read_meta

    path = tmp_path / "000000000003.json"
    path.write_text("[" * 100_000)
    with pytest.raises(DamagedFileError, match="is damaged"):
        read_meta(path)
    path.write_text(json.dumps({"step": 4, "numbers": {}}))
    with pytest.raises(DamagedFileError, match="its step is 4"):
        read_meta(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedFileError, match="no regular file"):
        read_meta(path)


def test_deep_json_beside_a_run_is_as_good_as_none(tmp_path):
    from entropy_mcmc.report.run_data import _json, read_flatness

    for name in ("diagnostics.json", "flatness.json"):
        (tmp_path / name).write_text("[" * 100_000)
    assert _json(tmp_path / "diagnostics.json") is None
    assert read_flatness(tmp_path) is None
