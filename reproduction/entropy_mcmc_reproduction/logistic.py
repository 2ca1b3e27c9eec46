"""Fig. 3: logistic regression of MNIST's 7 against 9, per gradient, every method with its own lr.

The same trials choose two settings of each method by its validation rows: the one that learns
fastest, and the one that predicts best. The final runs have both, with other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entropy_mcmc_reproduction import logistic_view
from entropy_mcmc_reproduction.items import Item
from entropy_mcmc_reproduction.jobs import Job, Place
from entropy_mcmc_reproduction.logistic_chains import (
    METHODS,
    Course,
    Rows,
    State,
    nll,
    probability,
    read,
    run,
)
from entropy_mcmc_reproduction.logistic_view import job_name
from entropy_mcmc_reproduction.trials import latin

_PRIOR = {"prior_variance": (0.003, 3.0)}
_RATE = {"lr": (0.002, 1.0), **_PRIOR}
_NESTED = {"inner_lr": (0.002, 1.0), **_PRIOR, "width": (0.2, 20.0), "pull": (0.3, 1.5)}
SPACES: dict[str, dict[str, tuple[float, float]]] = {
    # Coupled, the pair learns at half the speed: its range of lr is twice that of the others.
    "emcmc": {"lr": (0.004, 2.0), **_PRIOR, "horizon": (2.0, 500.0)},
    "sgld": _RATE,
    "entropy-sgd": _NESTED,
    "entropy-sgld": _NESTED,
    "sgd": _RATE,
}
LENGTHS = (1.0, 0.5)  # stopping points, as parts of the budget
FIRST_TUNING_SEED = 1000
_MNIST = {"data": "mnist", "validation": 2000, "seeds": 20, "tuning_seeds": 2, "trials": 32}
_MNIST |= {"gradients": 2000, "every": 20}
_SMOKE = {"data": "digits", "validation": 60, "seeds": 3, "tuning_seeds": 1, "trials": 3}
_SMOKE |= {"gradients": 200, "every": 10}
_SIZES: dict[str, dict[str, Any]] = {"smoke": _SMOKE, "laptop": _MNIST, "paper": _MNIST}


def jobs(scale: str, place: Place) -> list[Job]:
    """One job for each method: its trials, then its seeds."""
    common = {"batch": 128, "temperature": 1.0, **_SIZES[scale]}
    return [
        Job(
            job_name(method),
            "logistic:compute",
            {**common, "method": method, "space": {k: list(v) for k, v in SPACES[method].items()}},
        )
        for method in METHODS
    ]


def unavailable(scale: str, place: Place) -> str | None:
    """MNIST is not embedded."""
    if scale == "smoke" or place.data:
        return None
    return "it needs MNIST: set EMCMC_DATA"


def compute(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Trials judged on validation rows, then the seeds of the two picks."""
    parts = read(settings["data"], place.data, settings["validation"])
    trials = latin(settings["method"], settings["space"], settings["trials"])
    tuning = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + settings["tuning_seeds"])
    states = _states(settings, trials, parts.train, tuning)
    scores = judged(states, parts.validation)
    best = picks(scores)
    final = _states(
        settings,
        [trials[best["speed"][0]], trials[best["prediction"][0]]],
        parts.train,
        range(settings["seeds"]),
    )
    result = measured(final, parts.train, parts.test, best["prediction"][1])
    if not all(math.isfinite(v) for values in result["measures"].values() for v in values):
        return {"diverged": "a weight or an output stopped being finite"}
    return {
        **result,
        "rows": len(parts.train.targets),
        "gradients": list(range(0, settings["gradients"] + 1, settings["every"])),
        "trials": trials,
        "validation": scores,
        "picks": best,
    }


def _states(
    settings: Mapping[str, Any],
    chosen: Sequence[Mapping[str, float]],
    train: Rows,
    seeds: Sequence[int],
) -> list[State]:
    names = ("gradients", "every", "batch", "temperature")
    course = Course(**{name: settings[name] for name in names})
    return list(run(settings["method"], chosen, train, course, seeds))


