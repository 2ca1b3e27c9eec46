"""The import graph: data flows one way, and so do imports. `docs/architecture.md` holds it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import entropy_mcmc

ROOT = Path(entropy_mcmc.__file__).parent
REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def part_of(path):
    """`samplers` of samplers/sgld.py, `noise` of noise.py."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


PARTS = sorted({part_of(path) for path in FILES})


def drawn():
    """The graph of the page: rows | `part` | what it is | `part`, `part` |."""
    table = PAGE.partition("<!-- import graph")[2].partition("<!-- end of import graph")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    return {row[1].strip(" `"): set(re.findall(r"`(\w+)`", row[3])) for row in rows}


def modules_imported(path):
    """Dotted names that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the graph"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parts_imported(part):
    """Other parts that a part imports; `errors` is for all."""
    names = [n.split(".") for p in FILES if part_of(p) == part for n in modules_imported(p)]
    parts = {each[1] for each in names if each[0] == "entropy_mcmc" and len(each) > 1}
    return parts - {part, "errors", "__version__"}


@pytest.mark.parametrize("part", PARTS)
def test_imports_are_those_of_the_page(part):
    row = ", ".join(f"`{name}`" for name in sorted(parts_imported(part)))
    message = f"docs/architecture.md: `{part}` imports {row or 'nothing'}; mend the code or the row"
    assert drawn().get(part) == parts_imported(part), message


def test_the_page_draws_only_what_exists():
    assert sorted(drawn()) == PARTS


def test_the_graph_has_no_cycles():
    graph = drawn()
    while graph:
        free = {part for part, imports in graph.items() if not imports & set(graph)}
        assert free, f"cycles among {sorted(graph)}"
        graph = {part: imports for part, imports in graph.items() if part not in free}


def test_files_that_the_page_names_exist():
    named = set(re.findall(r"`([\w/-]+(?:\.py|/))`", PAGE))
    assert len(named) > 20
    for name in named:
        assert (ROOT / name).exists() or (REPOSITORY / name).exists(), name


def test_the_library_never_imports_the_experiments():
    experiments = {folder.parent.name for folder in REPOSITORY.glob("reproduction/*/__init__.py")}
    assert {"entropy_mcmc_reproduction", "tournament"} <= experiments
    for path in FILES:
        names = {name.split(".")[0] for name in modules_imported(path)}
        assert not names & experiments, path


def test_import_brings_no_heavy_package():
    """`import entropy_mcmc` stays near `import torch`: nothing heavy that torch does not bring."""
    script = (
        "import sys, torch; before = set(sys.modules); import entropy_mcmc; "
        "print(*{m.split('.')[0] for m in set(sys.modules) - before})"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"sklearn", "scipy", "matplotlib", "PIL", "arviz_stats", "lightning_fabric"}
    assert not heavy & set(out.stdout.split())


PREDICT = """
import sys, tempfile, torch
from entropy_mcmc import Posterior, metrics

class Closed(torch.nn.Linear):  # a function that no copy reaches: it uses this very module
    def __init__(self):
        super().__init__(2, 3)
        self.run = lambda x: torch.nn.functional.linear(x, self.weight, self.bias)

    def forward(self, x):
        return self.run(x)

for model in (torch.nn.Linear(2, 3), Closed()):
    posterior = Posterior.create(tempfile.mkdtemp(), model)
    for step in range(2):
        torch.nn.init.normal_(model.weight)
        posterior.collect(step=step)
    each = posterior.sample_predictions(torch.ones(4, 2))
    assert not torch.allclose(each[0], each[1])
metrics.auroc([0.1, 0.2], [0.2, 0.9]), metrics.aupr([0.1], [0.2]), metrics.fpr95([0.1], [0.2])
print(*{"torch._dynamo", "sklearn"} & set(sys.modules))
"""


def test_predictions_and_their_scores_do_not_wait_for_imports():
    """Neither torch's compiler nor scikit-learn; and samples are told apart without them, too."""
    out = subprocess.run([sys.executable, "-c", PREDICT], capture_output=True, text=True)
    assert (out.stdout.strip(), out.returncode) == ("", 0), out.stderr


def test_chains_are_reached_after_a_plain_import():
    script = "import entropy_mcmc; print(entropy_mcmc.chains.run.__name__)"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["run"]


def test_public_names_are_there():
    for name in entropy_mcmc.__all__:
        assert getattr(entropy_mcmc, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        entropy_mcmc.nothing  # noqa: B018
