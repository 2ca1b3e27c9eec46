"""The README says of the tournament what its page says."""

import re
from pathlib import Path

from tournament import readme

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tournament.md").read_text()
README = (ROOT / "README.md").read_text()
OWN, TRIALS = PAGE.split("## 16 trials for every method\n")


def test_the_block_is_that_of_the_page(tmp_path):
    copied = tmp_path / "README.md"
    copied.write_text(README)
    readme.place(ROOT / "docs" / "tournament.md", copied)
    assert copied.read_text() == README, "run python benchmarks/recipes.py render"
    own = README.split(readme.MARKS[0])[1].split(readme.MARKS[1])[0]
    assert own.count("EMCMC against SGD in NLL: decided better on") == 2


def test_what_is_said_below_the_block_is_in_its_findings():
    """Sentences without numbers still claim: no decided loss to SGD, and which targets failed."""
    text = " ".join(README.split("## Results")[1].split("\n## ")[0].split())
    against = re.findall(r"EMCMC against SGD in NLL: .*", OWN)
    never = "has lost to it on none of these tasks" in text
    assert never == all("worse on none" in line for line in against)
    ranks = re.findall(r"EMCMC among methods with one chain: place (\d+)", OWN)
    four = re.findall(r"EMCMC ×4 among all methods: place (\d+)", OWN)
    missed = "Three of the five targets were missed" in text
    better, of = re.search(r"better on (\d+).* of (\d+) tasks", against[0]).groups()
    assert missed == (2 * int(better) < int(of) and int(ranks[0]) > 1 and int(four[0]) > 1)


def test_what_is_said_of_the_trials_is_in_their_findings():
    head = "**With 16 trials for every method**"
    text = " ".join(README.split(head)[1].split("\n- **")[0].split())
    better = re.findall(r"decided better on \d+ \((.*?)\)", TRIALS)
    assert better == re.findall(r"better than SGD on `([\w-]+)`", text)
    assert re.findall(r"decided worse on (\w+),", TRIALS) == ["none", "none"]
    assert "decided worse nowhere" in text
    behind = re.search(r"\| kin8nm \| SGD \| \+(\S+) \| \+(\S+) to \+(\S+) \|", TRIALS).groups()
    said = re.search(r"behind by (\S+) nats \(95 %: (\S+) to (\S+);", text).groups()
    assert said == tuple(f"{float(value):.3f}" for value in behind)
    places = re.findall(r"EMCMC among methods with one chain: place (\d+) of 10", TRIALS)
    words = ["", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
    confirmation, development = (words[int(place)] for place in places)
    assert f"it is {development} of the methods with one chain on the development tasks" in text
    assert f"{confirmation} of ten on the confirmation tasks" in text


def test_decided_differences_from_the_ensemble_are_the_ones_named():
    text = " ".join(README.split())
    named = set(re.findall(r"`([\w-]+)`", re.search(r"both below 0.002 \((.*?)\)", text)[1]))
    decided = {}
    for part in OWN.split(">EMCMC ×4 against its rivals<")[1:]:
        table = part.split("| ece, ours")[0]
        rows = r"\| ([\w-]+) \| ensemble 4 \| (\S+) \|.*\| (better|worse) \|"
        decided |= {task: float(value) for task, value, _ in re.findall(rows, table)}
    assert set(decided) == named
    assert min(decided.values()) < 0 < max(decided.values())
    assert all(abs(value) < 0.002 for value in decided.values())


def test_what_gives_what_is_in_the_table_of_ingredients():
    text = " ".join(README.split("**What gives what**")[1].split("\n- **")[0].split())
    table = PAGE.split("## What each ingredient gives")[1].split("\n## ")[0]
    column = [cell.strip() for cell in re.search(r"\|  \|(.*)\|", table)[1].split("|")]
    rows = {
        name.strip(): dict(zip(column, [c.strip() for c in cells.split("|")], strict=True))
        for name, cells in re.findall(
            r"^\| (no [\w, ]+|four chains|weight decay 5e-4) \|(.*)\|$", table, re.M
        )
    }
    said = {
        "weight decay 5e-4": r"variance gives ([\d.]+)",
        "no average": r"averaging ([\d.]+)",
        "no guide": r"the guide ([\d.]+)",
        "four chains": r"instead of one ([\d.]+)",
    }
    for name, pattern in said.items():
        value = float(re.search(r"[+-][\d.]+", rows[name]["wine-red"])[0])
        assert f"{abs(value):.3f}" == re.search(pattern, text)[1].rstrip("."), name
    assert not rows["no noise"]["wine-red"].startswith("**")
    decided = [name for name, cells in rows.items() if cells["digits"].startswith("**")]
    assert decided == ["no momentum"]
