"""The summary's picture of effects: which claims it shows, in what order and unit."""

import pytest

from entropy_mcmc_reproduction import effects
from entropy_mcmc_reproduction.text import HOLDS

RIVALS = [("EMCMC is better than SGHMC", 0.1), ("EMCMC is better than SGD", 0.2)]


def outcomes(measure="nll", paper="1.5 against 2", **gains):
    """Outcomes of items with a verdict for each (claim, gain)."""
    shared = {"measured": "", "measure": measure, "decision": HOLDS, "paper": paper, "margin": 0.01}
    return {
        name.replace("_", "-"): {
            "verdicts": [
                {**shared, "claim": claim, "effect": [gain, gain - 0.1, gain + 0.1]}
                for claim, gain in some
            ]
        }
        for name, some in gains.items()
    }


def test_the_upper_panels_have_the_main_rivals_in_nll():
    others = [("EMCMC is better than EMA", 0.3), ("EMCMC ×4 is better than ensemble 4", -0.1)]
    found = outcomes(cifar=[*RIVALS, *others], gibbs=[("it is better", 0.1)])
    found["cifar"]["verdicts"].append({**found["cifar"]["verdicts"][0], "effect": None})
    found["cifar"]["verdicts"].append({**found["cifar"]["verdicts"][0], "measure": "ece"})
    rows = effects.comparisons(found)
    assert [row.text for row in rows] == ["SGHMC", "SGD", "4 chains − ensemble 4"]
    assert rows[0] == ("cifar", "SGHMC", [0.1, 0.0, 0.2], 0.5, HOLDS, 0.01)


def test_augmented_rivals_stand_in_the_same_lines():
    claim = "EMCMC, augmented is better than SGD, augmented"
    (row,) = effects.comparisons(outcomes(cifar_augmented=[(claim, 0.1)]))
    assert (row.item, row.text) == ("cifar-augmented", "SGD")


def test_the_lower_panel_has_the_papers_claims_on_accuracy_in_points():
    paper = "accuracy 95.1 against 94.6 %"
    some = [("a", 0.1), ("b", 0.3), ("c", -0.2)]
    found = outcomes("accuracy", paper, eta=some, burn_in=some[:2], cifar=RIVALS)
    found |= outcomes("accuracy", "", gibbs=some)  # of which the paper says nothing
    rows = effects.claimed(found)
    told = [(row.item, row.text) for row in rows]
    assert told == [("eta", "b"), ("eta", "c"), ("burn-in", "a"), ("burn-in", "b")]
    assert rows[0].effect == pytest.approx([30, 20, 40])
    assert (rows[0].paper, rows[0].margin) == (pytest.approx(0.5), 1.0)


def test_the_picture_is_drawn_where_there_is_an_effect(tmp_path):
    many = {f"fashion-{kind}": outcomes(x=RIVALS)["x"] for kind in ("mlp", "cnn")}
    accuracy = outcomes("accuracy", "accuracy 95.1 against 94.6 %", eta=[("a", 0.1)])
    found = {**outcomes(cifar=RIVALS), **many, **accuracy}
    effects.draw_all(found, tmp_path)
    assert (tmp_path / "effects.png").stat().st_size > 2_000
    effects.draw_all(outcomes(gibbs=[("it is better", 0.1)]), tmp_path / "none")
    assert not (tmp_path / "none").exists()
