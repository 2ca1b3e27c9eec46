"""`docs/reproduction.md` is what `results/` say, and nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest

from entropy_mcmc.cli import main
from entropy_mcmc.errors import ConfigError
from entropy_mcmc_reproduction import headline, page
from entropy_mcmc_reproduction.items import MODULES, Outcome, Verdict, item
from entropy_mcmc_reproduction.jobs import Place, ordered, pending
from entropy_mcmc_reproduction.running import write
from entropy_mcmc_reproduction.text import ALIKE, FAILS, HOLDS, NOT_RUN, UNDECIDED

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_the_generated_one():
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    message = "run `emcmc reproduce --page docs/reproduction.md` and commit the result"
    assert text == page.page(ROOT / "results", "laptop"), message


def test_the_readmes_table_is_the_generated_one():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    message = "run `emcmc reproduce --headline README.md` and commit the result"
    assert text == headline.placed(text, ROOT / "results", "laptop"), message


def test_committed_results_are_those_of_todays_jobs(tmp_path):
    place = Place(ROOT / "results" / "laptop", tmp_path, "data")
    jobs = item("temperature").jobs("laptop", place)
    assert len(jobs) > 30
    assert pending(ordered(jobs), place) == []


def claim(rival, decision, measure="nll", ours="EMCMC"):
    return Verdict(f"{ours} is better than {rival}", "by 0.1", decision, measure, [0.1, 0.0, 0.2])


def test_the_headline_says_what_was_decided_in_nll(tmp_path):
    place = Place(tmp_path / "results" / "laptop", tmp_path)
    claims = [
        claim("SGD", HOLDS),
        claim("SWA", FAILS),
        claim("SAM", HOLDS),
        claim("IVON", UNDECIDED),
        replace(claim("EMA", HOLDS), effect=[0.004, 0.001, 0.007], margin=0.01),
        claim("SGLD", NOT_RUN),
        claim("SWA", HOLDS, "ece"),
        claim("ensemble 4", ALIKE, ours="EMCMC ×4"),
    ]
    rows, notes = [["SGD", "1.2"]], ["[rules](comparison.md#a)"]
    outcome = Outcome(["method", "NLL"], rows, claims, notes=notes)
    write("cifar", outcome, place, {"runs": 2, "wanted_runs": 3})
    page_file = tmp_path / "page.md"
    page_file.write_text(f"before\n{headline.MARKS[0]}\nold\n{headline.MARKS[1]}\nafter\n")
    command = ["reproduce", "--headline", str(page_file), "--results", str(tmp_path / "results")]
    assert main(command) == 0
    text = page_file.read_text(encoding="utf-8")
    assert (
        "- CIFAR-10, 3,000 pictures, ResNet-8: **EMCMC** better than SGD, SAM, EMA (by less than "
        "the margin); worse than SWA; not decided: IVON; not run: SGLD. **EMCMC ×4** alike within "
        "the margin: ensemble 4. Interim: 2 of 3 runs."
    ) in " ".join(text.split())
    assert "| method | NLL |\n| --- | --- |\n| SGD | 1.2 |\n" in text
    assert "[rules](docs/comparison.md)" in text
    assert "first measure: holds: 3, alike within the margin: 1, does not hold: 1, not" in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "\nold" not in text
    with pytest.raises(ConfigError, match="must hold the lines"):
        headline.placed("no marks", tmp_path / "results", "laptop")


def test_the_committed_figures_are_those_of_the_results():
    folder = ROOT / "docs" / page.PICTURES
    found = page.outcomes(ROOT / "results", "laptop")
    wanted = page.figures(found)
    assert {path.stem for path in folder.glob("*.png")} == wanted
    for name in wanted:
        kept = ROOT / "results" / "laptop" / "items" / f"{name}.png"
        assert (folder / f"{name}.png").read_bytes() == kept.read_bytes()


@pytest.fixture
def results(tmp_path):
    """One item with one figure."""
    verdicts = [
        Verdict("it rains", "3 ± 1 mm", HOLDS, short="rain"),
        Verdict("it snows", "0 mm", HOLDS, short="snow"),
    ]
    draw = lambda path: path.write_bytes(b"picture")  # noqa: E731
    outcome = Outcome(["a", "b"], [["1", "2"]], verdicts, {"rain": draw}, ["A note."])
    made_of = {"runs": 2, "wanted_runs": 3, "seconds": 90.0, "versions": {"torch": ["2.0", "2.1"]}}
    write("smoothing", outcome, Place(tmp_path / "results" / "laptop", tmp_path), made_of)
    return tmp_path / "results"


def test_the_page_shows_tables_verdicts_numbers_and_versions(results, tmp_path):
    target = tmp_path / "docs" / "page.md"
    target.parent.mkdir()
    old = target.parent / page.PICTURES / "old.png"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"")
    assert main(["reproduce", "--page", str(target), "--results", str(results)]) == 0
    text = target.read_text(encoding="utf-8")
    for line in (
        "| [smoothing](#smoothing) | Fig. 1b and appendix | 2 | 0 | 0 | 0 | 0 |",
        "<details markdown><summary>Table, figures and verdicts</summary>\n\n|",
        "| it rains | 3 ± 1 mm | **holds** |",
        "\nA note.\n\n</details>",
        "the smaller η, the flatter | **holds**: rain, snow | [smoothing](#smoothing) |",
        "The items above took 0.0 hours of one thread, searches among them;",
        "(2 of 3 runs, 1.5 minutes of one thread; items may share runs)",
        "- torch 2.0, 2.1",
        "](pictures/reproduction/rain.png)",
        "Not run here: it has the paper's size only",
        "emcmc reproduce all --scale laptop",
    ):
        assert line in text
    assert (target.parent / page.PICTURES / "rain.png").read_bytes() == b"picture"
    assert not old.exists()
    assert all(f"## {name}\n" in text for name in MODULES)


def test_a_damaged_outcome_is_refused_with_its_name(results):
    path = results / "laptop" / "items" / "smoothing.json"
    path.write_text(path.read_text()[:50])
    with pytest.raises(ConfigError, match=r"smoothing\.json is damaged .*--show"):
        page.page(results, "laptop")
