"""Griffe extension: doctests and formulas of docstrings become code blocks of the site."""

from __future__ import annotations

import re
from typing import Any

import griffe

MATH = re.compile(r"^\.\. math::[ ]?(.*(?:\n(?:[ ]+.*|(?=\n)))*)", re.MULTILINE)
DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Fences(griffe.Extension):
    """Markdown would read `>>>` as three nested quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class and function."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring with its doctests and formulas in fences."""
    text = MATH.sub(lambda found: f"```text\n{found[1].strip()}\n```\n", text)
    return DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
