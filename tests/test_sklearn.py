"""The estimators: scikit-learn's own checks, its tools, and the predictive against plain loops."""

import io
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from entropy_mcmc.errors import ConfigError, NonFiniteError
from entropy_mcmc.sklearn import EntropyMCMCClassifier, EntropyMCMCRegressor, classifier_selection
from entropy_mcmc.sklearn.base import automatic_steps, moments
from entropy_mcmc.sklearn.classifier_selection import CANDIDATES, FALLBACK

QUICK = {"n_steps": 60, "n_samples": 4, "n_chains": 2, "random_state": 0}
QUICK |= {"lr": 1.0, "momentum": 0.9}  # settles in few steps


def wave(rows=120, noise=0.1, seed=0):
    draws = np.random.default_rng(seed)
    x = draws.uniform(-2, 2, (rows, 2))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + noise * draws.standard_normal(rows)


@parametrize_with_checks([EntropyMCMCClassifier(**QUICK), EntropyMCMCRegressor(**QUICK)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.soak
@parametrize_with_checks([EntropyMCMCClassifier(), EntropyMCMCRegressor()])
def test_scikit_learn_checks_with_defaults(estimator, check):
    check(estimator)


def test_grid_search_in_a_pipeline():
    x, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), EntropyMCMCClassifier(**QUICK))
    grid = {"entropymcmcclassifier__prior_variance": [0.5, 2.0]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss", error_score="raise")
    search.fit(x, y)
    assert search.best_score_ > -math.log(3)
    assert search.best_estimator_.score(x, y) > 0.9


def test_cross_validation_of_a_clone():
    x, y = wave()
    model = clone(EntropyMCMCRegressor(**QUICK | {"lr": 0.5}))
    assert model.lr == 0.5
    assert cross_val_score(model, x, y, cv=2).mean() > 0.5


@pytest.mark.parametrize("kind", [EntropyMCMCClassifier, EntropyMCMCRegressor])
def test_pickle_is_self_contained(kind):
    x, y = wave()
    y = y > 0 if kind is EntropyMCMCClassifier else y
    model = kind(**QUICK).fit(x, y)
    stream = io.BytesIO()
    pickle.dump(model, stream)
    again = pickle.loads(stream.getvalue())
    np.testing.assert_array_equal(again.sample_predictions(x), model.sample_predictions(x))


def test_random_state_decides_everything():
    x, y = wave()
    one, same, other = (
        EntropyMCMCRegressor(**QUICK | {"random_state": s}).fit(x, y).predict(x) for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3


def test_pandas_names_are_kept_and_checked():
    x, y = wave()
    frame = pd.DataFrame(x, columns=["wind", "sun"])
    model = EntropyMCMCRegressor(**QUICK).fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["wind", "sun"]
    np.testing.assert_array_equal(
        model.predict(frame), EntropyMCMCRegressor(**QUICK).fit(x, y).predict(x)
    )
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"sun": "rain"}))


def test_string_classes_and_probabilities():
    x, y = wave()
    labels = np.where(y > 0, "up", "down")
    model = EntropyMCMCClassifier(**QUICK | {"n_steps": 200}).fit(x.astype(np.float32), labels)
    probabilities = model.predict_proba(x)
    assert list(model.classes_) == ["down", "up"]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(model.sample_predictions(x).mean(axis=0), probabilities)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(x)), probabilities)
    assert (model.predict(x) == labels).mean() > 0.9


def test_units_of_inputs_and_targets_do_not_matter():
    x, y = wave()
    plain = EntropyMCMCRegressor(**QUICK).fit(x, y)
    moved = EntropyMCMCRegressor(**QUICK).fit(1000 * x - 7, 1e6 * y + 3e6)
    mean, std = plain.predict(x, return_std=True)
    other_mean, other_std = moved.predict(1000 * x - 7, return_std=True)
    np.testing.assert_allclose(other_mean, 1e6 * mean + 3e6, rtol=1e-3, atol=1e3)
    np.testing.assert_allclose(other_std, 1e6 * std, rtol=1e-3)
    np.testing.assert_allclose(
        moved.predict_interval(1000 * x - 7), 1e6 * plain.predict_interval(x) + 3e6, atol=3e3
    )


