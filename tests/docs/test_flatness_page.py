"""The numbers that docs/flatness.md says its examples print."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "flatness.md"
EXAMPLE = re.compile(r"```python\n(.*?)```\s*(?:[^`]*?\n\n)?```\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_examples_print_what_the_page_shows(capsys):
    """Within 3 %: other machines round the steps of a chain differently."""
    examples = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(examples) == 2
    names = {}
    for code, shown in examples:
        exec(code, names)
        printed = capsys.readouterr().out
        assert NUMBER.sub("", printed) == NUMBER.sub("", shown)
        got, expected = ([float(n) for n in NUMBER.findall(text)] for text in (printed, shown))
        assert got == pytest.approx(expected, rel=0.03, abs=1.001e-3)
