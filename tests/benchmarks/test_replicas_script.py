"""benchmarks/replicas.py on tiny tasks: cells, resume, tables."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from entropy_mcmc import EntropyMCMC


@pytest.fixture
def script(tiny, monkeypatch):
    place = Path(__file__).parents[2] / "benchmarks" / "replicas.py"
    spec = importlib.util.spec_from_file_location("replicas_script", place)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.syspath_prepend("")  # the script puts its folder on the path: undone after the test
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TASKS", tiny)
    return module


short_horizon = pytest.mark.filterwarnings("ignore:lr/.eta.num_data.")  # tiny runs have few steps
FLAT = {"largest_eigenvalue": 1.0, "learning_coefficient": 2.0}


@short_horizon
def test_every_method_makes_its_cell_and_a_second_start_none(script, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(script.flat, "measured", lambda *_: FLAT)
    methods = list(script.METHODS)
    options = script.argparse.Namespace(
        tasks=["tiny-bn"], seeds=2, results=tmp_path, methods=methods
    )
    script.run(options)
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(methods)
    script.run(options)
    assert capsys.readouterr().out == ""
    cell = json.loads((tmp_path / "tiny-bn" / "y4-0.json").read_text())
    assert set(cell["scores"]) == {"samples", "last", "guide"}
    assert cell["scores"]["samples"]["networks"] == 8
    assert cell["scores"]["guide"]["networks"] == 1
    again = json.loads((tmp_path / "tiny-bn" / "SGD-1.json").read_text())
    assert again["scores"] == {}
    assert set(again["flatness"]) == {"theta", "ema"}
    page = script.page(tmp_path, tmp_path / "none", 200.0)
    assert page.count("| one network: guide, y = 2 |") == 1
    assert "guide, y = 4 minus SAM" in page
    assert "(fashion-mlp: 0 of 5 seeds; cifar: 0 of 5 seeds). Differences of single seeds" in page


def test_networks_trained_again_are_those_of_the_tournament(script, tiny):
    """SGD's last network and its moving average give the outputs of the tournament's run."""
    settings = script.train.settings_of(tiny["tiny"], "SGD", 1)
    stored = script.trajectory.run(settings).outputs
    split = script.trajectory.data_of("tiny", 1)
    made = script.train.networks(tiny["tiny"], "SGD", 1)
    for name, readout in (("theta", "last"), ("ema", "ema")):
        outputs = script.train.readouts.ask(made[name], split)
        np.testing.assert_allclose(outputs, stored[readout][0], rtol=1e-5, atol=1e-6)


def test_one_replica_is_the_tournaments_emcmc(script, tiny):
    """The same settings, schedule and noise: the same samples."""
    settings = script.train.settings_of(tiny["tiny"], "EMCMC", 1)
    stored = script.trajectory.run(settings).outputs
    made = script.train.replicas(tiny["tiny"], 1, 1)
    np.testing.assert_allclose(made.outputs["last"], stored["last"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(made.outputs["guide"], stored["guide"], rtol=1e-5, atol=1e-6)


@short_horizon
def test_replicas_have_eta_and_gradients_of_one(script, tiny, monkeypatch):
    seen = []
    plain = EntropyMCMC.step

    def step(self, closure=None):
        seen.append((self.num_replicas, self.param_groups[0]["eta"]))
        return plain(self, closure)

    monkeypatch.setattr(EntropyMCMC, "step", step)
    script.train.replicas(tiny["tiny"], 0, 1)
    one, seen[:] = list(seen), []
    script.train.replicas(tiny["tiny"], 0, 4)
    assert {eta for _, eta in seen} == {eta for _, eta in one}
    assert 0 <= len(one) - len(seen) < 4


def test_flatness_of_a_tiny_network(script, tiny, monkeypatch):
    monkeypatch.setattr(script.flat, "STEPS", 20)
    split = tiny["tiny"].rows(0)
    measured = script.flat.measured(tiny["tiny"].network(), split.train, 0)
    assert measured["largest_eigenvalue"] > 0
    assert torch.isfinite(torch.tensor(measured["learning_coefficient_error"]))


def test_plan_and_samples(script):
    assert "8 methods × 5 seeds, about" in script.plan(["tiny"], 5, list(script.METHODS))
    assert script.train.sample_steps(80, 4, 0.5) == [59, 79]
    assert script.train.sample_steps(81, 1, 0.5)[-1] == 80