def test_std_and_interval_are_those_of_the_mixture():
    x, y = wave()
    model = EntropyMCMCRegressor(**QUICK, roles="both").fit(x, y)
    means, noise = model.sample_predictions(x), model.noise_std_
    assert means.shape == (2 * 4 * 2, len(x))
    draws = np.random.default_rng(0)
    which = draws.integers(len(means), size=200_000)
    values = means[which, 3] + noise[which] * draws.standard_normal(len(which))
    mean, std = model.predict(x, return_std=True)
    # 5 standard errors of the mean; of the std, about std/√(2n): false alarm 1e-6.
    assert abs(values.mean() - mean[3]) < 5 * std[3] / math.sqrt(len(values))
    assert abs(values.std() / std[3] - 1) < 5 / math.sqrt(2 * len(values))
    low, high = model.predict_interval(x, level=0.8)[3]
    inside = np.mean((values > low) & (values < high))
    assert abs(inside - 0.8) < 5 * math.sqrt(0.8 * 0.2 / len(values))


def test_noise_is_learned_and_intervals_cover():
    x, y = wave(rows=400, noise=0.3)
    model = EntropyMCMCRegressor(n_steps=800, random_state=0).fit(x, y)
    # The estimate of a std from 400 rows has a standard error of 3.5 %; 4.5 of them are 16 %.
    assert model.noise_std_.mean() == pytest.approx(0.3, rel=0.16)
    test_x, test_y = wave(rows=2000, noise=0.3, seed=1)
    low, high = model.predict_interval(test_x).T
    assert 0.92 < np.mean((test_y > low) & (test_y < high)) < 0.98


def made(rows, signal, noise, seed):
    """Five normal inputs and a signal with noise of this share: training and test rows."""
    draws = np.random.default_rng(seed)
    x = draws.standard_normal((rows + 2000, 5))
    clean = signal(x)
    std = noise * clean.std()
    return x, clean + std * draws.standard_normal(len(x)), std


def judged(rows, signal, noise, seed):
    """Learned over true noise, and coverage of 95 % intervals, of a fit with defaults."""
    x, y, std = made(rows, signal, noise, seed)
    model = EntropyMCMCRegressor(random_state=0).fit(x[:rows], y[:rows])
    low, high = model.predict_interval(x[rows:]).T
    return model.noise_std_.mean() / std, np.mean((low <= y[rows:]) & (y[rows:] <= high))


def line(x):
    return x[:, 0] - 0.5 * x[:, 1] + 0.3 * x[:, 2]


def curve(x):
    return np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]


def test_noise_of_small_tables_does_not_run_away():
    """Learned from the training rows alone, it was 11 times the true noise in the first table."""
    tables = [(50, line, 0.1, 0), (50, line, 0.5, 1), (120, line, 0.5, 2)]
    ratios, coverages = zip(*[judged(*table) for table in tables], strict=True)
    assert all(0.5 < ratio < 2 for ratio in ratios)
    # Intervals of 50 rows are wide rather than narrow: they own up to what they do not know.
    assert 0.92 < np.mean(coverages) < 0.99


@pytest.mark.soak
@pytest.mark.parametrize("rows", [200, 1000])
def test_noise_and_coverage_on_tables_of_known_noise(rows):
    tables = [(rows, signal, noise, 3) for signal in (line, curve) for noise in (0.1, 0.5)]
    ratios, coverages = zip(*[judged(*table) for table in tables], strict=True)
    assert all(0.5 < ratio < 2 for ratio in ratios)
    assert 0.92 < np.mean(coverages) < 0.98


def test_a_constant_column_and_a_constant_target():
    x = np.column_stack([np.full(30, 1e9), np.arange(30.0)])
    mean, std = EntropyMCMCRegressor(**QUICK).fit(x, np.full(30, 5.0)).predict(x, return_std=True)
    np.testing.assert_allclose(mean, 5.0, atol=1.0)
    assert np.isfinite(std).all()
    assert moments(x)[1][0] == 1


def test_two_rows_are_enough():
    x = np.array([[0.0], [1.0]])
    assert list(EntropyMCMCClassifier(random_state=0).fit(x, [0, 1]).predict(x)) == [0, 1]
    assert np.isfinite(EntropyMCMCRegressor(random_state=0).fit(x, [0.0, 1.0]).predict(x)).all()


def test_a_rate_far_too_high_is_lowered():
    x, y = wave()
    model = EntropyMCMCRegressor(**QUICK | {"lr": 20.0}).fit(x, y)
    assert model.lr_ < 20.0
    assert model.score(x, y) > 0.5
    with pytest.raises(NonFiniteError, match=r"diverged at lr=1000000.0.*smaller lr"):
        EntropyMCMCRegressor(**QUICK | {"lr": 1e6}).fit(x, y)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_chains", 0),
        ("n_steps", "many"),
        ("lr", -1.0),
        ("momentum", 1.0),
        ("roles", "all"),
        ("prior_variance", 0.0),
        ("hidden_layer_sizes", (0,)),
        ("n_samples", 31),
    ],
)
def test_bad_parameters_are_named(name, value):
    x, y = wave()
    with pytest.raises(ConfigError, match=name):
        EntropyMCMCRegressor(**QUICK | {name: value}).fit(x, y)


