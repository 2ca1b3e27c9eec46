"""The benchmark of tables: splits, scores and the page, on made results."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from tabular import command, page, scores
from tabular.catalogue import TABLES, Table


def made(name, nlls, half="development", task="classification", **more):
    """A record with these NLLs, (method, split) → value."""
    fit = {"ece": 0.1, "brier": 0.2, "accuracy": 0.9, "fit_seconds": 1.0, "test_rows": 10}
    fit |= {"plain_nll": 0.7, **more}
    fits = {f"{m}/{s}": {**fit, "nll": v} for (m, s), v in nlls.items()}
    record = {"table": name, "task": task, "half": half, "rows": 40, "columns": 2}
    return record | {"fits": fits}


def three_tables():
    ours, other = page.OURS, "mlp"
    return [
        made("a", {(ours, 0): 0.1, (other, 0): 0.3, (ours, 1): 0.3, (other, 1): 0.3}),
        made("b", {(ours, 0): 0.2, (other, 0): 0.1, ("rare", 0): 0.0}),
        made("c", {(ours, 0): 0.9, (other, 0): 1.0, (ours, 1): 9.0}),
    ]


def test_methods_and_splits_that_all_tables_have_are_compared():
    records = three_tables()
    names = page.methods(records)
    assert names == [page.OURS, "mlp"]
    values = page.means(records, names, "nll")
    np.testing.assert_allclose(values, [[0.2, 0.3], [0.2, 0.1], [0.9, 1.0]])
    np.testing.assert_allclose(page.ranks(values), [4 / 3, 5 / 3])


def test_a_table_that_is_worse_than_nothing_is_named():
    assert page.worse_than_nothing(three_tables()[:2]) == "none"
    assert "c (+0.200)" in page.worse_than_nothing([made("c", {("entropy-mcmc", 0): 0.9})])


def test_holm_multiplies_the_smallest_p_most():
    draws = np.random.default_rng(0)
    first = draws.standard_normal(30)
    others = [first + 1 + 0.1 * draws.standard_normal(30), first + 0.2 * draws.standard_normal(30)]
    raw = [page.holm(np.stack([first, o], axis=1))[0] for o in others]
    both = page.holm(np.stack([first, *others], axis=1))
    assert both == pytest.approx([2 * raw[0], max(2 * raw[0], raw[1])])


def test_the_page_has_both_halves_and_the_best_in_bold():
    def read(task, half):
        return three_tables() if (task, half) == ("classification", "development") else []

    text = page.render(read)
    assert "## The confirmation half" in text
    assert "Not run yet." in text
    assert "| b | 40 | 1 | 0.200 | **0.100** |" in text


def test_a_fit_is_made_once_and_confirmation_tables_are_left_alone(tmp_path, monkeypatch):
    frame = pd.DataFrame({"a": np.arange(40.0)})
    table = Table("made", "classification", "made", "")
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    monkeypatch.setattr(command, "TABLES", {"made": table})
    monkeypatch.setattr(command.loaders, "load", lambda _: (frame, pd.Series(["x", "y"] * 20)))
    other = {"development": "confirmation", "confirmation": "development"}[table.half]
    command.main([other, "--splits", "1", "--methods", "logistic"])
    assert not list(tmp_path.iterdir())
    for _ in range(2):
        command.main([table.half, "--splits", "1", "--methods", "logistic"])
    record = json.loads((tmp_path / "made.json").read_text())
    assert set(record["fits"]) == {"logistic/0"}
    before = (tmp_path / "made.json").stat().st_mtime_ns
    command.main([table.half, "--splits", "1", "--methods", "logistic"])
    assert (tmp_path / "made.json").stat().st_mtime_ns == before


def test_rows_of_unknown_classes_are_not_tested():
    y = pd.Series(["x"] * 20 + ["y"] * 19 + ["once"])
    x = pd.DataFrame({"a": np.arange(40.0)})
    for split in range(5):
        (_, train), (_, test) = command.divided(TABLES["iris"], x, y, split)
        assert set(test) <= set(train)


def test_crps_of_quantiles_is_that_of_the_closed_form():
    class Normal:
        def predict(self, x):
            return np.zeros(len(x))

        def predict_interval(self, x, level):
            return np.tile(norm.interval(level), (len(x), 1))

        def predict_quantiles(self, x, levels):
            return np.tile(norm.ppf(levels), (len(x), 1))

        def log_density(self, x, y):
            return norm.logpdf(y)

    y = np.array([-1.0, 0.0, 0.7])
    actual = scores.ours(Normal(), np.zeros((3, 1)), y)[-1]
    np.testing.assert_allclose(actual, scores.gaussian_crps(y, 0.0, 1.0), atol=0.02)
