"""Made tables whose truth is known: weak signals, noise that depends on the row, outliers, size.

    python benchmarks/tables_known.py            # → results/tables-known.json, about 10 minutes
    python benchmarks/tables_known.py size       # one case

Cases are those of the targets: NLL beside that of logistic regression and of the truth, coverage by
thirds of the predicted mean; what fits and predictions cost (`cost.py`).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tabular import cost

FILE = Path(__file__).parents[2] / "results" / "tables-known.json"
SEEDS = range(5)
Numbers = dict[str, Any]


def nll(y: Any, probs: Any) -> float:
    """Mean negative log-probability of boolean y under the probability of True."""
    return float(-np.mean(np.log(np.where(y, probs, 1 - probs))))


def mean_and_error(values: list[float]) -> list[float]:
    """Mean over seeds and its standard error."""
    each = np.array(values)
    return [float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))]


def weak() -> Numbers:
    """Linear-logistic data, n = 1000, d = 20, whose best possible NLL is about .589."""
    from sklearn.linear_model import LogisticRegression

    from entropy_mcmc.sklearn import EntropyMCMCClassifier

    rows: dict[str, list[float]] = {"ours": [], "logistic": [], "truth": [], "confidence": []}
    for seed in SEEDS:
        draws = np.random.default_rng(seed)
        x = draws.standard_normal((11_000, 20))
        slope = draws.standard_normal(20)
        chances = 1 / (1 + np.exp(-1.07 * x @ slope / np.linalg.norm(slope)))
        y = draws.random(len(x)) < chances
        test = slice(1000, None)
        model = EntropyMCMCClassifier(random_state=seed).fit(x[:1000], y[:1000])
        other = LogisticRegression().fit(x[:1000], y[:1000])
        probs = model.predict_proba(x[test])[:, 1]
        rows["ours"].append(nll(y[test], probs))
        rows["logistic"].append(nll(y[test], other.predict_proba(x[test])[:, 1]))
        rows["truth"].append(nll(y[test], chances[test]))
        sure = np.maximum(probs, 1 - probs).mean()
        rows["confidence"].append(float(sure - np.mean((probs > 0.5) == y[test])))
    gaps = [a - b for a, b in zip(rows["ours"], rows["logistic"], strict=True)]
    return {name: mean_and_error(values) for name, values in rows.items()} | {
        "over logistic": mean_and_error(gaps)
    }


def noise() -> Numbers:
    """Labels that no column tells: NLL over that of the true frequencies."""
    from entropy_mcmc.sklearn import EntropyMCMCClassifier

    gaps = []
    for seed in SEEDS:
        draws = np.random.default_rng(seed)
        x, y = draws.standard_normal((11_000, 20)), draws.random(11_000) < 0.3
        model = EntropyMCMCClassifier(random_state=seed).fit(x[:1000], y[:1000])
        probs = model.predict_proba(x[1000:])[:, 1]
        gaps.append(nll(y[1000:], probs) - nll(y[1000:], np.full(10_000, 0.3)))
    return {"over entropy": mean_and_error(gaps)}


def thirds() -> Numbers:
    """Noise that grows with the mean: coverage of 95 % intervals by thirds of the prediction."""
    from entropy_mcmc.sklearn import EntropyMCMCRegressor

    found: dict[str, list[Any]] = {"auto": [], "gaussian": []}
    for seed in SEEDS:
        draws = np.random.default_rng(seed)
        x = draws.uniform(-2, 2, (7000, 5))
        y = np.sin(x[:, 1]) + x[:, 0] + 0.3 * np.exp(0.7 * x[:, 0]) * draws.standard_normal(7000)
        for kind, rows in found.items():
            model = EntropyMCMCRegressor(noise=kind, random_state=seed).fit(x[:1000], y[:1000])
            low, high = model.predict_interval(x[1000:]).T
            inside = (low <= y[1000:]) & (y[1000:] <= high)
            parts = np.array_split(np.argsort(model.predict(x[1000:])), 3)
            rows.append([float(inside[part].mean()) for part in parts])
    return {kind: np.mean(rows, axis=0).tolist() for kind, rows in found.items()}


def outlier() -> Numbers:
    """One cell of 1e9: NLL on the other rows, with it and without."""
    from entropy_mcmc.sklearn import EntropyMCMCClassifier

    rows: dict[str, list[float]] = {"without": [], "with": []}
    for seed in SEEDS:
        draws = np.random.default_rng(seed)
        x = draws.standard_normal((3500, 5))
        y = draws.random(3500) < 1 / (1 + np.exp(-3 * x[:, 0]))
        for name, spoilt in (("without", 0.0), ("with", 1e9)):
            train = x[:500].copy()
            train[0, 0] += spoilt
            model = EntropyMCMCClassifier(random_state=seed).fit(train, y[:500])
            rows[name].append(nll(y[500:], model.predict_proba(x[500:])[:, 1]))
    return {name: mean_and_error(values) for name, values in rows.items()}


def conformal() -> Numbers:
    """Sets and intervals at 90 %, with 500 rows to calibrate, where the model is wrong."""
    from entropy_mcmc.sklearn import EntropyMCMCClassifier, EntropyMCMCRegressor

    rows: dict[str, list[float]] = {"plain interval": [], "conformal interval": [], "set": []}
    for seed in SEEDS:
        draws = np.random.default_rng(seed)
        x = draws.standard_normal((6000, 4))
        y = x[:, 0] + np.abs(x[:, 1]) * draws.standard_t(2, 6000)
        model = EntropyMCMCRegressor(noise="gaussian", random_state=seed).fit(x[:500], y[:500])
        model.calibrate(x[500:1000], y[500:1000])
        for name, use in (("plain interval", False), ("conformal interval", True)):
            low, high = model.predict_interval(x[1000:], level=0.9, conformal=use).T
            rows[name].append(float(np.mean((low <= y[1000:]) & (y[1000:] <= high))))
        labels = (y > 0).astype(int)
        sets = EntropyMCMCClassifier(random_state=seed).fit(x[:500], labels[:500])
        inside = sets.calibrate(x[500:1000], labels[500:1000]).predict_set(x[1000:], level=0.9)
        rows["set"].append(float(inside[np.arange(5000), labels[1000:]].mean()))
    return {name: mean_and_error(values) for name, values in rows.items()}


CASES: dict[str, Callable[[], Numbers]] = {
    "weak": weak,
    "noise": noise,
    "thirds": thirds,
    "outlier": outlier,
    "conformal": conformal,
    "times": cost.times,
    "predict": cost.predict,
    "size": cost.size,
}


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore")
    if len(arguments) == 2 and arguments[0] == "size":
        print(json.dumps(cost.size_of(arguments[1])))
        return
    for name in arguments or CASES:
        found = json.loads(FILE.read_text()) if FILE.exists() else {}
        found[name] = CASES[name]()
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        print(name, found[name], flush=True)
