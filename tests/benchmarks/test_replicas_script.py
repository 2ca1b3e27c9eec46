"""benchmarks/replicas.py on tiny tasks: cells, resume, tables."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from entropy_mcmc import EntropyMCMC
from tournament.store import Stored


@pytest.fixture
def script(tiny, monkeypatch):
    place = Path(__file__).parents[2] / "benchmarks" / "replicas.py"
    spec = importlib.util.spec_from_file_location("replicas_script", place)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.syspath_prepend("")  # the script puts its folder on the path: undone after the test
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TASKS", tiny)
    return module


short_horizon = pytest.mark.filterwarnings("ignore:.*lr/.eta.num_data.")  # tiny runs have few steps
FLAT = {"largest_eigenvalue": 1.0, "learning_coefficient": 2.0}


@short_horizon
def test_every_method_makes_its_cell_and_a_second_start_none(script, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(script.flat, "measured", lambda *_: FLAT)
    methods = list(script.METHODS)
    options = script.argparse.Namespace(
        part="run",
        tasks=["tiny-bn"],
        seeds=[0, 1],
        results=tmp_path / "results",
        methods=methods,
        store=tmp_path / "store",
        networks=["theta"],
    )
    script.run(options)
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(script.SCORED)
    script.run(options)
    assert capsys.readouterr().out == ""
    cell = json.loads((tmp_path / "results" / "tiny-bn" / "y4-0.json").read_text())
    assert set(cell["scores"]) == {"samples", "last", "guide"}
    assert cell["scores"]["samples"]["networks"] == 8
    assert cell["scores"]["guide"]["networks"] == 1
    assert cell["flatness"] == {}
    options.part = "flatness"
    script.run(options)
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(methods)
    script.run(options)
    assert capsys.readouterr().out == ""
    again = json.loads((tmp_path / "results" / "tiny-bn" / "SGD-1.json").read_text())
    assert again["scores"] == {}
    assert set(again["flatness"]) == {"theta"}
    options.networks = list(script.flat.NETWORKS)
    script.run(options)
    assert len(capsys.readouterr().out.splitlines()) == 2 * len((*script.SCORED, "SGD", "EMCMC"))
    again = json.loads((tmp_path / "results" / "tiny-bn" / "SGD-1.json").read_text())
    assert set(again["flatness"]) == {"theta", "ema"}
    again = json.loads((tmp_path / "results" / "tiny-bn" / "y4-0.json").read_text())
    assert again["scores"] == cell["scores"]
    assert set(again["flatness"]) == {"theta", "guide"}
    scores = tmp_path / "items" / "tiny-bn"  # as an item of the reproduction leaves them
    scores.mkdir(parents=True)
    for seed, nll in enumerate((0.5, 0.7)):
        record = {"result": {"measures": {"nll": nll}}}
        (scores / f"SAM-{seed}.json").write_text(json.dumps(record))
    page = script.page(tmp_path / "results", (tmp_path / "none", tmp_path / "items"))
    assert page.count("| one network: guide, y = 2 |") == 1
    assert "| one network: SAM | 0.6 ± 0.1 |" in page
    assert "guide, y = 4 minus SAM" in page
    assert "(fashion-mlp: 0 of 5 seeds in every row; cifar: 0 of 5 seeds in every row)." in page


@short_horizon
def test_networks_of_replicas_are_kept_with_their_statistics(script, tiny, tmp_path):
    trained = script.train.replicas(tiny["tiny-bn"], 0, 2)
    file = tmp_path / "y2.npz"
    assert script.train.kept(tiny["tiny-bn"], 0, file) == {}
    script.train.keep(trained.networks, file)
    again = script.train.kept(tiny["tiny-bn"], 0, file)
    assert set(again) == {"theta", "guide"}
    for name, network in trained.networks.items():
        state = again[name].state_dict()
        assert all(torch.equal(state[key], value) for key, value in network.state_dict().items())


@pytest.mark.parametrize("task", ["tiny", "tiny-bn"])
@pytest.mark.parametrize(
    ("method", "network", "readout"),
    [
        ("SGD", "theta", "last"),
        ("SGD", "ema", "ema"),
        ("EMCMC", "guide", "guide"),
        ("SAM", "theta", "last"),
    ],
)
@short_horizon
def test_networks_are_those_that_the_tournament_scored(
    script, tiny, tmp_path, task, method, network, readout
):
    """Networks of a stored run give its outputs; SGD's last θ has refreshed statistics here."""
    settings = script.train.settings_of(tiny[task], method, 1)
    store = script.Store(tmp_path)
    split = script.trajectory.data_of(task, 1)
    made = script.train.networks(tiny[task], method, 1, store)[network]
    outputs = script.train.readouts.ask(made, split)
    stored = store.read(settings).outputs[readout][0]
    if (task, method, network) == ("tiny-bn", "SGD", "theta"):
        assert np.abs(outputs - stored).max() > 1e-3
    else:
        np.testing.assert_allclose(outputs, stored, rtol=1e-5, atol=1e-6)


def test_runs_that_were_stored_without_weights_are_made_again(script, tiny, tmp_path, monkeypatch):
    store = script.Store(tmp_path)
    kept = script.train.networks(tiny["tiny"], "SGD", 0, store)["theta"]
    monkeypatch.setattr(script.train.Store, "read", lambda *_: Stored({}, {}, {}))
    again = script.train.networks(tiny["tiny"], "SGD", 0, store)["theta"]
    for one, other in zip(kept.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


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
    monkeypatch.setitem(script.flat.EFFORT, "tiny", script.flat.Effort(steps=20))
    split = tiny["tiny"].rows(0)
    measured = script.flat.measured(tiny["tiny"].network(), split.train, 0, "tiny")
    assert measured["largest_eigenvalue"] > 0
    assert torch.isfinite(torch.tensor(measured["learning_coefficient_error"]))


def test_plan_and_samples(script):
    assert "8 methods × 5 seeds, about" in script.plan(["tiny"], 5, list(script.METHODS))
    assert script.train.sample_steps(80, 4, 0.5) == [59, 79]
    assert script.train.sample_steps(81, 1, 0.5)[-1] == 80
