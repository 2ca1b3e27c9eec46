"""`emcmc flatness` on two finished tiny runs: one table, JSON and figures."""

import json

import pytest
import torch

from entropy_mcmc.cli import main
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness import Settings
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.engine import run
from entropy_mcmc.run.evaluate import load_run
from entropy_mcmc.run.flatness_command import flatness_command
from run.workers import tiny_config

SMALL = Settings(eigenvalues=2, probes=4, lanczos_probes=1, lanczos_steps=6, directions=2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for method in ("emcmc", "sgd"):
        run(tiny_config(folder / method, method, epochs=8))
    return folder


def test_roles_and_methods_side_by_side(runs, tmp_path, capsys):
    folders = [str(runs / "emcmc"), str(runs / "sgd")]
    found = flatness_command(folders, subset=32, output=str(tmp_path / "out"), settings=SMALL)
    names = [row.name for row in found.rows]
    assert names == ["emcmc:emcmc theta", "emcmc:emcmc guide", "sgd:sgd theta"]
    written = json.loads((tmp_path / "out/flatness.json").read_text())
    assert [row["name"] for row in written] == names
    for figure in ("fisher", "density", "interpolation"):
        assert (tmp_path / f"out/{figure}.png").read_bytes().startswith(b"\x89PNG")
    assert "top_eigenvalue" in capsys.readouterr().out


def test_a_row_is_the_loss_of_the_stored_sample(runs, tmp_path):
    found = flatness_command([str(runs / "emcmc")], output=str(tmp_path), settings=SMALL)
    loaded = load_run(runs / "emcmc")
    index = max(i for i, role in enumerate(loaded.posterior.roles) if role == "guide")
    model = loaded.posterior.load(index).eval()
    train = loaded.problem.train
    with torch.no_grad():
        output = model(train.normalise(train.inputs))
        loss = torch.nn.functional.cross_entropy(output, train.targets)
    guide = next(row for row in found.rows if row.name == "emcmc guide")
    assert guide.loss == pytest.approx(loss.item(), rel=1e-5)


def test_the_command_line(runs, tmp_path, capsys):
    arguments = ["flatness", str(runs / "sgd"), "--subset", "16", "-o", str(tmp_path)]
    assert main(arguments) == 0
    assert "sgd theta" in capsys.readouterr().out


def test_runs_of_different_models_are_refused(runs, tmp_path):
    bigger = with_parts(
        tiny_config(tmp_path / "mlp", "sgd", epochs=2),
        model={"name": "mlp", "options": {"in_features": 4, "outputs": 3}},
    )
    run(bigger)
    with pytest.raises(ConfigError, match="share their model and data"):
        flatness_command([str(runs / "sgd"), str(tmp_path / "mlp")], output=str(tmp_path / "o"))
