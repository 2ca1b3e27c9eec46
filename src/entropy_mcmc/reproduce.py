"""`emcmc reproduce`: hands over to the package of experiments, which is not part of this one.

The experiments import the library and are never imported by it. They come with a clone of the
repository, in the folder `reproduction/`, or are installed from there.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from entropy_mcmc.errors import MissingFileError

PACKAGE = "entropy_mcmc_reproduction"
LIBRARY = Path(__file__).parent


def main(argv: list[str]) -> int:
    """Run the command of the experiments; returns the exit code."""
    if PACKAGE not in sys.modules:
        _load(package_folder(LIBRARY))
    return int(importlib.import_module(f"{PACKAGE}.command").main(argv))


def package_folder(library: Path) -> Path:
    """The folder of the experiments: in the clone that `library` lies in, or installed beside it.

    The working directory is never searched: nothing runs only because it lies there.
    """
    for parent in (library.parents[1] / "reproduction", library.parent):
        if (parent / PACKAGE / "__init__.py").is_file():
            return parent / PACKAGE
    raise MissingFileError(
        "the experiments are not part of the installed library; clone its repository and run "
        "`emcmc reproduce` there after `pip install -e . -e reproduction`"
    )


def _load(folder: Path) -> None:
    """Import the package from this very folder, whatever `sys.path` says."""
    spec = importlib.util.spec_from_file_location(
        PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)
