"""The estimators as a first-time user meets them: errors, refits, several targets, golden fits."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.sklearn import EntropyMCMCClassifier, EntropyMCMCRegressor

QUICK = {"n_steps": 40, "n_samples": 4, "n_chains": 2, "random_state": 0}


def rows(count=60):
    draws = np.random.default_rng(0)
    x = draws.standard_normal((count, 3))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * draws.standard_normal(count)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"hidden_layer_sizes": "wide"},
            r"must be widths like \(50, 50\), .*'wide'; pass \(\)",
        ),
        ({"hidden_layer_sizes": (0,)}, r"at least 1, got hidden_layer_sizes=0; pass \(\)"),
        ({"hidden_layer_sizes": 2.5}, r"must be widths like .* got hidden_layer_sizes=2.5"),
        ({"n_jobs": -2}, r"n_jobs=-2; or pass -1 for all processors"),
        ({"temperature": "auto"}, r"temperature='auto'; pass 1.0, which is Bayes"),
    ],
)
def test_errors_name_value_range_and_remedy(settings, message):
    with pytest.raises(ConfigError, match=message):
        EntropyMCMCRegressor(**QUICK | settings).fit(*rows())


def test_one_width_is_one_hidden_layer():
    x, y = rows()
    model = EntropyMCMCClassifier(8, **QUICK).fit(x, y > 0)
    assert model.hidden_layer_sizes_ == (8,)


def test_a_negative_weight_is_named_with_its_row():
    x, y = rows()
    weights = np.ones(len(x))
    weights[7] = -2
    with pytest.raises(ConfigError, match=r"at least 0, got -2.0 in row 7; pass 0"):
        EntropyMCMCRegressor(**QUICK).fit(x, y, sample_weight=weights)


def test_a_column_that_turned_into_text_is_named():
    x, y = rows()
    frame = pd.DataFrame(x, columns=["age", "size", "price"])
    model = EntropyMCMCRegressor((), **QUICK).fit(frame, y)
    with pytest.raises(ConfigError, match=r"column 'size' must hold numbers.* got 'big'"):
        model.predict(frame.assign(size="big"))


@pytest.mark.parametrize("quantiles", [0.5, (), (5, 95)])
def test_quantiles_that_are_none_are_refused_with_an_example(quantiles):
    x, y = rows()
    model = EntropyMCMCRegressor((), **QUICK).fit(x, y)
    with pytest.raises(ConfigError, match=r"quantiles must be .* pass probabilities like"):
        model.predict_quantiles(x, quantiles)


def test_calibration_rows_are_checked():
    x, y = rows()
    labels = np.where(y > 0, "c", "a")
    model = EntropyMCMCClassifier((), **QUICK)
    with pytest.raises(NotFittedError):
        model.calibrate(x, labels)
    model.fit(x, labels)
    with pytest.raises(ConfigError, match=r"classes of fit, \['a', 'c'\], got 'b'; leave such"):
        model.calibrate(x, np.where(y > 0, "b", "a"))  # between the others: searchsorted finds it
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.calibrate(x, labels[:5])
    line = EntropyMCMCRegressor((), **QUICK).fit(x, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        line.calibrate(x, y[:5])
    with pytest.raises(ConfigError, match=r"y must be \(rows,\), as it was in fit, got \(60, 2\)"):
        line.log_density(x, np.stack([y, y], axis=1))


def test_a_refit_forgets_calibration_and_targets_of_the_fit_before():
    x, y = rows()
    model = EntropyMCMCRegressor((), **QUICK).fit(x, y).calibrate(x, y)
    model.fit(x, -y)
    with pytest.raises(NotFittedError, match="calibrate"):
        model.predict_interval(x, conformal=True)
    model.fit(x, np.stack([y, -y], axis=1))
    assert model.predict(x).shape == (60, 2)
    np.testing.assert_array_equal(
        model.fit(x, y).predict(x), EntropyMCMCRegressor((), **QUICK).fit(x, y).predict(x)
    )


def test_everything_has_several_targets():
    x, y = rows()
    both = np.stack([y, -2 * y], axis=1)
    model = EntropyMCMCRegressor((), **QUICK).fit(x, both)
    alone = EntropyMCMCRegressor((), **QUICK).fit(x, both[:, 1])
    np.testing.assert_array_equal(model.log_density(x, both)[:, 1], alone.log_density(x, -2 * y))
    np.testing.assert_array_equal(model.noise_std_[:, 1], alone.noise_std_)
    assert str(model.diagnostics_[1]) == str(alone.diagnostics_)
    model.calibrate(x, both)
    alone.calibrate(x, both[:, 1])
    np.testing.assert_array_equal(
        model.predict_interval(x, 0.9, conformal=True)[..., 1],
        alone.predict_interval(x, 0.9, conformal=True),
    )
    with pytest.raises(ConfigError, match=r"y must be \(rows, 2\), as it was in fit, got \(60,\)"):
        model.calibrate(x, y)


def test_verbose_tells_the_noise_and_the_choice(capsys):
    x, y = rows(90)
    model = EntropyMCMCRegressor((), **QUICK, verbose=True).fit(x, y)
    lines = capsys.readouterr().out.splitlines()
    assert any("noise: Gaussian, constant: held-out NLL" in line for line in lines)
    assert lines[-1] == f"[EntropyMCMCRegressor] chosen: {model.diagnostics_.chosen}"


# Predictions of short fits as commit 37d5c8f made them, whose scores docs/tabular.md has.
GOLDEN = [
    ((), "tanh", [0.519162, 0.297109, 0.901407, 0.150912]),
    ((50,), "tanh", [0.529783, 0.248426, 0.985995, 0.052968]),
    ((50, 50), "relu", [0.389771, 0.183984, 0.967457, 0.138922]),
]


@pytest.mark.parametrize(("hidden", "activation", "golden"), GOLDEN)
def test_classifiers_are_those_of_the_benchmark(hidden, activation, golden):
    """On another processor sums are rounded otherwise, which 40 steps hardly magnify."""
    x, y = rows()
    model = EntropyMCMCClassifier(hidden, activation=activation, **QUICK).fit(x, y > 0)
    np.testing.assert_allclose(model.predict_proba(x[:4])[:, 1], golden, atol=2e-5)


def test_the_regressor_is_that_of_the_benchmark():
    x, y = rows()
    mean, std = EntropyMCMCRegressor(**QUICK).fit(x, y).predict(x[:2], return_std=True)
    np.testing.assert_allclose(mean, [-0.321884, -0.774348], atol=2e-5)
    np.testing.assert_allclose(std, [0.738751, 0.732467], atol=2e-5)
