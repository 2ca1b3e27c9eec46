"""Two processes started from the command line, by torchrun and by Fabric, on gloo."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.run_folder import read_existing

TESTS = Path(__file__).parent.parent
OPTIONS = {
    "data.name": "run.workers:tiny_data",
    "data.batch_size": "16",
    "model.name": "run.workers:tiny_model",
    "schedule.epochs": "5",
    "schedule.cycles": "1",
    "schedule.burn_in": "0.5",
    "sampler.fused": "no",
    "compute.accelerator": "cpu",
    "compute.threads": "1",
    "compute.precision": "64-true",
    "compute.micro_batches": "2",
    "compute.timeout": "60",
    "output.progress": "false",
}
TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]


def start(folder, launcher=(), **options):
    """`emcmc sample` in its own process, from the folder of the tests."""
    flags = [f"--{name}={value}" for name, value in {**OPTIONS, **options}.items()]
    command = [sys.executable, *launcher, "-m", "entropy_mcmc", "sample", f"--run_dir={folder}"]
    done = subprocess.run(
        [*command, *flags], cwd=TESTS, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "samples in" in done.stdout
    assert done.stdout.count("samples in") == 1, "every process spoke"
    return {path.name: load_file(path) for path in (folder / "samples").glob("*.safetensors")}


def worst(first, second):
    assert first.keys() == second.keys()
    return max(
        float((first[name][key].double() - second[name][key].double()).abs().max())
        for name in first
        for key in first[name]
    )


LAUNCHES = {"torchrun": (TORCHRUN, {}), "fabric": ([], {"compute.devices": "2"})}


@pytest.mark.soak
@pytest.mark.parametrize("launch", LAUNCHES)
def test_two_processes_from_the_command_line(tmp_path, launch):
    """One chain over both to 1e-9 in float64; two chains, one on each, to the last bit."""
    launcher, options = LAUNCHES[launch]
    shared = start(tmp_path / "shared", launcher, **{"compute.strategy": "ddp", **options})
    assert worst(start(tmp_path / "alone"), shared) <= 1e-9
    chains = {"compute.strategy": "chains", "chains": "2"}
    apart = start(tmp_path / "apart", launcher, **chains, **options)
    assert worst(start(tmp_path / "sequence", chains="2"), apart) == 0.0


def make_images(folder):
    """Three classes of 4 training and 2 test images of noise around a shade of grey."""
    generator = np.random.default_rng(0)
    for part, count in (("train", 4), ("val", 2)):
        for label, name in enumerate(("n01", "n02", "n03")):
            place = folder / "imagenet" / part / name
            place.mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(80 * label, 80 * label + 80, (60, 50, 3))
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.JPEG")


@pytest.mark.soak
def test_imagenet_config_end_to_end(tmp_path):
    """The paper's config, ResNet-50 and bf16-mixed included, over two processes of torchrun.

    Images are small and steps are few because bfloat16 is emulated on most processors: one step
    with two images of 224 pixels takes a minute on one core with AVX2 only.
    """
    make_images(tmp_path)
    options = {
        "data.folder": tmp_path,
        "data.options": "{side: 32}",
        "data.batch_size": 4,
        "data.workers": 2,
        "schedule.epochs": 1,
        "schedule.burn_in": 0.5,
        "sampler.lr": 0.0016,  # in proportion to the batch
        "schedule.cycles": 1,
        "schedule.samples_per_cycle": 1,
        "compute.accelerator": "cpu",
        "compute.threads": 1,
        "log_every": 1,
    }
    command = [sys.executable, *TORCHRUN, "-m", "entropy_mcmc", "sample", "--config=imagenet"]
    flags = [f"--{name}={value}" for name, value in options.items()]
    folder = tmp_path / "run"
    subprocess.run([*command, *flags, f"--run_dir={folder}"], timeout=500, check=True)
    record = read_existing(folder)
    assert record.config.model.name == "resnet50"
    assert record.config.compute.precision == "bf16-mixed"
    assert record.config.compute.micro_batches == 2
    events = Journal(folder).events()
    assert [e["step"] for e in events if e["kind"] == "train"] == [1, 2, 3]
    assert all(np.isfinite(e["loss"]) for e in events if e["kind"] == "train")
    scores = Journal(folder).evaluations()[0]
    assert scores["samples"] == 2
    assert np.isfinite(scores["nll"])
