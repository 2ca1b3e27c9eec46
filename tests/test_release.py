"""What is released: the wheel and the sdist hold all they need, and work in a clean environment."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from entropy_mcmc import __version__

ROOT = Path(__file__).parents[1]
CLEAN = """
import entropy_mcmc, importlib.resources, sys
assert "site-packages" in entropy_mcmc.__file__
from entropy_mcmc import EntropyMCMC, Posterior, diagnostics, flatness, metrics, sample, theory
from entropy_mcmc.sklearn import EntropyMCMCClassifier
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


def test_the_wheel_is_typed_and_has_its_data(dist):
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    wanted = [
        "py.typed",
        "report/style.css",
        "report/page.js",
        "report/templates/page.html",
        "configs/imagenet.yaml",
    ]
    for name in wanted:
        assert f"entropy_mcmc/{name}" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"entropy_mcmc"}
    sources = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "entropy_mcmc").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= set(names)


# Tests that read the library, the experiments, results, docs and README, and take seconds.
FROM_SDIST = ["test_theory.py", "reproduction/test_reproduction_page.py"]


def test_tests_run_from_the_sdist(dist, tmp_path):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    for name in ("LICENSE", "CHANGELOG.md", "Makefile", "constraints.txt", "tests/test_release.py"):
        assert (folder / name).is_file()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests = [str(folder / "tests" / name) for name in FROM_SDIST]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(
        [*command, *tests], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_the_version_has_one_source(dist):
    """`entropy_mcmc.__version__`; the build and the command read it, the citation repeats it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert [path.name.split("-")[1] for path in dist.glob("*.whl")] == [__version__]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__


def test_lower_bounds_are_those_of_the_oldest_constraints():
    """`constraints-oldest.txt` has them all, and the workflow runs the suite with it."""
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    oldest.pop("pyparsing")  # below matplotlib, which warns with newer ones
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["arviz"], *extras["tune"]]
    bounds = {re.sub(r"\[.*\]", "", each) for each in wanted}
    assert bounds == {f"{name}>={version}" for name, version in oldest.items()}


def test_the_workflow_runs_targets_of_the_makefile():
    jobs = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert steps == ["make ${{ matrix.target }}", "make test"]
    targets = {*jobs["static"]["strategy"]["matrix"]["target"], "test"}
    assert targets == {"lint", "types", "docs", "test"}
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets <= set(phony.split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for entry in jobs["test"]["strategy"]["matrix"]["include"]:
        assert (ROOT / entry["constraints"]).exists()
        assert entry["extra"] in project["optional-dependencies"]


@pytest.mark.soak
def test_the_wheel_works_in_a_clean_environment(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel]
    subprocess.run(install, check=True, cwd=tmp_path)
    subprocess.run([python, "-W", "error", "-c", CLEAN], check=True, cwd=tmp_path)
    options = ["--schedule.epochs", "5", "--output.progress", "false", "--run_dir", "run"]
    done = subprocess.run(
        [tmp_path / "env" / "bin" / "emcmc", "sample", *options],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "accuracy" in done.stdout
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
