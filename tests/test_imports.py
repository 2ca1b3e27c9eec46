"""The import graph of DESIGN §4: data flows one way, and so do imports."""

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
    "schedules": {"errors"},
    "samplers": {"errors", "noise"},
    "posterior": {"errors"},
    "_metric_inputs": {"errors"},
    "metrics": {"errors", "_metric_inputs"},
    "theory": {"errors", "stationary"},
    "stationary": {"errors"},
    "diagnostics": {"errors", "stationary", "theory"},
    "flatness": {"errors"},
    "models": {"errors"},
    "data": {"errors"},
    "chains": {"errors", "noise", "samplers"},
    "run": {
        *("errors", "schedules", "samplers", "posterior", "metrics", "diagnostics", "flatness"),
        *("models", "data", "chains", "noise"),
    },
    "sklearn": {"errors", "run", "models", "posterior", "chains", "samplers", "schedules"},
    "report": {"errors", "metrics", "posterior", "diagnostics", "flatness", "theory", "run"},
    "reproduce": {
        *("errors", "noise", "schedules", "samplers", "posterior", "metrics", "theory", "chains"),
        *("stationary", "diagnostics", "flatness", "models", "data", "run", "report"),
    },
    "usage": set(),
    "cli": {
        "usage",
        "errors",
        "run",
        "report",
        "reproduce",
        "flatness",
        "diagnostics",
        "posterior",
    },
    "__main__": {"cli"},
}


def parts_imported(path):
    """Names of the package's parts that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the graph"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            pieces = name.split(".")
            if pieces[0] == "entropy_mcmc" and len(pieces) > 1:
                found.add(pieces[1])
    return found


FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_arrows(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    forbidden = parts_imported(path) - ALLOWED[part] - {part, "__version__"}
    assert not forbidden, f"{path} must not import {sorted(forbidden)}"


def test_import_brings_no_heavy_package():
    """`import entropy_mcmc` stays near `import torch`: nothing heavy that torch does not bring."""
    script = (
        "import sys, torch; before = set(sys.modules); import entropy_mcmc; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"sklearn", "scipy", "matplotlib", "PIL", "plotly", "arviz_stats", "lightning_fabric"}
    assert not heavy & set(out.stdout.split())


def test_public_names_are_there():
    for name in entropy_mcmc.__all__:
        assert getattr(entropy_mcmc, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        entropy_mcmc.nothing  # noqa: B018
