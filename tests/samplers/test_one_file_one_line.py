"""The sampler of docs/adding-a-sampler.md in a copy of the library: one file and one line."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import entropy_mcmc

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-sampler.md"
LINE = '    "averaged": Entry("averaged", "Averaged", "SGLD with averaging"),\n'
FLAGS = {
    "method": "averaged",
    "sampler.memory": 0.9,
    "sampler.fused": "no",
    "schedule.epochs": 4,
    "data.options": "{limit: 200}",
    "compute.accelerator": "cpu",
    "output.progress": "false",
    "output.baseline": "none",
}
CHAINS = """
import torch
from entropy_mcmc import Averaged, chains
draws = chains.run(
    lambda theta: theta.square().sum() / 2, torch.zeros(2),
    chains=3, steps=4, sampler="averaged", lr=0.1, num_data=10, memory=0.5, compile=False,
)
assert draws.theta.shape == (3, 4, 2)
"""


def extended(folder):
    """A copy of the package with one more sampler."""
    source = Path(entropy_mcmc.__file__).parent
    package = folder / source.name
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    code = re.search(r"```python\n(from typing.*?)```", PAGE.read_text(), re.DOTALL)[1]
    (package / "samplers" / "averaged.py").write_text(code)
    registry = package / "samplers" / "registry.py"
    before, last, after = registry.read_text().rpartition('    "bsam": Entry')
    registry.write_text(before + LINE + last + after)
    return folder


def python(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_one_file_and_one_line_reach_runs_help_chains_diagnosis_and_page(tmp_path):
    folder = extended(tmp_path)
    run = folder / "run"
    flags = [f"--{name}={value}" for name, value in FLAGS.items()]
    shown = python(folder, "-m", "entropy_mcmc", "sample", *flags, f"--run_dir={run}")
    assert "averaged" in shown
    diagnosis = json.loads((run / "diagnostics.json").read_text())
    assert diagnosis["theta_temperature"] is not None  # it samples exp(−U/T), and is held to T
    assert "SGLD with averaging" in (run / "report.html").read_text()
    help_text = python(folder, "-m", "entropy_mcmc", "sample", "--help-all")
    assert "share of the average that a step keeps" in re.sub(r"\s+", " ", help_text)
    python(folder, "-c", CHAINS)
