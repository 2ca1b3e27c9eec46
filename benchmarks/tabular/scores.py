"""Scores of a fit on test rows.

Classification: NLL, Brier, ECE, accuracy. Regression: NLL, RMSE, CRPS and width of 95 % intervals,
all in units of the standard deviation of y, and their coverage.

The log score of a regression that gives a mean only is that of a Gaussian whose variance is the
mean squared error on a fifth of the training rows, held out from a first fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import train_test_split

LEVEL = 0.95
LEAST = 1e-15  # probability below which a row counts no further


def classification(make: Callable[[], Any], train: Any, test: Any) -> dict[str, float]:
    """Fit and judge a classifier; test rows of classes that no training row has were left out."""
    from entropy_mcmc import metrics

    (x, y), (x_test, y_test) = train, test
    model, seconds = timed(lambda: make().fit(x, y))
    probs, predict_seconds = timed(lambda: model.predict_proba(x_test))
    probs = np.clip(probs, LEAST, 1)
    probs = probs / probs.sum(axis=1, keepdims=True)
    labels = np.searchsorted(model.classes_, y_test)
    return {
        "nll": float(metrics.nll(probs, labels)),
        "brier": float(metrics.brier(probs, labels)),
        "ece": float(metrics.ece(probs, labels)),
        "accuracy": float(metrics.accuracy(probs, labels)),
        "fit_seconds": seconds,
        "predict_seconds": predict_seconds,
    }


def class_frequencies(train: Any, test: Any) -> float:
    """NLL of the training frequencies."""
    classes, counts = np.unique(train[1], return_counts=True)
    logs = np.log(counts / counts.sum())
    return float(-logs[np.searchsorted(classes, test[1])].mean())


def regression(make: Callable[[], Any], train: Any, test: Any) -> dict[str, float]:
    """Fit and judge a regressor."""
    (x, y), (x_test, y_test) = train, test
    unit = float(y.std()) or 1.0
    model, seconds = timed(lambda: make().fit(x, y))
    if hasattr(model, "log_density"):
        (mean, low, high, logs, crps), predict_seconds = timed(lambda: ours(model, x_test, y_test))
    else:
        (mean, std), predict_seconds = timed(lambda: gaussian(make, model, train, x_test))
        low, high = norm.interval(LEVEL, mean, std)
        logs, crps = norm.logpdf(y_test, mean, std), gaussian_crps(y_test, mean, std)
    inside = (low <= y_test) & (y_test <= high)
    thirds = [float(inside[i].mean()) for i in np.array_split(np.argsort(mean), 3)]
    return {
        "nll": float(-logs.mean() - np.log(unit)),  # of y in units of its standard deviation
        "rmse": float(np.sqrt(np.mean((mean - y_test) ** 2))) / unit,
        "crps": float(np.mean(crps)) / unit,
        "coverage": float(inside.mean()),
        **{f"coverage_{part}": value for part, value in zip("abc", thirds, strict=True)},
        "width": float(np.mean(high - low)) / unit,
        "fit_seconds": seconds,
        "predict_seconds": predict_seconds,
    }


def ours(model: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """Mean, interval, log-densities and CRPS of the mixture; CRPS from 99 quantiles."""
    low, high = model.predict_interval(x, level=LEVEL).T
    levels = np.arange(1, 100) / 100
    quantiles = model.predict_quantiles(x, levels.tolist())
    errors = y[:, None] - quantiles
    crps = 2 * np.mean(np.maximum(levels * errors, (levels - 1) * errors), axis=1)
    return model.predict(x), low, high, model.log_density(x, y), crps


def gaussian(make: Callable[[], Any], model: Any, train: Any, x: Any) -> tuple[Any, Any]:
    """Mean and standard deviation: the model's own, or that of rows held out from another fit."""
    last = model[-1] if hasattr(model, "steps") else model
    if type(last).__name__ in ("BayesianRidge", "GaussianProcessRegressor"):
        mean, std = model.predict(x, return_std=True)
        return mean, np.maximum(std, 1e-9)
    a, b, c, d = train_test_split(*train, test_size=0.2, random_state=0)
    again = (
        clone(model) if hasattr(model, "get_params") else make()
    )  # a tuned one keeps its settings
    error = float(np.sqrt(np.mean((again.fit(a, c).predict(b) - d) ** 2)))
    mean = model.predict(x)
    return mean, np.full(len(mean), max(error, 1e-9))


def training_mean(train: Any, test: Any) -> float:
    """NLL of a Gaussian with the mean and the variance of the training targets."""
    y = train[1]
    unit = float(y.std()) or 1.0
    return float(-norm.logpdf((test[1] - y.mean()) / unit).mean())


def gaussian_crps(y: Any, mean: Any, std: Any) -> Any:
    """CRPS of Gaussians, in closed form."""
    z = (y - mean) / std
    return std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` returns, and its CPU-seconds."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start
