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
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from entropy_mcmc.errors import ConfigError, NonFiniteError
from entropy_mcmc.sklearn import EntropyMCMCClassifier, EntropyMCMCRegressor, classifier, regressor
from entropy_mcmc.sklearn.classifier_selection import FALLBACK
from entropy_mcmc.sklearn.fit_diagnostics import chain_error
from entropy_mcmc.sklearn.networks import forward

QUICK = {"n_steps": 60, "n_samples": 4, "n_chains": 2, "random_state": 0}
QUICK |= {"lr": 1.0, "momentum": 0.9}  # settles in few steps


def wave(rows=120, noise=0.1, seed=0):
    draws = np.random.default_rng(seed)
    x = draws.uniform(-2, 2, (rows, 2))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + noise * draws.standard_normal(rows)


def random_chains(estimator):
    """Checks that ask for the same bits of weights and of repeated rows."""
    reason = "another number of rows is another chain; test_weights_are_repeated_rows instead"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(
    [EntropyMCMCClassifier(**QUICK), EntropyMCMCRegressor(**QUICK)],
    expected_failed_checks=random_chains,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.soak
@parametrize_with_checks(
    [EntropyMCMCClassifier(), EntropyMCMCRegressor()], expected_failed_checks=random_chains
)
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
    model = EntropyMCMCRegressor(**QUICK, roles="both", noise="heteroscedastic").fit(x, y)
    means, noise = model.sample_predictions(x), model._scales(x)
    assert means.shape == (2 * 4 * 2, len(x))
    draws = np.random.default_rng(0)
    which = draws.integers(len(means), size=200_000)
    values = means[which, 3] + noise[which, 3] * draws.standard_normal(len(which))
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
        ("noise", "loud"),
        ("temperature", -1.0),
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
    for module in (classifier, regressor):
        steps = [module.automatic_steps(n) for n in (2, 100, 1000, 10**5, 10**7)]
        assert steps == sorted(steps)
        assert steps[-1] == steps[-2]


@pytest.mark.parametrize("rows", [1, 255, 256, 257, 700])
def test_predictions_do_not_depend_on_the_rows_beside(rows):
    """Blocks of 256 rows in single precision: the bits are those of each row alone."""
    x, y = wave(rows=700)
    model = EntropyMCMCRegressor(**QUICK).fit(x, y)
    whole = model.sample_predictions(x)
    np.testing.assert_array_equal(model.sample_predictions(x[-rows:]), whole[:, -rows:])
    form, layers = model._form, model._form.layers(torch.from_numpy(model.weights_).double())
    exact = forward(form, layers, model._inputs(x)[None])[0].squeeze(1).numpy()
    np.testing.assert_allclose(whole, model.y_mean_ + model.y_scale_ * exact, atol=1e-5)


def test_what_is_left_open_is_chosen():
    """Every way to leave something open, and what may then be chosen."""
    every = [((50,), "tanh"), ((50, 50), "relu"), ((), "tanh")]
    x, y = load_iris(return_X_y=True)
    steps = {"n_steps": 60, "n_samples": 2, "n_chains": 1, "random_state": 0}
    cases = [
        ({}, every),
        ({"hidden_layer_sizes": [7]}, [((7,), "tanh"), ((7,), "relu")]),
        ({"activation": "silu"}, [((50,), "silu"), ((50, 50), "silu"), ((), "silu")]),
        ({"activation": "silu", "hidden_layer_sizes": (3, 4)}, [((3, 4), "silu")]),
        ({"prior_variance": 2.0, "temperature": 0.3}, every),
    ]
    for given, allowed in cases:
        model = EntropyMCMCClassifier(**steps, **given).fit(x, y)
        assert (model.hidden_layer_sizes_, model.activation_) in allowed
        assert np.allclose(model.predict_proba(x).sum(axis=1), 1)
        for name in {"prior_variance", "temperature"} & set(given):
            assert getattr(model, f"{name}_") == given[name]
    few = EntropyMCMCClassifier(**steps).fit(x[::8], y[::8])
    assert (few.hidden_layer_sizes_, few.activation_) == every[0]
    assert few.prior_variance_ == FALLBACK
    assert EntropyMCMCRegressor(**steps).fit(x, y).activation_ == "silu"


def weak_signal(rows, seed):
    """Twenty inputs whose logit has variance 1: the best possible NLL is about .6."""
    draws = np.random.default_rng(seed)
    slope = draws.standard_normal(20)
    x = draws.standard_normal((rows, 20))
    logits = x @ slope / np.linalg.norm(slope)
    return x, (draws.random(rows) < 1 / (1 + np.exp(-logits))).astype(int)


def test_a_weak_linear_signal_is_left_to_a_simple_model():
    x, y = weak_signal(6000, seed=0)
    model = EntropyMCMCClassifier(random_state=0).fit(x[:1000], y[:1000])
    other = LogisticRegression().fit(x[:1000], y[:1000])
    ours, theirs = (log_loss(y[1000:], m.predict_proba(x[1000:])) for m in (model, other))
    assert ours < theirs + 0.02
    assert theirs < 0.65 < math.log(2)


def test_pure_noise_gives_the_frequencies_of_the_classes():
    draws = np.random.default_rng(1)
    x, y = draws.standard_normal((5000, 20)), draws.random(5000) < 0.3
    model = EntropyMCMCClassifier(random_state=0).fit(x[:1000], y[:1000])
    entropy = -0.3 * math.log(0.3) - 0.7 * math.log(0.7)
    # The NLL of the true frequencies on 4000 rows has a standard error of .006: compare in pairs.
    true = log_loss(y[1000:], np.tile([0.7, 0.3], (4000, 1)))
    assert abs(true - entropy) < 4 * 0.006
    assert log_loss(y[1000:], model.predict_proba(x[1000:])) < true + 0.01


def test_weights_are_repeated_rows():
    """Weights 1 … 3 and rows repeated so often give the same predictions, but for the chains."""
    x, y = wave(rows=150, noise=0.5)
    weights = np.random.default_rng(0).integers(1, 4, len(x))
    again = np.repeat(np.arange(len(x)), weights)
    grid = np.random.default_rng(1).uniform(-2, 2, (200, 2))
    fixed = {"hidden_layer_sizes": (), "prior_variance": 1.0, "n_steps": 600, "n_samples": 32}
    fixed |= {"batch_size": 1000}
    for kind, targets in ((EntropyMCMCClassifier, y > 0), (EntropyMCMCRegressor, y)):
        more = {"temperature": 1.0}
        light, weighted, repeated = (
            kind(**fixed, **more, random_state=seed).fit(*rows).sample_predictions(grid)
            for seed, rows in (
                (0, (x, targets)),
                (1, (x, targets, weights)),
                (2, (x[again], targets[again])),
            )
        )
        means = [p.reshape(len(p), -1).mean(axis=0) for p in (light, weighted, repeated)]
        # Chains leave a fifth of what the weights change; 3 of these are the limit.
        gap = [np.abs(mean - means[2]).mean() for mean in means[:2]]
        assert gap[1] < 0.6 * gap[0]
        spread = [p.reshape(len(p), -1).std(axis=0).mean() for p in (light, weighted, repeated)]
        assert spread[1] == pytest.approx(spread[2], rel=0.15)
        assert spread[0] > 1.2 * spread[1]  # half of the weight is a wider posterior


def test_rows_of_weight_zero_are_not_there():
    x, y = wave()
    weights = np.arange(len(x)) % 3 > 0
    for kind, targets in ((EntropyMCMCClassifier, y > 0), (EntropyMCMCRegressor, y)):
        weighted = kind(**QUICK).fit(x, targets, sample_weight=weights)
        fewer = kind(**QUICK).fit(x[weights], targets[weights], sample_weight=np.ones(sum(weights)))
        ours, theirs = (m.sample_predictions(x) for m in (weighted, fewer))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    with pytest.raises(ConfigError, match="sample_weight"):
        EntropyMCMCRegressor(**QUICK).fit(x, y, sample_weight=-np.ones(len(x)))


def test_class_weights_move_the_probabilities():
    x, y = wave(noise=2.0)
    rare = y > 1.5
    plain = EntropyMCMCClassifier(**QUICK).fit(x, rare).predict_proba(x)[:, 1].mean()
    balanced = EntropyMCMCClassifier(**QUICK, class_weight="balanced").fit(x, rare)
    assert plain == pytest.approx(rare.mean(), abs=0.1)
    assert balanced.predict_proba(x)[:, 1].mean() > plain + 0.1


def test_several_targets_are_fitted_one_by_one():
    x, y = wave()
    both = EntropyMCMCRegressor(**QUICK).fit(x, np.stack([y, -2 * y], axis=1))
    alone = EntropyMCMCRegressor(**QUICK).fit(x, -2 * y)
    assert both.predict(x).shape == (len(x), 2)
    np.testing.assert_array_equal(both.predict(x)[:, 1], alone.predict(x))
    mean, std = both.predict(x, return_std=True)
    assert mean.shape == std.shape == (len(x), 2)
    assert both.sample_predictions(x).shape == (8, len(x), 2)
    np.testing.assert_array_equal(both.predict_interval(x)[..., 1], alone.predict_interval(x))


def test_noise_that_depends_on_the_row_is_found_and_covered():
    draws = np.random.default_rng(0)
    x = draws.uniform(-2, 2, (3600, 2))
    y = x[:, 0] + np.exp(0.6 * x[:, 0]) * 0.3 * draws.standard_normal(3600)
    model = EntropyMCMCRegressor(random_state=0).fit(x[:600], y[:600])
    assert model.noise_model_.form is not None
    low, high = model.predict_interval(x[600:], level=0.9).T
    inside = (low <= y[600:]) & (y[600:] <= high)
    thirds = np.array_split(np.argsort(model.predict(x[600:])), 3)
    # A share of 1000 rows has a standard error of .0095; what 600 rows tell of the noise adds more.
    assert all(0.83 < inside[third].mean() < 0.96 for third in thirds)
    plain = EntropyMCMCRegressor(random_state=0, noise="gaussian").fit(x[:600], y[:600])
    assert model.log_density(x[600:], y[600:]).mean() > plain.log_density(x[600:], y[600:]).mean()


def test_quantiles_are_in_order_and_hold_their_share():
    x, y = wave(rows=400, noise=0.3)
    model = EntropyMCMCRegressor(n_steps=600, random_state=0).fit(x, y)
    test_x, test_y = wave(rows=2000, noise=0.3, seed=1)
    quantiles = model.predict_quantiles(test_x, (0.1, 0.5, 0.9))
    assert (np.diff(quantiles, axis=1) > 0).all()
    shares = (test_y[:, None] < quantiles).mean(axis=0)
    np.testing.assert_allclose(shares, (0.1, 0.5, 0.9), atol=0.05)
    with pytest.raises(ConfigError, match="quantiles"):
        model.predict_quantiles(x, (0.5, 1.0))


def test_threads_messages_and_warm_start(capsys):
    x, y = wave()
    before = torch.get_num_threads()
    one = EntropyMCMCRegressor(**QUICK, n_jobs=1, verbose=True).fit(x, y)
    assert torch.get_num_threads() == before
    assert "held-out NLL" in capsys.readouterr().out
    np.testing.assert_allclose(one.predict(x), EntropyMCMCRegressor(**QUICK).fit(x, y).predict(x))
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigError, match="warm_start must be False"):
        EntropyMCMCRegressor(**QUICK, warm_start=True).fit(x, y)


