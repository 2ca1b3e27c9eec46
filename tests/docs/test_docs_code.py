"""Every Python block of the docs runs as it stands there.

Blocks of one page share their names, and run in an empty folder. A block that cannot run has a
line above it that says so and why: `*Not run by the tests: …*`. One for torchrun has another line,
`*Run by the tests on two processes.*`, and gets what torchrun would give it.
"""

import os
import re
import socket
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))  # tests/test_readme.py has the README
BLOCK = re.compile(r"^([^\n]*)\n+```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXCUSE = re.compile(r"^\*Not run by the tests: .+\*$")
SPREAD = "*Run by the tests on two processes.*"


def blocks(page, *, spread=False):
    """(line, code) of the Python blocks of a page that are to be run, on one process or on two."""
    text = page.read_text()
    for match in BLOCK.finditer(text):
        above, language, code = match.groups()
        wanted = (above == SPREAD) == spread and not EXCUSE.match(above)
        if language in ("python", "py") and wanted:
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
        found = [*blocks(page), *blocks(page, spread=True)]
        assert fences == len(found) + excused, page.name


@pytest.mark.filterwarnings("ignore::FutureWarning:lightning")
@pytest.mark.parametrize("page", CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for line, code in blocks(page):
        run(page, line, code, names)


def run(page, line, code, names):
    padded = "\n" * (line - 1) + code  # so that an error names the line of the page
    exec(compile(padded, str(page), "exec"), names)


def launched(rank, port, folder, page, line, code):
    """What torchrun does with a process of two."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    os.chdir(folder)
    with (folder / f"told-{rank}").open("w") as told, redirect_stdout(told):
        run(page, line, code, {"__name__": "__main__"})


LAUNCHED = [(page, *block) for page in PAGES for block in blocks(page, spread=True)]


@pytest.mark.parametrize(("page", "line", "code"), LAUNCHED, ids=["replicas"])
def test_code_for_torchrun_runs(page, line, code, tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("fork")
    given = (port, tmp_path, page, line, code)
    workers = [context.Process(target=launched, args=(rank, *given)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert (tmp_path / "told-0").read_text().startswith("6 samples")
    assert (tmp_path / "told-1").read_text() == ""


def test_code_for_torchrun_is_found():
    assert [page.name for page, *_ in LAUNCHED] == ["scaling.md"]


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
