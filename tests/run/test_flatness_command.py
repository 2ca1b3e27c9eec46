"""`emcmc flatness` on two finished tiny runs: one table, JSON and figures."""

import json
from dataclasses import replace

import pytest
import torch
from matplotlib.figure import Figure

from entropy_mcmc import flatness
from entropy_mcmc.cli import main
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness import Settings
from entropy_mcmc.posterior import refresh_batchnorm
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.flatness_command import flatness_command
from entropy_mcmc.run.loaded_run import load_run
from entropy_mcmc.run.runner import run
from run.workers import TRUSTED, tiny_config

SMALL = Settings(eigenvalues=2, probes=4, lanczos_probes=1, lanczos_steps=6, directions=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for method in ("emcmc", "sgd"):
        run(tiny_config(folder / method, method, epochs=8))
    return folder


def test_roles_and_methods_side_by_side(runs, tmp_path, capsys):
    folders = [str(runs / "emcmc"), str(runs / "sgd")]
    comparison = flatness_command(
        folders, subset=32, output=str(tmp_path / "out"), settings=SMALL, trust=TRUSTED
    )
    names = [row.name for row in comparison.rows]
    assert names == ["emcmc:emcmc theta", "emcmc:emcmc guide", "sgd:sgd theta"]
    written = json.loads((tmp_path / "out/flatness.json").read_text())
    assert [row["name"] for row in written] == names
    for figure in ("fisher", "density", "interpolation", "between"):
        assert (tmp_path / f"out/{figure}.png").read_bytes().startswith(b"\x89PNG")
    assert "Hessian, largest eigenvalue" in capsys.readouterr().out


def test_the_line_from_theta_to_its_guide(runs, tmp_path, monkeypatch):
    """Its ends are the stored samples, with batch-norm statistics of the subset at each."""
    drawn = {}
    monkeypatch.setattr(flatness, "between_figure", lambda lines: drawn.update(lines) or Figure())
    flatness_command(
        [str(runs / "emcmc")], subset=32, output=str(tmp_path), settings=SMALL, trust=TRUSTED
    )
    (line,) = drawn.values()
    assert line.batchnorm == "refreshed at every point"
    loaded = load_run(runs / "emcmc", trust=TRUSTED)
    train = loaded.problem.train
    x, y = flatness.subset((train.normalise(train.inputs), train.targets), 32)
    for fraction, role in ((0.0, "theta"), (1.0, "guide")):
        index = max(i for i, actual in enumerate(loaded.posterior.roles) if actual == role)
        model = loaded.posterior.load(index)
        refresh_batchnorm(model, [x])
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model.eval()(x), y).item()
        place = flatness.BEYOND.index(fraction)
        assert line.loss[0, place] == pytest.approx(loss, rel=1e-5)


def test_the_surface_is_drawn_on_demand(runs, tmp_path):
    with pytest.raises(ConfigError, match="needs 3 samples of one role"):
        flatness_command(
            [str(runs / "sgd")], output=str(tmp_path), surface=True, settings=SMALL, trust=TRUSTED
        )
    config = tiny_config(tmp_path / "more", "emcmc", epochs=8, cycles=3)
    run(config)
    out = tmp_path / "out"
    flatness_command(
        [config.run_dir], subset=16, output=str(out), surface=True, settings=SMALL, trust=TRUSTED
    )
    assert (out / "surface.png").read_bytes().startswith(b"\x89PNG")


def test_replicas_are_named(tmp_path, monkeypatch):
    """Two replicas with two samples: the row says which one it is, and the surface has all."""
    config = replace(tiny_config(tmp_path / "run", epochs=8, cycles=1), replicas=2)
    config = with_parts(config, schedule={"samples_per_cycle": 2})
    run(config)
    drawn, lines = {}, {}
    monkeypatch.setattr(flatness, "surface_figure", lambda s: drawn.update(s=s) or Figure())
    monkeypatch.setattr(flatness, "between_figure", lambda own: lines.update(own) or Figure())
    out = str(tmp_path / "out")
    options = {"subset": 16, "output": out, "surface": True, "settings": SMALL, "trust": TRUSTED}
    comparison = flatness_command([config.run_dir], **options)
    assert [row.name for row in comparison.rows] == ["emcmc theta (replica 2 of 2)", "emcmc guide"]
    assert list(lines) == ["emcmc"]
    # Four networks θ and two guides, three of which span the plane.
    steps = sorted(
        {sample.step for sample in load_run(config.run_dir, trust=TRUSTED).posterior.samples}
    )
    assert set(drawn["s"].names) == {
        f"theta {steps[0]} (replica 2 of 2)", f"guide {steps[0]}", f"guide {steps[1]}",
    }  # fmt: skip
    assert len(drawn["s"].samples) == 3


def test_a_row_is_the_loss_of_the_stored_sample(runs, tmp_path):
    comparison = flatness_command(
        [str(runs / "emcmc")], output=str(tmp_path), settings=SMALL, trust=TRUSTED
    )
    loaded = load_run(runs / "emcmc", trust=TRUSTED)
    index = max(i for i, role in enumerate(loaded.posterior.roles) if role == "guide")
    model = loaded.posterior.load(index).eval()
    train = loaded.problem.train
    with torch.no_grad():
        output = model(train.normalise(train.inputs))
        loss = torch.nn.functional.cross_entropy(output, train.targets)
    guide = next(row for row in comparison.rows if row.name == "emcmc guide")
    assert guide.loss == pytest.approx(loss.item(), rel=1e-5)


def test_the_command_line(runs, tmp_path, capsys):
    arguments = ["flatness", str(runs / "sgd"), "--subset", "16", "--trust", "-o", str(tmp_path)]
    assert main([*arguments, "--learning_steps", "60", "--localisation", "1e4"]) == 0
    shown = capsys.readouterr().out
    assert "sgd theta" in shown
    (row,) = json.loads((tmp_path / "flatness.json").read_text())
    value, error = row["learning_coefficient"], row["learning_coefficient_error"]
    assert "local learning coefficient" in shown
    assert f"{value:.4g} ± {error:.2g}" in shown
    assert row["learning_counted_temperature"] > 0
    assert main([*arguments, "--learning_steps", "0"]) == 0
    assert "earning coefficient" not in capsys.readouterr().out
    for option, value in (("--learning_steps", "1"), ("--learning_rows", "0")):
        assert main([*arguments, option, value]) != 0
        assert f"{option[2:]} must be a whole number" in capsys.readouterr().err


def test_runs_of_different_models_are_refused(runs, tmp_path):
    bigger = with_parts(
        tiny_config(tmp_path / "mlp", "sgd", epochs=2),
        model={"name": "mlp", "options": {"in_features": 4, "outputs": 3}},
    )
    run(bigger)
    with pytest.raises(ConfigError, match="share their model and data"):
        flatness_command(
            [str(runs / "sgd"), str(tmp_path / "mlp")], output=str(tmp_path / "o"), trust=TRUSTED
        )
