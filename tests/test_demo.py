"""`make demo` on fewer steps: a table with every method, and a picture."""

import runpy
import sys
from pathlib import Path


def test_demo_ends_with_a_table_and_a_picture(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "demo.png"
    arguments = ["demo.py", "--steps", "64", "--seeds", "2", "--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(Path(__file__).parents[1] / "examples/demo.py"), run_name="__main__")
    text = capsys.readouterr().out
    for word in ("SGD", "SGLD", "Entropy-MCMC", "accuracy", "NLL", "ECE", "AUROC", str(picture)):
        assert word in text
    assert picture.read_bytes().startswith(b"\x89PNG")
