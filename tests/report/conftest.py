"""Short runs of every kind that the page must show, made once."""

import json
import os
import shutil
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entropy_mcmc.cli import main

SHORT = {
    "roles": "both",  # pages show θ and its guide
    "schedule.cycles": 2,
    "schedule.burn_in": 0.5,
    "schedule.samples_per_cycle": 2,
    "sampler.fused": "no",
    "compute.accelerator": "cpu",
    "output.progress": "false",
    "log_every": 5,
}


def emcmc(*arguments):
    assert main([str(argument) for argument in arguments]) == 0


def sampled(folder, **options):
    flags = [f"--{name}={value}" for name, value in {**SHORT, **options}.items()]
    emcmc("sample", f"--run_dir={folder}", *flags)
    return folder


def measured_flatness(folder):
    """What `emcmc flatness` writes, without the minutes it takes."""
    folder.mkdir()
    names = ("loss", "test_error", "fisher_mean", "trace", "trace_error", "sharpness", "rise")
    learning = {
        "learning_coefficient": 3.5,
        "learning_coefficient_error": 0.1,
        "learning_coefficient_warning": "the chains have not mixed",
        "learning_localisation": 200.0,
        "learning_by_localisation": [9.25, 3.25, 0.75],
        "learning_sensitivity": 0.75,
        "learning_rhat": 1.125,
        "learning_temperature": 7.25,
        "learning_measured_temperature": 7.375,
        "learning_counted_temperature": 7.5,
    }
    rows = [
        {"name": name, **dict.fromkeys(names, 0.25), "top_eigenvalue": 2.5, **learning}
        for name in ("emcmc theta", "emcmc guide")
    ]
    (folder / "flatness.json").write_text(json.dumps(rows))
    buffer = BytesIO()
    Image.fromarray(np.full((30, 40), 200, dtype=np.uint8)).save(buffer, "PNG")
    (folder / "density.png").write_bytes(buffer.getvalue())


def with_baseline(folder, run, other):
    """A copy of a run with the baseline of another."""
    shutil.copytree(run, folder)
    shutil.rmtree(folder / "baseline", ignore_errors=True)
    shutil.copytree(other / "baseline", folder / "baseline")
    return folder


def add_thermometer(folder):
    """Readings as the chain writes them, in case the short run was too short for one."""
    keys = {"kind": "thermometer", "chain": 0, "size": 1000, "temperature": 0.01}
    lines = [{**keys, "step": s, "observed": 0.011, "expected": 0.01} for s in (50, 100)]
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Folders by name.

    emcmc (everything), sgld, regression, classes (a table), without_test; brief, of 40 steps;
    several, of four chains; good and worse, which are several and brief with the baselines of
    brief and of emcmc.
    """
    base = tmp_path_factory.mktemp("runs")
    before = Path.cwd()
    os.chdir(Path(__file__).parents[1])  # where module:function names are found
    try:
        made = {
            "emcmc": sampled(base / "emcmc", **{"schedule.epochs": 12}),
            "sgld": sampled(
                base / "sgld",
                method="sgld",
                **{"schedule.epochs": 12, "output.baseline": "none"},
            ),
        }
        emcmc("evaluate", made["emcmc"], "--corruptions=[brightness, contrast]")
        measured_flatness(made["emcmc"] / "flatness")
        add_thermometer(made["emcmc"])
        made["brief"] = sampled(
            base / "brief", **{"schedule.epochs": 4, "data.options": "{limit: 640}"}
        )
        # Four chains, whose average is clearly better than the best of them.
        several = {"chains": "4", "schedule.epochs": 6, "output.baseline": "none"}
        made["several"] = sampled(base / "several", **several)
        for name, run, other in (("good", "several", "brief"), ("worse", "brief", "emcmc")):
            made[name] = with_baseline(base / name, made[run], made[other])
        (made["good"] / "diagnostics.json").unlink()  # which has a warning for runs this short
        for name in ("regression", "classes", "without_test"):
            options = {"data.name": f"report.made_data:{name}", "schedule.epochs": 20}
            made[name] = sampled(base / name, **options)
        yield made
    finally:
        os.chdir(before)
