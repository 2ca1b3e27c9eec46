"""What goes wrong stops a run with one clear message, a non-zero code, and whole checkpoints."""

import resource
from dataclasses import replace

import pytest
import torch
import yaml
from torch import nn

from entropy_mcmc.cli import guarded
from entropy_mcmc.errors import ConfigError, DamagedFileError, NonFiniteError, StateError
from entropy_mcmc.run import checkpoint as checkpoints
from entropy_mcmc.run import sample
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.run_folder import lock
from entropy_mcmc.run.runner import run
from run.workers import CONTEXT, contents, finish, tiny_config, tiny_data, tiny_model, work

SHORT = {"epochs": 4, "cycles": 1, "batch_size": 16, "samples_per_cycle": 1, "burn_in": 0.5}


def limited(config, limit):
    """A worker that may not write files longer than `limit` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    work(config)


def test_divergence_keeps_the_last_good_checkpoint(tmp_path, capsys):
    config = with_parts(
        tiny_config(tmp_path / "run", "sgd", epochs=400),
        sampler={"lr": 30.0, "momentum": 0.0, "weight_decay": 1.0},
        output={"checkpoint_seconds": 1e-6},
    )
    code = guarded(lambda: run(config))
    error = capsys.readouterr().err
    assert code == 1
    assert "NaN or infinite" in error
    assert "the last good checkpoint, of step" in error
    checkpoint = checkpoints.load(tmp_path / "run" / "checkpoint" / "chain-0")
    assert checkpoint is not None
    assert all(v.isfinite().all() for v in checkpoint.tensors.values() if v.is_floating_point())


def test_nan_in_arrays_names_the_row(tmp_path):
    (x, y), _ = tiny_data()
    x[5, 2] = float("nan")
    with pytest.raises(NonFiniteError, match="training inputs must be finite, got nan in row 5"):
        sample(tiny_model, (x, y), run_dir=tmp_path, **SHORT)


def test_nan_in_a_torch_data_set_is_found_when_it_is_met(tmp_path):
    (x, y), _ = tiny_data()
    x[5, 2] = float("inf")
    items = torch.utils.data.TensorDataset(x, y)
    with pytest.raises(NonFiniteError, match=r"inputs of step \d+ must be finite, got inf in row"):
        sample(tiny_model, items, run_dir=tmp_path, **SHORT)


@pytest.mark.parametrize("kind", ["arrays", "items"])
def test_label_out_of_range(tmp_path, kind):
    (x, y), _ = tiny_data()
    y[-1] = 3
    data = (x, y) if kind == "arrays" else torch.utils.data.TensorDataset(x, y)
    with pytest.raises(ConfigError, match=r"labels must be whole numbers in 0 … 2.*got label 3"):
        sample(tiny_model, data, run_dir=tmp_path, **SHORT)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: nn.Linear(5, 3), r"cannot take a batch of shape \(16, 4\)"),
        (lambda: nn.Sequential(nn.Linear(4, 3), nn.Unflatten(1, (3, 1))), r"got \(16, 3, 1\)"),
        (lambda: "no network", "must be a torch.nn.Module, got str"),
    ],
)
def test_model_that_does_not_fit(tmp_path, model, message):
    with pytest.raises(ConfigError, match=message):
        sample(model, tiny_data()[0], run_dir=tmp_path, **SHORT)
    # Nothing is left that would refuse the corrected model.
    assert len(sample(tiny_model, tiny_data()[0], run_dir=tmp_path, **SHORT)) == 1


def test_regression_needs_two_outputs(tmp_path):
    (x, _), _ = tiny_data()
    with pytest.raises(ConfigError, match=r"2 columns for regression .* got 3"):
        sample(tiny_model, (x, x[:, 0]), run_dir=tmp_path, **SHORT)


@pytest.mark.parametrize("kind", ["arrays", "loader"])
def test_empty_data(tmp_path, kind):
    data = (torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))
    if kind == "loader":
        items = torch.utils.data.TensorDataset(*data)
        data = torch.utils.data.DataLoader(items, batch_size=4)
    with pytest.raises(ConfigError, match="training data are empty, got 0 examples"):
        sample(tiny_model, data, run_dir=tmp_path, **SHORT)


def test_changed_config_is_refused_and_shown(tmp_path):
    config = tiny_config(tmp_path / "run", "sgld", epochs=4)
    run(config)
    with pytest.raises(ConfigError, match=r"sampler.lr: 0\.\d+ → 0\.37") as caught:
        run(with_parts(config, sampler={"lr": 0.37}))
    assert "seed" not in str(caught.value)
    with pytest.raises(ConfigError, match="rows: 64 → 48"):
        run(with_parts(config, data={"options": {"rows": 48}}))


def test_other_threads_or_versions_are_refused_unless_overridden(tmp_path):
    config = tiny_config(tmp_path / "run", "sgld", epochs=4)
    before = len(run(config).posterior)
    path = tmp_path / "run" / "config.yaml"
    content = yaml.safe_load(path.read_text())
    content["record"]["machine"]["torch"] = "2.0"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(ConfigError, match=r"torch: '2.0' → .*\n.*--override"):
        run(config)
    assert len(run(config, override=True).posterior) == before


def test_disk_full_keeps_the_checkpoint_and_goes_on_later(tmp_path):
    every_step = {"checkpoint_seconds": 1e-6}  # there is one to go on from on any machine
    whole = with_parts(tiny_config(tmp_path / "whole", "sgld"), output=every_step)
    short = replace(whole, run_dir=str(tmp_path / "short"))
    finish(whole)
    # metrics.jsonl outgrows this limit in the middle of the run.
    process = CONTEXT.Process(target=limited, args=(short, 3500))
    process.start()
    process.join()
    assert process.exitcode == 1
    error = (tmp_path / "short.log").read_text()
    assert "the disk is full" in error
    assert "the last checkpoint is intact" in error
    finish(short)
    one, two = contents(tmp_path / "whole"), contents(tmp_path / "short")
    one.pop("config.yaml"), two.pop("config.yaml")
    assert one == two


def test_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert guarded(lambda: run(tiny_config(tmp_path / "file" / "run"))) == 1
    assert "the folder cannot be written" in capsys.readouterr().err


def test_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    for step in (3, 5, 9):
        state = checkpoints.Checkpoint(step, {"a": torch.full((2,), float(step))}, {"n": step})
        checkpoints.save(tmp_path, state)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"00000000000{step}.{kind}" for step in (5, 9) for kind in ("json", "safetensors")
    }
    newest = tmp_path / "000000000009.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    with pytest.warns(UserWarning, match=r"9.safetensors does not have the checksum.*step 5"):
        checkpoint = checkpoints.load(tmp_path)
    assert (checkpoint.step, checkpoint.numbers["n"], checkpoint.tensors["a"].tolist()) == (
        5,
        5,
        [5.0, 5.0],
    )
    (tmp_path / "000000000005.json").write_text("{")
    with pytest.raises(DamagedFileError, match="no whole checkpoint is left"):
        checkpoints.load(tmp_path)


def test_lock_is_refused_to_a_second_holder(tmp_path):
    held = lock(tmp_path)
    with pytest.raises(StateError, match="used by another process"):
        lock(tmp_path)
    held.release()
    lock(tmp_path).release()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"accelerator": "abacus"}, r"compute.accelerator='abacus' .* cannot be had here"),
        ({"precision": "8-true"}, r"compute.precision must be one of .*, got .*8-true"),
        ({"strategy": "magic"}, r"compute.strategy must be one of .*chains.*, got .*magic"),
    ],
)
def test_devices_that_are_not_there(tmp_path, part, message):
    with pytest.raises(ConfigError, match=message):
        run(with_parts(tiny_config(tmp_path / "run"), compute=part))
