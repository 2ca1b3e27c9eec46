"""The README's Python runs as it stands there, and its make targets exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    codes = blocks("python")
    assert codes
    for code in codes:
        names = {}
        exec(compile(code, "README.md", "exec"), names)
    assert names["probs"].shape == (500, 10)
    assert len(names["posterior"]) == 8


def test_commands_are_make_targets():
    commands = re.findall(r"^make (\w+)", "".join(blocks("sh")), flags=re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert commands == ["demo", "test"]
    for target in commands:
        assert f"\n{target}:" in makefile


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), f"README links to {target}, which is not there"
