"""The path of CIFAR-100 from a partial file in the official format to the numbers of a job."""

from dataclasses import replace

import numpy as np
import pytest

from entropy_mcmc_reproduction.jobs import Place, read, run_all
from entropy_mcmc_reproduction.methods import job
from entropy_mcmc_reproduction.scale import scale

ROWS, HELD_OUT = 96, 16


@pytest.fixture
def partial_cifar100(tmp_path):
    """`train.bin` alone, with fewer records: coarse label, fine label, 3072 bytes of a picture."""
    draws = np.random.default_rng(0)
    fine = np.arange(ROWS, dtype=np.uint8)
    record = [(fine // 5)[:, None], fine[:, None], draws.integers(0, 256, (ROWS, 3072))]
    file = tmp_path / "data/cifar-100-binary/train.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(np.concatenate(record, axis=1).astype(np.uint8).tobytes())
    return tmp_path / "data"


def test_a_partial_file_is_sampled_and_measured(tmp_path, partial_cifar100):
    data = {"name": "cifar100", "rows": ROWS - HELD_OUT, "test_rows": HELD_OUT}
    data |= {"validation": True, "checksum": False}
    small = replace(scale("smoke"), data=data, batch_size=8, epochs=4, warm_epochs=2)
    place = Place(tmp_path / "results", tmp_path / "work", str(partial_cifar100))
    made = job("emcmc", 0, small, {"lr": 0.05, "horizon": 10.0}, group="cifar100")
    assert made.settings["config"]["model"]["options"]["outputs"] == 100
    run_all([made], place, say=lambda _: None)
    test = read(place, made)["test"]
    schedule = made.settings["config"]["schedule"]
    assert test["samples"] == 2 * schedule["cycles"] * schedule["samples_per_cycle"]  # θ and θ_a
    # Random pictures teach nothing, and of the held-out classes no picture was seen.
    assert test["both"]["accuracy"] == 0
    assert test["both"]["nll"] == pytest.approx(np.log(100), rel=0.5)
