"""Where `emcmc reproduce` finds the experiments, and what it says where they are not."""

import os
import shutil
import subprocess
import sys

import pytest

from entropy_mcmc.errors import MissingFileError
from entropy_mcmc.reproduce import LIBRARY, PACKAGE, package_folder


def package_in(folder):
    """A package of that name which tells that it ran."""
    made = folder / PACKAGE
    made.mkdir(parents=True)
    (made / "__init__.py").write_text("print('it ran')\n")
    (made / "command.py").write_text("def main(argv):\n    return len(argv)\n")
    return made


def installed(folder):
    """A copy of the library alone, as a wheel would install it."""
    library = folder / "lib" / "site" / "entropy_mcmc"
    shutil.copytree(LIBRARY, library, ignore=shutil.ignore_patterns("__pycache__"))
    return library


def emcmc_reproduce(library, cwd):
    environment = {**os.environ, "PYTHONPATH": str(library.parent)}
    command = [sys.executable, "-m", "entropy_mcmc", "reproduce", "--list"]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def test_a_clone_has_them_beside_its_source():
    assert (package_folder(LIBRARY) / "command.py").is_file()


def test_beside_an_installed_library(tmp_path):
    library = installed(tmp_path)
    package_in(library.parent)
    done = emcmc_reproduce(library, tmp_path)
    assert (done.stdout, done.returncode) == ("it ran\n", 1)  # the code is that of its `main`


def test_elsewhere_it_says_how_to_get_them(tmp_path):
    with pytest.raises(MissingFileError, match=r"clone .* `pip install -e \. -e reproduction`"):
        package_folder(tmp_path / "site" / "entropy_mcmc")


def test_nothing_of_the_working_directory_runs(tmp_path):
    cwd = tmp_path / "received"
    package_in(cwd)
    package_in(cwd / "reproduction")
    done = emcmc_reproduce(installed(tmp_path), cwd)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.startswith("emcmc: error: the experiments are not part of")
    assert len(done.stderr.splitlines()) == 1
