"""Columns of tables: numbers, categories, missing values and heavy tails become inputs."""

import numpy as np
import pandas as pd
import pytest

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.sklearn import EntropyMCMCClassifier, EntropyMCMCRegressor
from entropy_mcmc.sklearn.column_encoding import HEAVY, MOST_LEVELS, RARE, Columns, Levels, Numbers
from entropy_mcmc.sklearn.frames import as_column, has_categories

QUICK = {"n_steps": 200, "n_samples": 4, "n_chains": 2, "random_state": 0}


def ones(values):
    return np.ones(len(values))


def test_plain_numbers_are_standardised():
    values = np.array([1.0, 2.0, 4.0, 5.0])
    actual = Numbers.of(values, ones(values)).inputs(values)
    np.testing.assert_allclose(actual[:, 0], (values - 3) / values.std())
    weights = np.array([2.0, 1.0, 1.0, 0.0])
    actual = Numbers.of(values, weights).inputs(values)[:, 0]
    assert np.average(actual, weights=weights) == pytest.approx(0)
    assert np.average(actual**2, weights=weights) == pytest.approx(1)


def test_a_constant_column_is_zero():
    values = np.full(30, 1e9)
    np.testing.assert_array_equal(Numbers.of(values, ones(values)).inputs(values), 0.0)
    nothing = np.full(5, np.nan)
    np.testing.assert_array_equal(Numbers.of(nothing, ones(nothing)).inputs(nothing), 0.0)


def test_one_outlier_does_not_kill_a_column():
    values = np.append(np.random.default_rng(0).standard_normal(500), 1e9)
    column = Numbers.of(values, ones(values))
    inputs = column.inputs(values)[:, 0]
    assert column.heavy
    assert inputs[:500].std() > 0.4
    assert abs(inputs).max() < 30
    assert (np.diff(inputs[np.argsort(values)]) >= 0).all()
    assert not Numbers.of(values[:500], ones(values[:500])).heavy
    edge = np.append(np.linspace(-1, 1, 101), 0.9 * HEAVY * np.diff([-0.5, 0.5])[0] / 1.349)
    assert not Numbers.of(edge, ones(edge)).heavy


def test_missing_numbers_become_the_median_and_are_marked():
    values = np.array([1.0, np.nan, 3.0, 8.0])
    column = Numbers.of(values, ones(values))
    inputs = column.inputs(values)
    assert inputs[:, 1].tolist() == [0, 1, 0, 0]
    assert inputs[1, 0] == inputs[2, 0]
    full = Numbers.of(values[[0, 2, 3]], np.ones(3))
    assert full.inputs(values).shape == (4, 1)
    assert np.isfinite(full.inputs(values)).all()


def test_categories_are_one_hot_and_weigh_as_much_as_a_number():
    values = np.array(["a"] * 10 + ["b"] * 6 + [None] * 4, dtype=object)
    column = Levels.of(values, ones(values))
    inputs = column.inputs(values)
    assert column.names == ("a", "b", None)
    assert inputs.shape == (20, 3)
    assert inputs.var(axis=0).sum() == pytest.approx(1)
    np.testing.assert_allclose(inputs.mean(axis=0), 0, atol=1e-12)
    hot = inputs * column.scale + np.asarray(column.shares)
    np.testing.assert_allclose(hot[[0, 10, 16]], np.eye(3))
    unknown = column.inputs(np.array(["z", float("nan")], dtype=object))
    np.testing.assert_allclose(unknown[0], -np.asarray(column.shares) / column.scale)
    np.testing.assert_array_equal(unknown[1], inputs[16])


def test_rare_levels_share_an_input():
    many = [f"level {i}" for i in range(MOST_LEVELS + 5) for _ in range(RARE)]
    values = np.array([*many, "once"], dtype=object)
    column = Levels.of(values, ones(values))
    assert len(column.names) == MOST_LEVELS
    inputs = column.inputs(values)
    assert inputs.shape[1] == MOST_LEVELS + 1
    np.testing.assert_array_equal(column.inputs(np.array(["new"], dtype=object))[0], inputs[-1])


def test_numbers_that_turn_into_text_are_refused():
    columns = Columns.of([np.arange(5.0)], np.ones(5))
    with pytest.raises(ConfigError, match=r"column 0 must hold numbers.*'x'"):
        columns.inputs([np.array([1.0, "x"], dtype=object)])


def test_kinds_of_columns():
    assert not has_categories(np.zeros((2, 2)))
    assert not has_categories(np.array([[1, None], [2.5, 3]], dtype=object))
    assert has_categories(np.array([["a", 1], ["b", 2]], dtype=object))
    assert has_categories(np.array([["a", "b"]]))
    frame = pd.DataFrame(
        {
            "whole": pd.array([1, None, 3], dtype="Int64"),
            "text": ["a", "b", None],
            "code": pd.Categorical([1, 2, 1]),
            "flag": [True, False, True],
            "mixed": pd.Series([1, 2.5, None], dtype=object),
        }
    )
    assert has_categories(frame)
    assert not has_categories(frame[["flag"]])
    kinds = {name: as_column(name, frame[name]).dtype.kind for name in frame}
    assert kinds == {"whole": "f", "text": "O", "code": "O", "flag": "f", "mixed": "f"}
    np.testing.assert_array_equal(as_column("whole", frame["whole"]), [1, np.nan, 3])
    with pytest.raises(ConfigError, match="'day' must hold numbers or categories, got dates"):
        as_column("day", pd.Series(pd.to_datetime(["2026-01-01"])))
    with pytest.raises(ValueError, match="infinity"):
        as_column("big", pd.Series([1.0, np.inf]))


def made_frame(rows=200, seed=0):
    draws = np.random.default_rng(seed)
    colour = draws.choice(["red", "green", "blue"], rows)
    size = draws.standard_normal(rows)
    y = np.where(colour == "red", 2.0, -1.0) + size
    frame = pd.DataFrame({"colour": pd.Categorical(colour), "size": size})
    frame.loc[draws.random(rows) < 0.1, "size"] = np.nan
    return frame, y + 0.1 * draws.standard_normal(rows)


def test_a_frame_of_categories_and_missing_values_is_fitted():
    frame, y = made_frame()
    model = EntropyMCMCRegressor(**QUICK).fit(frame, y)
    assert model.score(frame, y) > 0.7
    assert list(model.feature_names_in_) == ["colour", "size"]
    labels = np.where(y > 0, "up", "down")
    classifier = EntropyMCMCClassifier(**QUICK).fit(frame, labels)
    assert classifier.score(frame, labels) > 0.85
    as_array = frame.astype(object).to_numpy()
    again = EntropyMCMCClassifier(**QUICK).fit(as_array, labels)
    np.testing.assert_allclose(again.predict_proba(as_array), classifier.predict_proba(frame))
    unknown = pd.DataFrame({"colour": ["violet"], "size": [0.0]})
    assert np.isfinite(model.predict(unknown)).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"size": "weight"}))


def test_an_outlier_in_the_table_leaves_the_other_rows_alone():
    draws = np.random.default_rng(0)
    x = draws.standard_normal((300, 2))
    y = (x[:, 0] > 0).astype(int)
    spoilt = x.copy()
    spoilt[0, 0] = 1e9
    model = EntropyMCMCClassifier(**QUICK).fit(spoilt, y)
    assert model.score(x[1:], y[1:]) > 0.95
