"""`make demo` on fewer steps: a table with every method, a picture, and a page."""

import runpy
import sys
from pathlib import Path


def test_demo_ends_with_a_table_a_picture_and_a_page(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "demo.png"
    page = tmp_path / "demo.html"
    arguments = ["demo.py", "--steps", "64", "--seeds", "2", "--picture", str(picture)]
    arguments += ["--page", str(page)]
    monkeypatch.setattr(sys, "argv", arguments)
    runpy.run_path(str(Path(__file__).parents[1] / "examples/demo.py"), run_name="__main__")
    text = capsys.readouterr().out
    for word in (
        "SGD",
        "SGLD",
        "Entropy-MCMC",
        "accuracy",
        "NLL",
        "ECE",
        "AUROC",
        str(picture),
        str(page),
    ):
        assert word in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown = page.read_text(encoding="utf-8")
    assert all(f">{method}</button>" in shown for method in ("sgd", "sgld", "emcmc"))