def judged(states: Sequence[State], rows: Rows) -> dict[str, list[float]]:
    """Scores of every setting, means over seeds, infinite where one diverged.

    `speed` is the mean over the run of the NLL of the current θ; the others, named by stopping
    point, are the NLL of the averaged prediction.
    """
    scores = {"speed": area(curve(states, rows))}
    for length in LENGTHS:
        scores[str(length)] = nll_of(average(states, rows, length), rows)
    return {
        name: torch.nan_to_num(value.mean(0), nan=math.inf, posinf=math.inf).tolist()
        for name, value in scores.items()
    }


def picks(scores: Mapping[str, Sequence[float]]) -> dict[str, tuple[int, float]]:
    """The fastest setting, and the best predicting one with its stopping point.

    >>> picks({"speed": [2.0, 1.0], "1.0": [0.3, 0.4], "0.5": [0.2, 0.5]})
    {'speed': (1, 1.0), 'prediction': (0, 0.5)}
    """
    pairs = [(i, length) for length in LENGTHS for i in range(len(scores["speed"]))]
    best = min(pairs, key=lambda pair: scores[str(pair[1])][pair[0]])
    return {"speed": (int(np.argmin(scores["speed"])), LENGTHS[0]), "prediction": best}


def measured(states: Sequence[State], train: Rows, test: Rows, length: float) -> dict[str, Any]:
    """Measures of every seed: speed of the first setting, prediction of the second.

    The only place where test rows are used.
    """
    fast = [_only(state, 0) for state in states]
    curves = {"train_nll": curve(fast, train), "accuracy": _accuracies(fast, test)}
    guides = [State(state.guide, None) for state in fast if state.guide is not None]
    if guides:
        curves |= {"guide_train_nll": curve(guides, train)}
        curves |= {"guide_accuracy": _accuracies(guides, test)}
    predicted = average([_only(state, 1) for state in states], test, length)
    return {
        "measures": {
            "train_nll": area(curves["train_nll"])[:, 0].tolist(),
            "last_train_nll": curves["train_nll"][-1, :, 0].tolist(),
            "nll": nll_of(predicted, test)[:, 0].tolist(),
            "accuracy": accuracy(predicted, test)[:, 0].tolist(),
        },
        "curves": {name: _mean_and_error(values[..., 0]) for name, values in curves.items()},
    }


def _only(state: State, place: int) -> State:
    kept = slice(place, place + 1)
    return State(state.theta[:, kept], None if state.guide is None else state.guide[:, kept])


def curve(states: Sequence[State], rows: Rows) -> Tensor:
    """NLL of the current θ, (time, seed, setting)."""
    return torch.stack([nll(state.theta, rows) for state in states]).double()


def _accuracies(states: Sequence[State], rows: Rows) -> Tensor:
    return torch.stack([accuracy(probability(state.theta, rows), rows) for state in states])


def area(values: Tensor) -> Tensor:
    """Mean over time of (time, seed, setting), by the trapezoid rule."""
    return (values[:-1] + values[1:]).mean(0) / 2


def average(states: Sequence[State], rows: Rows, length: float) -> Tensor:
    """Mean probability over the second half of what is run, θ and guide alike."""
    stop = round(length * (len(states) - 1))
    kept = [role for state in states[stop // 2 + 1 : stop + 1] for role in state.roles]
    total = torch.zeros((), dtype=torch.float64)
    for theta in kept:
        total = total + probability(theta, rows)
    return total / len(kept)


def nll_of(probabilities: Tensor, rows: Rows) -> Tensor:
    """Mean NLL of averaged probabilities; NaN stays NaN."""
    targets = rows.targets.expand_as(probabilities)
    chosen = torch.where(targets > 0.5, probabilities, 1 - probabilities)
    return -chosen.clamp_min(1e-38).log().mean(-1)


def accuracy(probabilities: Tensor, rows: Rows) -> Tensor:
    """Share of rows whose likelier class is the true one."""
    return ((probabilities > 0.5) == (rows.targets > 0.5)).double().mean(-1)


def _mean_and_error(values: Tensor) -> dict[str, list[float]]:
    """Over seeds, of (time, seed)."""
    errors = values.std(1) / math.sqrt(values.shape[1])
    parts = {"mean": values.mean(1), "error": errors}
    return {name: [round(v, 6) for v in some.tolist()] for name, some in parts.items()}


ITEM = Item(
    "Logistic regression, MNIST 7 against 9",
    "Fig. 3",
    jobs,
    logistic_view.show,
    unavailable,
    "EMCMC converges faster than Entropy-SGD and Entropy-SGLD and as fast as SGLD",
)
