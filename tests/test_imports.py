"""The import graph: data flows one way, and so do imports."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import entropy_mcmc

ROOT = Path(entropy_mcmc.__file__).parent

# What each part may import from the package; itself is always allowed.
ALLOWED = {
    "errors": set(),
    "noise": {"errors"},
    "units": {"errors"},
    "schedules": {"errors"},
    "recipes": {"errors", "units"},
    "samplers": {"errors", "noise", "units"},
    "posterior": {"errors"},
    "_metric_inputs": {"errors"},
    "metrics": {"errors", "_metric_inputs"},
    "theory": {"errors", "stationary"},
    "stationary": {"errors"},
    "diagnostics": {"errors", "stationary", "theory", "units"},
    "flatness": {"errors", "samplers", "diagnostics"},  # SGLD around a point, its mixing and heat
    "models": {"errors"},
    "data": {"errors"},
    "chains": {"errors", "noise", "samplers"},
    "run": {
        *("errors", "schedules", "samplers", "posterior", "metrics", "diagnostics", "flatness"),
        *("models", "data", "chains", "noise", "units"),
    },
    "sklearn": {
        *("errors", "units", "run", "models", "posterior", "chains", "samplers", "schedules"),
    },
    "report": {"errors", "metrics", "posterior", "diagnostics", "flatness", "theory", "run"},
    "reproduce": {"errors"},
    "usage": set(),
    "cli": {"usage", "errors", "run", "report", "reproduce", "posterior"},
    "__main__": {"cli"},
}


def modules_imported(path):
    """Dotted names that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the graph"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parts_imported(path):
    """Names of the package's parts that a file imports."""
    pieces = [name.split(".") for name in modules_imported(path)]
    return {each[1] for each in pieces if each[0] == "entropy_mcmc" and len(each) > 1}


FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_arrows(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    forbidden = parts_imported(path) - ALLOWED[part] - {part, "__version__"}
    assert not forbidden, f"{path} must not import {sorted(forbidden)}"


def test_the_library_never_imports_the_experiments():
    for path in FILES:
        names = {name.split(".")[0] for name in modules_imported(path)}
        assert "entropy_mcmc_reproduction" not in names, path


def test_import_brings_no_heavy_package():
    """`import entropy_mcmc` stays near `import torch`: nothing heavy that torch does not bring."""
    script = (
        "import sys, torch; before = set(sys.modules); import entropy_mcmc; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"sklearn", "scipy", "matplotlib", "PIL", "arviz_stats", "lightning_fabric"}
    assert not heavy & set(out.stdout.split())


def test_chains_are_reached_after_a_plain_import():
    script = "import entropy_mcmc; print(entropy_mcmc.chains.run.__name__)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["run"]


def test_public_names_are_there():
    for name in entropy_mcmc.__all__:
        assert getattr(entropy_mcmc, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        entropy_mcmc.nothing  # noqa: B018