def test_bad_calls_are_refused():
    x, y = wave()
    with pytest.raises(ConfigError, match="2 classes"):
        EntropyMCMCClassifier(**QUICK).fit(x, np.zeros(len(x), dtype=int))
    with pytest.raises(NotFittedError):
        EntropyMCMCRegressor().predict(x)
    model = EntropyMCMCRegressor(**QUICK).fit(x, y)
    with pytest.raises(ConfigError, match="level"):
        model.predict_interval(x, level=95)


def test_steps_grow_with_the_table():
    steps = [automatic_steps(n) for n in (2, 100, 1000, 10**5, 10**7)]
    assert steps == sorted(steps)
    assert steps[-1] == steps[-2]


def test_predictions_do_not_depend_on_the_chunks(monkeypatch):
    x, y = wave()
    model = EntropyMCMCRegressor(**QUICK).fit(x, y)
    whole = model.predict(x)
    monkeypatch.setattr("entropy_mcmc.sklearn.base.CHUNK", 7 * 50 * 8)
    np.testing.assert_allclose(model.predict(x), whole, rtol=1e-12)


def test_a_small_table_decides_its_network():
    """Every way to leave something open, and what may then be chosen."""
    both = [((50, 50), "relu"), ((50,), "tanh")]
    x, y = load_iris(return_X_y=True)
    steps = {"n_steps": 60, "n_samples": 2, "n_chains": 1, "random_state": 0}
    cases = [
        ({}, both),
        ({"hidden_layer_sizes": [7]}, [((7,), "relu"), ((7,), "tanh")]),
        ({"activation": "silu"}, [((50, 50), "silu"), ((50,), "silu")]),
        ({"activation": "silu", "hidden_layer_sizes": (3, 4)}, [((3, 4), "silu")]),
        ({"prior_variance": 2.0}, both),
    ]
    for given, allowed in cases:
        model = EntropyMCMCClassifier(**steps, **given).fit(x, y)
        assert (model.hidden_layer_sizes_, model.activation_) in allowed
        assert model.params_[0].shape[1:] == (4, model.hidden_layer_sizes_[0])
        assert np.allclose(model.predict_proba(x).sum(axis=1), 1)
    few = EntropyMCMCClassifier(**steps).fit(x[::8], y[::8])
    assert (few.hidden_layer_sizes_, few.activation_) == both[0]
    assert EntropyMCMCRegressor(**steps).fit(x, y).activation_ == "silu"


def test_the_network_that_predicts_held_out_rows_is_chosen(monkeypatch):
    """The losses of two networks and three priors are given; names and priors follow from them."""
    networks, priors = [((9,), "relu"), ((5,), "tanh")], (1.0, 2.0, 3.0)
    table = {
        "relu": torch.tensor([[3.0, 3.0], [2.0, 2.0], [2.0, 2.0]]),
        "tanh": torch.tensor([[2.0, 2.0], [1.0, 1.2], [1.1, 1.0]]),
    }
    monkeypatch.setattr(
        classifier_selection, "held_out_losses", lambda plan, *_: table[plan.activation]
    )
    plan = EntropyMCMCClassifier()._plan((100, 4), 2)
    chosen = classifier_selection.choose(
        plan, torch.zeros(100, 4), torch.zeros(100), networks, priors
    )
    assert chosen == (((5,), "tanh"), 2.0)
    large = classifier_selection.choose(
        plan, torch.zeros(501, 4), torch.zeros(501), networks, priors
    )
    assert large == (((9,), "relu"), 2.0)


def test_a_table_decides_its_prior():
    draws = np.random.default_rng(0)
    x = draws.standard_normal((150, 4))
    steps = {"n_steps": 200, "n_samples": 4, "random_state": 0}
    coin = EntropyMCMCClassifier(**steps).fit(x, draws.integers(2, size=150))
    clear = EntropyMCMCClassifier(**steps).fit(x, x[:, 0] > 0)
    assert coin.prior_variance_ == min(CANDIDATES)
    assert clear.prior_variance_ > coin.prior_variance_
    assert EntropyMCMCClassifier(**steps).fit(x[:20], x[:20, 0] > 0).prior_variance_ == FALLBACK