def test_diagnostics_say_what_was_chosen_and_whether_chains_agree():
    x, y = wave()
    model = EntropyMCMCClassifier(**QUICK | {"n_steps": 200}).fit(x, y > 0)
    found = model.diagnostics_
    assert found.mixing.chains == 2
    assert found.mixing.draws == 8
    assert found.chosen in found.scores
    assert found.agree
    assert found.chosen in str(found)
    regressor = EntropyMCMCRegressor(**QUICK).fit(x, y)
    assert regressor.noise_model_.name in regressor.diagnostics_.chosen
    single = EntropyMCMCRegressor(**QUICK | {"n_chains": 1}).fit(x, y).diagnostics_
    assert single.agree is None


def test_chains_that_disagree_are_reported():
    draws = np.random.default_rng(0)
    x, y = draws.standard_normal((60, 5)), draws.integers(2, size=60)
    wild = {"prior_variance": 300.0, "temperature": 1.0, "hidden_layer_sizes": (50, 50)}
    wild |= {"activation": "relu", "n_steps": 600}
    with pytest.warns(ConvergenceWarning, match=r"disagree.*n_chains"):
        model = EntropyMCMCClassifier(**QUICK | wild).fit(x, y)
    assert not model.diagnostics_.agree
    predictions = draws.standard_normal((12, 5, 2))
    means = [predictions[i : i + 4].mean(axis=0) for i in (0, 4, 8)]
    expected = math.sqrt(np.mean(np.var(means, axis=0, ddof=1) / 3))
    assert chain_error(predictions, 3) == pytest.approx(expected)
    assert chain_error(predictions, 3, 2.0) == pytest.approx(expected / 2)


