"""Every Python block of the docs runs as it stands there.

Blocks of one page share their names, and run in an empty folder. A block that cannot run has a
line above it that says so and why: `*Not run by the tests: …*`.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))  # tests/test_readme.py has the README
BLOCK = re.compile(r"^([^\n]*)\n+```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXCUSE = re.compile(r"^\*Not run by the tests: .+\*$")


def blocks(page):
    """(line, code) of the Python blocks of a page that are to be run."""
    text = page.read_text()
    for match in BLOCK.finditer(text):
        above, language, code = match.groups()
        if language in ("python", "py") and not EXCUSE.match(above):
            yield text.count("\n", 0, match.start(3)) + 1, code


CODE = [page for page in PAGES if any(blocks(page))]


def test_pages_have_code():
    names = {page.name for page in CODE}
    assert {"quickstart.md", "units.md", "migrating.md"} <= names


def test_no_block_escapes():
    # Blocks in lists or with other fences would not be found by the pattern above.
    for page in PAGES:
        fences = len(re.findall(r"^\s*(?:```|~~~)\s*py", page.read_text(), flags=re.MULTILINE))
        excused = len(re.findall(r"^\*Not run by the tests: ", page.read_text(), re.MULTILINE))
        assert fences == len(list(blocks(page))) + excused, page.name


@pytest.mark.filterwarnings("ignore::FutureWarning:lightning")
@pytest.mark.parametrize("page", CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for line, code in blocks(page):
        padded = "\n" * (line - 1) + code  # so that an error names the line of the page
        exec(compile(padded, str(page), "exec"), names)


def test_commands_of_the_pages_exist():
    from entropy_mcmc.parsers import option_words

    known = {c: {flag.lstrip("-") for flag in option_words(c)} for c in ("sample", "tune")}
    for options in known.values():
        options |= {"help-all", "print_config"}
    commands = {"sample", "tune", "evaluate", "predict", "flatness", "report", "reproduce"}
    seen = 0
    for page in PAGES:
        text = page.read_text()
        for name, rest in re.findall(r"(?:^|[$`] ?)emcmc (\w[\w-]*)([^\n`#]*)", text, re.MULTILINE):
            assert name in commands, f"{page.name}: emcmc {name}"
            if name in ("sample", "tune"):
                options = re.findall(r"--([\w.-]+)", rest)
                assert set(options) <= known[name], f"{page.name}: emcmc {name}{rest}"
            seen += 1
    assert seen > 5
