"""The verdict of docs/replicas.md: who is compared, what decides, what is said."""

import numpy as np
import pytest
from replicated import page, verdicts

AVERAGES = verdicts.FAMILY["y = 4"]


def rows(shift, seeds=5, spread=0.001, **counts):
    """NLL of every row: that of y = 4 plus a shift of its own, by label; seeds by label."""
    labels = [*page.AVERAGES, *page.SINGLE]
    rng = np.random.default_rng(0)
    made = {}
    for label in labels:
        number = counts.get(label, seeds)
        nll = 1.0 + shift.get(label, 0.0) + spread * rng.normal(size=number)
        made[label] = {seed: {"nll": float(value)} for seed, value in enumerate(nll)}
    return made


def outcomes(made):
    return {(c.ours, c.theirs): c.outcome for c in verdicts.comparisons(made)}


def test_outcomes_by_the_sign_and_size_of_the_difference():
    shift = {"y = 1 (EMCMC)": 0.1, "EMCMC ×4": -0.1, "SAM": 0.1}
    made = outcomes(rows(shift))
    assert made["y = 4", "y = 1 (EMCMC)"] == "better"
    assert made["y = 4", "EMCMC ×4"] == "worse"
    assert made["y = 4", "ensemble of 4"] == "not worse"
    assert made["guide, y = 4", "SAM"] == "better"


def test_four_seeds_decide_nothing_and_are_never_bold():
    made = verdicts.comparisons(rows({"SAM": 0.1}, SAM=4))
    against = next(c for c in made if c.theirs == "SAM" and c.ours == "y = 4")
    assert against.difference.high < 0  # the interval alone would decide
    assert against.outcome == verdicts.TOO_FEW
    assert against.p is None
    line = next(s for s in verdicts.differences(made) if s.startswith("- y = 4 minus SAM"))
    assert "**" not in line
    assert line.endswith("4 seeds: too few to judge")


def test_holms_correction_takes_back_what_one_interval_says():
    """p = 0.02 would do for one comparison; of seven it is not enough."""
    noisy = rows({}, spread=0.05)
    base = [0.009, 0.021, 0.012, 0.005, 0.003]
    for seed, d in enumerate(base):
        noisy["SAM"][seed]["nll"] = noisy["y = 4"][seed]["nll"] + d
    c = next(c for c in verdicts.comparisons(noisy) if (c.ours, c.theirs) == ("y = 4", "SAM"))
    assert c.difference.high < 0
    assert c.p > 0.05
    assert not c.decided


@pytest.mark.parametrize(
    ("shift", "answer"),
    [
        (dict.fromkeys(AVERAGES, 0.1), "it pays"),
        ({"SAM": 0.1}, "it pays in part"),
        ({"SAM": 0.1, "EMCMC ×4": -0.1}, "it does not pay"),
        ({}, "not shown to pay"),
    ],
)
def test_answers(shift, answer):
    text = verdicts.verdict("task", verdicts.comparisons(rows(shift)))
    assert text.startswith(f"- **task: {answer}.** y = 4 is ")
    assert "As one network its guide is " in text


def test_what_is_missing_is_said():
    made = rows(dict.fromkeys(AVERAGES, 0.1), SAM=0)
    text = verdicts.verdict("task", verdicts.comparisons(made))
    assert "it pays, as far as it was run" in text
    assert text.count("(not run: SAM)") == 2


def test_the_fewest_seeds_of_a_row_are_counted():
    full = {"fashion-mlp": rows({}), "cifar": rows({}, SAM=0, SGD=2)}
    text = page.state(full)
    assert "fashion-mlp: 5 of 5 seeds in every row;" in text
    assert "cifar: 0 of 5 seeds in every row: 0 of SAM, 2 of SGD)" in text
    extra = rows({}, **{"y = 4, coupled always": 0})  # no plan asks for it
    assert page.short(extra) == {}


def test_untrustworthy_estimates_are_marked_and_counted(tmp_path):
    by_seed = {s: {"nll": 1.0, "llc": 2.0 + s, "llc-untrusted": float(s == 0)} for s in range(3)}
    assert "| 3 ± 0.58 (1‡) | 3 |" in page.table({"SAM": by_seed})[-1]
    network = {"largest_eigenvalue": 1.0, "learning_coefficient": 2.0}
    record = {"scores": {}, "flatness": {"a": {**network, "notes": ["x"]}, "b": network}}
    (tmp_path / "SAM-0.json").write_text(page.json.dumps(record))
    assert page.doubtful([tmp_path]) == "1 of 2"


def test_seeds_that_were_run_later_also_speak_for_themselves():
    made = rows(dict.fromkeys(AVERAGES, 0.1))
    assert page.later(made, ()) == []
    lines = page.later(made, (0, 1, 2))
    assert lines[0].startswith("Seeds 0, 1 and 2 were run after the others")
    assert lines[2].startswith("- y = 4 minus y = 1 (EMCMC): ")
    assert "3 seeds" in lines[2]
