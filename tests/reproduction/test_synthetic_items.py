"""The two-mode landscape: closed forms against numerical ones, and fractions measured once."""

import json
import math
import threading
import time

import numpy as np
import pytest
import torch

from entropy_mcmc_reproduction import landscape, smoothing, synthetic
from entropy_mcmc_reproduction.jobs import Place, _claimed
from entropy_mcmc_reproduction.running import reproduce


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("synthetic-items")
    for name in ("smoothing", "synthetic"):
        reproduce([name], "smoke", results=base / "results", work=base / "work")
    return base / "results" / "smoke"


def test_what_another_process_makes_is_left_for_later(tmp_path):
    """The second item is made and shown while the only job of the first is taken."""
    place = Place(tmp_path / "results" / "smoke", tmp_path / "work" / "smoke")
    (taken,) = smoothing.ITEM.jobs("smoke", place)
    options = {"results": tmp_path / "results", "work": tmp_path / "work"}
    with _claimed(place.folder(taken.name)) as mine:
        assert mine
        working = threading.Thread(
            target=reproduce, args=(["smoothing", "synthetic"], "smoke"), kwargs=options
        )
        working.start()
        shown = place.results / "items" / "synthetic.json"
        until = time.monotonic() + 120  # only so that a failure ends
        while working.is_alive() and not shown.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert shown.exists()
        assert working.is_alive()
        assert not place.result_file(taken.name).exists()
    working.join()
    assert outcome(place.results, "smoothing")["rows"]


def outcome(folders, name):
    return json.loads((folders / "items" / f"{name}.json").read_text())


def run(folders, name):
    return json.loads((folders / "runs" / f"{name}.json").read_text())["result"]


def decisions(found):
    return {verdict["claim"]: verdict["decision"] for verdict in found["verdicts"]}


@pytest.mark.parametrize("eta", [0.0, 0.5, 3.0])
def test_the_smoothed_density_is_the_convolution(eta):
    # A sum over a grid of the posterior times the Gaussian, straight from the definition.
    side = np.linspace(-9, 9, 181)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    weights = landscape.density(grid) * (side[1] - side[0]) ** 2
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    for point in ([-2.0, -1.0], [0.3, -0.4], [2.0, 1.0]):
        if eta == 0:
            sharp = np.exp(-np.square(np.array(point) - [-2, -1]).sum()) / math.pi
            flat = np.exp(-np.square(np.array(point) - [2, 1]).sum() / 2) / (2 * math.pi)
            wanted = (sharp + flat) / 2
        else:
            squares = np.square(grid - np.array(point)).sum(1)
            kernel = np.exp(-squares / (2 * eta)) / (2 * math.pi * eta)
            wanted = (weights * kernel).sum()
        assert landscape.density(np.array(point), eta) == pytest.approx(wanted, rel=1e-4)


def test_masses_and_energy_are_those_of_the_density():
    side = np.linspace(-9, 9, 361)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    near = np.square(grid - [2, 1]).sum(1) < np.square(grid - [-2, -1]).sum(1)
    for eta in (0.0, 0.5):
        mass = landscape.density(grid, eta)[near].sum() * (side[1] - side[0]) ** 2
        assert landscape.flat_mass(eta) == pytest.approx(mass, abs=2e-3)
    points = torch.tensor([[0.1, 0.2], [-1.5, 0.4]], dtype=torch.float64)
    gaps = [float(landscape.energy(p)) + math.log(landscape.density(p.numpy())) for p in points]
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-9)
    assert landscape.nearer_flat(torch.tensor([[0.1, 0.0], [-0.1, 0.0]])).tolist() == [True, False]


def test_larger_eta_flattens(folders):
    rows = run(folders, "smoothing/peaks")["by_eta"]
    ratios = {row["eta"]: row["peak_ratio"] for row in rows}
    assert ratios[0.01] == pytest.approx(1.98, abs=0.005)
    assert ratios[5.0] == pytest.approx(1.09, abs=0.005)
    found = decisions(outcome(folders, "smoothing"))
    assert set(found.values()) == {"does not hold"}
    assert (folders / "items" / "smoothing.png").stat().st_size > 20_000


def test_fractions_lie_inside_their_intervals(folders):
    # 4,000 chains: 0.035 is 4.5 standard errors, false alarm 1e-5 in all; the seed is fixed.
    ridge = run(folders, "synthetic/short")["starts"][0]
    assert (ridge["start"], ridge["chains"], ridge["steps"]) == ([-0.2, -0.2], 4000, 1000)
    for kind, wanted in {"sgld": 0.416, "theta": 0.398, "guide": 0.394}.items():
        assert ridge[kind]["fraction"] == pytest.approx(wanted, abs=0.035)
        assert ridge[kind]["error"] == pytest.approx(math.sqrt(0.24 / 4000), rel=0.05)
    ends = [start["sgd"]["fraction"] for start in run(folders, "synthetic/short")["starts"]]
    assert ends == [0, 0, 1, 0]


def test_false_claims_are_not_called_true(folders):
    found = decisions(outcome(folders, "synthetic"))
    claim = "EMCMC finds the flat mode no matter how it is initialised"
    assert found[claim] == "does not hold"
    assert found["Samples of θ_a are always around the flat mode"] == "does not hold"
    assert len(outcome(folders, "synthetic")["figures"]) == 2


def test_verdicts_follow_the_numbers():
    assert synthetic._decided(0.1, 0.01) == "holds"
    assert synthetic._decided(-0.1, 0.01) == "does not hold"
    assert synthetic._decided(0.1, 0.06) == "not decided at this scale"
    rows = smoothing.compute({"etas": [0.0, 0.01, 0.5, 5.0], "positions": 101}, None)["by_eta"]
    flipped = [{**row, "peak_ratio": 1 / row["peak_ratio"]} for row in rows]
    assert smoothing._verdicts(flipped)[0].decision == "holds"
