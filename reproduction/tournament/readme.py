"""What was seen in the tournament, taken from docs/tournament.md into the README."""

from __future__ import annotations

import re
from pathlib import Path

MARKS = ("<!-- tournament: python benchmarks/recipes.py render -->", "<!-- end of tournament -->")


def block(page: str) -> str:
    """Pictures and findings of the first league; the budget picture if the page shows it."""
    league = re.split(r"^## ", page, flags=re.MULTILINE)[1]
    parts = ["![NLL of every method minus SGD's](docs/pictures/tournament-own.png)"]
    for half, tasks in re.findall(r"^### (\w+) tasks: (.*)$", league, re.MULTILINE):
        text = league.split(f"### {half} tasks: {tasks}\n")[1]
        findings = re.match(r"\n((?:- .*\n)+)", text)
        parts.append(f"{half} tasks ({tasks}):\n\n{findings[1].rstrip() if findings else ''}")
    if "pictures/tournament-budget.png" in page:
        parts.append("![NLL against passes](docs/pictures/tournament-budget.png)")
    return "\n\n".join(parts)


def place(page: Path, readme: Path) -> None:
    """Write the block between its marks."""
    before, rest = readme.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    text = f"{before}{MARKS[0]}\n{block(page.read_text())}\n{MARKS[1]}{after}"
    readme.write_text(text)
