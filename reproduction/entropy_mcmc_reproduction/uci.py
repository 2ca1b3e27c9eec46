"""Beyond the paper: nine UCI regressions at their standard splits, tuned without the test rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entropy_mcmc.data.local_files import find, root
from entropy_mcmc.data.tabular import UCI, read_npz
from entropy_mcmc_reproduction import uci_view
from entropy_mcmc_reproduction.items import Item
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.stacks import Splits, judge, sample
from entropy_mcmc_reproduction.trials import latin
from entropy_mcmc_reproduction.uci_view import METHODS, job_name

# A small rate is a short training: on small tables that is what keeps SGD from overfitting.
_SGD = {"lr": (0.0005, 0.3)}
# The warm start is SGD, with a rate of its own.
_HEAT = {"temperature": (1e-2, 1.0), "warm_lr": (0.002, 0.2)}
SPACES: dict[str, dict[str, tuple[float, float]]] = {
    "sgd": _SGD,
    "ensemble": _SGD,
    "sgld": {"lr": (0.01, 0.3), **_HEAT},
    "emcmc": {"lr": (0.02, 0.6), "horizon": (4.0, 50.0), **_HEAT},
}
_COMMON = {
    "batch_size": 100,
    "hidden": 50,
    "members": 4,
    "samples": 16,
    "cycles": 4,
    "validation_part": 0.2,
}
_FULL = {"steps": 2000, "trials": 8, "splits": None}
_SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"steps": 200, "trials": 2, "splits": 2},
    "laptop": _FULL,
    "paper": _FULL,
}


def tables(scale: str) -> tuple[str, ...]:
    """The tables of a scale; the smoke scale has one that is embedded."""
    return ("diabetes",) if scale == "smoke" else tuple(UCI)


def jobs(scale: str, place: Place) -> list[Job]:
    """A job for each table and method: its search and its splits."""
    made = []
    for table in tables(scale):
        common = {**_COMMON, **_SIZES[scale], "table": table}
        if table == "protein":  # four times the rows of any other: larger batches
            common["batch_size"], common["hidden"] = 400, 100
        for method in METHODS:
            space = {name: list(ends) for name, ends in SPACES[method].items()}
            settings = {**common, "method": method, "space": space}
            made.append(Job(job_name(table, method), "uci:compute", settings))
    return made


def unavailable(scale: str, place: Place) -> str | None:
    """The tables are not embedded."""
    if scale == "smoke" or place.data:
        return None
    return "it needs the UCI tables: set EMCMC_DATA"


def compute(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Every split chooses its own hyper-parameters on a part of its own training rows.

    A choice over all splits would leak: what one split holds out, another one trains on.
    """
    splits = Splits.of(*read(settings["table"], place.data, settings["splits"]))
    method = settings["method"]
    trials = latin(method, settings["space"], settings["trials"])
    held = splits.validation(settings["validation_part"])
    scored = [_finite(judge(sample(method, t, held, settings, 1000), held)) for t in trials]
    likelihoods = np.array([score["log_likelihood"] for score in scored])
    chosen = likelihoods.argmax(0)
    result: dict[str, Any] = {name: [0.0] * len(splits) for name in uci_view.SCORES}
    for trial in sorted(set(chosen.tolist())):
        members = np.flatnonzero(chosen == trial).tolist()
        part = splits.only(members)
        scores = _finite(judge(sample(method, trials[trial], part, settings, 0), part))
        for name in uci_view.SCORES:
            for index, value in zip(members, scores[name], strict=True):
                result[name][index] = value
    return {
        **result,
        "rows": splits.inputs.shape[1],
        "test_rows": splits.judged_inputs.shape[1],
        "trials": trials,
        "chosen": chosen.tolist(),
        "validation_log_likelihood": likelihoods.tolist(),
    }


def _finite(scores: dict[str, list[float]]) -> dict[str, list[float]]:
    """Scores, where what diverged gets one that is never chosen and is plain to see."""
    return {
        name: [v if math.isfinite(v) else (1e9 if name == "rmse" else -1e9) for v in values]
        for name, values in scores.items()
    }


def read(
    table: str, folder: str | None, limit: int | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """All rows, the target last, and flags (split, row) of the standard test rows."""
    if table == "diabetes":
        return _diabetes(limit or 2)
    base = root(folder)
    file = find(base, f"uci/{UCI[table]}.csv", checksum=False)
    values = np.loadtxt(file, delimiter=",", skiprows=1, ndmin=2, dtype=np.float64)
    flags = read_npz(find(base, f"uci/{UCI[table]}-splits.npz", checksum=False))["test"]
    return values, flags[:limit]


def _diabetes(splits: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    from sklearn.datasets import load_diabetes

    content = load_diabetes()
    values = np.column_stack([content.data, content.target]).astype(np.float64)
    test = np.zeros((splits, len(values)), dtype=np.bool_)
    for index in range(splits):
        test[index, index::10][:44] = True
    test[:, 440:] = False
    return values, test


ITEM = Item(
    "Nine UCI regressions, standard splits", "beyond the paper", jobs, uci_view.show, unavailable
)