def test_conformal_intervals_and_sets_hold_their_share():
    """Models that are wrong on purpose: noise and probabilities far from the truth."""
    x, y = wave(rows=4600, noise=0.5)
    fit, calibrate, test = slice(0, 100), slice(100, 600), slice(600, None)
    model = EntropyMCMCRegressor(**QUICK).fit(x[fit], y[fit])
    model.heats_ = model.heats_ / 9  # a third of the noise
    inside = []
    for conformal in (False, True):
        model.calibrate(x[calibrate], y[calibrate])
        low, high = model.predict_interval(x[test], level=0.9, conformal=conformal).T
        inside.append(np.mean((low <= y[test]) & (y[test] <= high)))
    # Coverage given 500 calibration rows has the standard deviation √(.9·.1/500) = .0134, that of
    # 4000 test rows .0047: 4 of both together are .057, false alarm 1e-4.
    assert inside[0] < 0.75
    assert abs(inside[1] - 0.9) < 0.057
    classes = (y > 0).astype(int)
    flipped = np.where(np.random.default_rng(3).random(len(y)) < 0.2, 1 - classes, classes)
    sharp = EntropyMCMCClassifier(**QUICK).fit(x[fit], classes[fit])
    sharp.calibrate(x[calibrate], flipped[calibrate])
    sets = sharp.predict_set(x[test], level=0.9)
    assert abs(sets[np.arange(4000), flipped[test]].mean() - 0.9) < 0.057
    with pytest.raises(ConfigError, match=r"level=0.999 needs at least 999 rows .* got 500"):
        sharp.predict_set(x[test], level=0.999)
    with pytest.raises(NotFittedError, match="calibrate"):
        EntropyMCMCClassifier(**QUICK).fit(x[fit], classes[fit]).predict_set(x[test])
    with pytest.raises(NotFittedError, match="calibrate"):
        EntropyMCMCRegressor(**QUICK).fit(x[fit], y[fit]).predict_interval(x, conformal=True)
