"""Estimators of the benchmark: name → maker(seed), and who may run where.

Each has its defaults, but for "tuned-…" (`tuned.py`) and "bde-documented" (`bde_rival.py`).

Others than ours get what they need: one-hot categories, means and marks for missing values, and
scaled columns; the targets of MLPRegressor are scaled, too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from tabular import tuned

BDE_ROWS = 2000  # likewise: its cost grows with rows times 10,000 steps
GP_ROWS = 500  # a Gaussian process is left out above: its cost grows with the cube
Maker = Callable[[int], Any]


def prepared(model: Any) -> Any:
    """A pipeline that encodes, imputes and scales before `model`."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    kinds = make_pipeline(SimpleImputer(strategy="constant", fill_value="missing"), hot)
    columns = make_column_transformer(
        (kinds, make_column_selector(dtype_include="category")), remainder=numbers
    )
    return make_pipeline(columns, model)


def ours_classification(seed: int) -> Any:
    from entropy_mcmc.sklearn import EntropyMCMCClassifier

    return EntropyMCMCClassifier(random_state=seed)


def ours_regression(seed: int) -> Any:
    from entropy_mcmc.sklearn import EntropyMCMCRegressor

    return EntropyMCMCRegressor(random_state=seed)


def logistic(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression

    return prepared(LogisticRegression(max_iter=1000))


def ridge(seed: int) -> Any:
    from sklearn.linear_model import BayesianRidge

    return prepared(BayesianRidge())


def mlp(task: str) -> Maker:
    def make(seed: int) -> Any:
        from sklearn import neural_network as nn
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.preprocessing import StandardScaler

        if task == "classification":
            return prepared(nn.MLPClassifier(random_state=seed))
        regressor = prepared(nn.MLPRegressor(random_state=seed))
        return TransformedTargetRegressor(regressor, transformer=StandardScaler())

    return make


def forest(task: str) -> Maker:
    def make(seed: int) -> Any:
        from sklearn import ensemble

        many = ensemble.RandomForestClassifier
        kind = many if task == "classification" else ensemble.RandomForestRegressor
        return prepared(kind(random_state=seed))

    return make


def boosting(task: str) -> Maker:
    def make(seed: int) -> Any:
        from sklearn import ensemble as e

        classify = task == "classification"
        kind = e.HistGradientBoostingClassifier if classify else e.HistGradientBoostingRegressor
        return kind(random_state=seed, categorical_features="from_dtype")

    return make


def lightgbm(task: str) -> Maker:
    def make(seed: int) -> Any:
        import lightgbm as lgb

        kind = lgb.LGBMClassifier if task == "classification" else lgb.LGBMRegressor
        return kind(random_state=seed, n_jobs=1, verbose=-1)

    return make


def process(task: str) -> Maker:
    def make(seed: int) -> Any:
        from sklearn import gaussian_process as gp
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        if task == "classification":
            return prepared(gp.GaussianProcessClassifier(ConstantKernel() * RBF(3.0)))
        kernel = ConstantKernel() * RBF(3.0) + WhiteKernel(0.1)
        return prepared(gp.GaussianProcessRegressor(kernel, normalize_y=True))

    return make


def bde(task: str, documented: bool) -> Maker:
    def make(seed: int) -> Any:
        from tabular import bde_rival

        settings = bde_rival.EXAMPLES[task] if documented else {}
        kind = bde_rival.classifier if task == "classification" else bde_rival.Regressor
        return kind(prepared, settings, seed)

    return make


METHODS: dict[str, dict[str, Maker]] = {
    "classification": {
        "entropy-mcmc": ours_classification,
        "logistic": logistic,
        "mlp": mlp("classification"),
        "forest": forest("classification"),
        "hist-boosting": boosting("classification"),
        "lightgbm": lightgbm("classification"),
        "gaussian-process": process("classification"),
        "bde": bde("classification", documented=False),
        "bde-documented": bde("classification", documented=True),
    },
    "regression": {
        "entropy-mcmc": ours_regression,
        "bayesian-ridge": ridge,
        "mlp": mlp("regression"),
        "forest": forest("regression"),
        "hist-boosting": boosting("regression"),
        "lightgbm": lightgbm("regression"),
        "gaussian-process": process("regression"),
        "bde": bde("regression", documented=False),
        "bde-documented": bde("regression", documented=True),
    },
}


def searched(rival: str, task: str) -> Maker:
    def make(seed: int) -> Any:
        return tuned.Searched(rival, task, METHODS[task][rival], seed)

    return make


for _task, _rivals in tuned.RIVALS.items():
    METHODS[_task] |= {f"tuned-{rival}": searched(rival, _task) for rival in _rivals}


def runs_on(method: str, rows: int) -> bool:
    """Whether a method is run on so many training rows, with what is installed."""
    if method.endswith("lightgbm"):
        return importlib.util.find_spec("lightgbm") is not None
    if method.startswith("bde"):
        return rows <= BDE_ROWS and importlib.util.find_spec("jax") is not None
    return method != "gaussian-process" or rows <= GP_ROWS
