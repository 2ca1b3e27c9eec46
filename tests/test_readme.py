"""The README's Python runs as it stands there, and its make targets exist."""

import re
from pathlib import Path

import pytest

from entropy_mcmc import metrics

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_python_blocks_run_twice_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables, loop = blocks("python")
    for _ in range(2):
        names = {}
        exec(compile(tables, "README.md", "exec"), names)
        # The comments of the README have these numbers, and say that many networks are better.
        told = [float(number) for number in re.findall(r"# (0\.\d+)$", tables, re.MULTILINE)]
        assert [names["one_network"], names["many_networks"]] == pytest.approx(told, abs=0.02)
        assert names["many_networks"] < names["one_network"] - 0.02
        exec(compile(loop, "README.md", "exec"), names)
        assert names["probs"].shape == (360, 10)
        assert len(names["posterior"]) == names["recipe"].samples
        assert metrics.accuracy(names["probs"], names["test"].targets) > 0.9


def test_commands_are_make_targets():
    commands = re.findall(r"^make (\w+)", "".join(blocks("sh")), flags=re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert commands == ["demo", "test"]
    for target in commands:
        assert f"\n{target}:" in makefile


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), f"README links to {target}, which is not there"
