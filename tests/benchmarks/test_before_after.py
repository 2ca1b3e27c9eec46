"""The table that benchmarks/before_after.py writes into the docs, and the versions it compares."""

import json
import subprocess
from importlib import util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script():
    spec = util.spec_from_file_location("before_after", ROOT / "benchmarks" / "before_after.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OLD = [{"torch": 1.0, "step": 2.0}, {"torch": 1.0, "step": 4.0}, {"torch": 1.0, "step": 2.0}]
NEW = [{"torch": 1.0, "step": 1.0}, {"torch": 1.0, "step": 3.0}, {"torch": 1.0, "step": 4.0}]


def test_a_row_compares_round_by_round(script):
    (row,) = script.compared(OLD, NEW)
    assert row == {
        "what": "step",
        "ratio": 0.75,  # of 0.5, 0.75 and 2
        "quartiles": [0.5, 2.0],
        "old_s": 2.0,
        "new_s": 3.0,
    }


def test_the_page_has_the_table_of_the_file(script, tmp_path, monkeypatch):
    result = {
        **{"old": "abc", "new": "def", "rounds": 3, "date": "today", "machine": "m", "torch": "t"},
        "rows": script.compared(OLD, NEW),
        "import_over_torch": 1.05,
    }
    page, file = tmp_path / "page.md", tmp_path / "result.json"
    page.write_text((ROOT / "docs" / "benchmarks.md").read_text())
    file.write_text(json.dumps(result))
    monkeypatch.setattr(script, "PAGE", page)
    monkeypatch.setattr(script, "RESULT", file)
    script.render()
    once = page.read_text()
    assert "| step | 0.750 | 0.500 to 2.000 |" in once
    assert "Commit def against abc" in once
    script.render()
    assert page.read_text() == once
    before, after = (ROOT / "docs" / "benchmarks.md").read_text().split(script.MARKS[0])
    assert once.startswith(before)
    assert once.endswith(after.split(script.MARKS[1], 1)[1])


def test_a_source_folder_is_taken_as_it_is(script):
    inside = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    if inside.returncode:
        pytest.skip("no git checkout here")
    with script.source(str(ROOT / "src")) as (folder, commit):
        assert Path(folder) == ROOT / "src"
        assert commit == inside.stdout.strip()
