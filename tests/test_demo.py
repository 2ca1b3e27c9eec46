"""`make demo` on fewer steps: one experiment in a table, a picture and a page; a light install."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples/demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_table_picture_and_page_show_the_same_runs(demo, tmp_path, capsys):
    folder = tmp_path / "demo"
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{demo.MARKS[0]}\nold\n{demo.MARKS[1]}\nafter\n")
    arguments = ["--epochs", "12", "--seeds", "2", "--folder", str(folder)]
    results = demo.main([*arguments, "--readme", str(readme)])
    text = capsys.readouterr().out
    assert set(results) == {"sgd", "ensemble", "emcmc", "emcmc-4"}
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "report.html").read_text(encoding="utf-8")
    heading = re.search(r"<h1.*?</h1>", page, re.DOTALL)[0]
    assert "wrong-labels.npz" in heading
    assert str(tmp_path) not in heading  # paths of this machine tell a reader nothing
    for method, runs in results.items():
        assert len(runs) == 2
        mean = np.mean([one["nll"] for one in runs])
        assert f"{mean:.4f} ±" in text
        assert f"{mean:.4f} ±" in page  # the page's own means over seeds are the table's
        for seed in range(2):
            assert f">{method}-{seed}<" in page
    gaps = [a["nll"] - b["nll"] for a, b in zip(results["emcmc-4"], results["sgd"], strict=True)]
    error = abs(gaps[0] - gaps[1]) / 2  # the standard error of two values
    assert f"{np.mean(gaps):+.4f} ± {error:.4f}" in text
    assert str(folder / "report.html") in text
    shown = readme.read_text()
    assert "old" not in shown
    assert shown.startswith("before\n")
    assert shown.endswith("after\n")
    assert f"| {np.mean(gaps):+.4f} ± {error:.4f} |" in shown
    assert len({line.count("|") for line in shown.splitlines() if line.startswith("|")}) == 1


def test_the_readme_has_the_marks(demo):
    text = (ROOT / "README.md").read_text()
    assert all(text.count(mark) == 1 for mark in demo.MARKS)
    assert "| 4 chains − SGD, one network |" in text


def test_a_fifth_of_the_labels_is_drawn_at_random(demo, tmp_path):
    demo.write_data(tmp_path / "d.npz")
    with np.load(tmp_path / "d.npz") as arrays:
        assert len(arrays["x_train"]) == 1000
        assert len(arrays["x_test"]) == 797
        wrong = (arrays["y_test"] != arrays["true_test"]).mean()
    # Of a fifth, a tenth hits the right label again; 4 standard errors, false alarm 6e-5.
    assert abs(wrong - 0.18) < 4 * (0.18 * 0.82 / 797) ** 0.5


def test_the_demo_installs_no_tool_of_development():
    """`make demo` has a stamp of its own, and asks pip for the package without extras."""
    makefile = (ROOT / "Makefile").read_text()
    rule = re.search(r"^\$\(DEMO_STAMP\):[^\n]*\n((?:\t[^\n]*\n)+)", makefile, re.MULTILINE)
    installs = [line for line in rule[1].splitlines() if "pip install" in line]
    assert len(installs) == 1
    assert installs[0].rstrip().endswith("-e .")
    assert re.search(r"^demo: \$\(DEMO_STAMP\)$", makefile, re.MULTILINE)
    names = set(
        re.findall(r"^(?:from|import) (\w+)", (ROOT / "examples/demo.py").read_text(), re.M)
    )
    brought = {
        "argparse",
        "collections",
        "entropy_mcmc",
        "math",
        "numpy",
        "pathlib",
        "re",
        "shutil",
    }
    brought |= {"statistics", "time", "torch", "typing", "__future__"}
    assert names <= brought
