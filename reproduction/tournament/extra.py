"""Beside the leagues: what each ingredient gives, NLL against the budget, different networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import softmax

from tournament import own, stats
from tournament.leagues import knobs_of
from tournament.methods import METHODS, Knobs, Method, answers, methods_of, trajectories
from tournament.scores import Answers, measures
from tournament.settings import Settings
from tournament.store import Store, write_json
from tournament.tasks import Task

Runs = Mapping[tuple[str | int, ...], tuple[Method, list[Settings]]]
BUDGETS = (6, 12, 24, 48, 96)
CURVES = ("SGD", "ensemble 4", "EMCMC", "EMCMC ×4")
UNCOUPLED = 1e6  # horizon in runs: the guide's pull is nothing, and θ moves as SGHMC's


def ingredients(task: Task) -> dict[str, tuple[Method, dict[str, float]]]:
    """EMCMC with one thing changed at a time: method and settings by name."""
    full, base = METHODS["EMCMC"], own.knobs(METHODS["EMCMC"], task)
    four = METHODS["EMCMC ×4"]
    copied = {**base, "prior_variance": 1 / (5e-4 * task.train)}
    # With SGLD's lr, which has no momentum either: at the same lr the steps were a tenth as long.
    still = {**base, "momentum": 0.0, "lr": own.knobs(METHODS["SGLD"], task)["lr"]}
    return {
        "EMCMC": (full, base),
        "no noise": (full, {**base, "temperature": 0.0}),
        "no guide": (full, {**base, "horizon": UNCOUPLED}),
        "no noise, no guide": (full, {**base, "temperature": 0.0, "horizon": UNCOUPLED}),
        "no average": (replace(full, readout="last"), base),
        "weight decay 5e-4": (full, copied),
        "no momentum": (full, still),
        "four chains": (four, own.knobs(four, task)),
    }


def ingredient_runs(task: Task) -> dict[tuple[str, int], tuple[Method, list[Settings]]]:
    """Runs by (ingredient, seed)."""
    return {
        (name, seed): (method, trajectories(method, task, seed, knobs))
        for name, (method, knobs) in ingredients(task).items()
        for seed in range(task.seeds)
    }


def budget_runs(task: Task) -> dict[tuple[str, int, int], tuple[Method, list[Settings]]]:
    """Runs by (method, passes, seed), schedules compressed or stretched to the budget."""
    return {
        (name, passes, seed): (METHODS[name], _at(METHODS[name], task, seed, passes))
        for name in CURVES
        for passes in BUDGETS
        for seed in range(min(5, task.seeds))
    }


def _at(method: Method, task: Task, seed: int, passes: int) -> list[Settings]:
    knobs = own.knobs(method, task, passes)
    return trajectories(method, task, seed, knobs, passes / task.passes)


def write(name: str, runs: Runs, store: Store, to: Path) -> None:
    """Scores of all finished runs as one JSON file."""
    rows = []
    for key, (method, chains) in runs.items():
        if not store.missing(chains):
            found = answers(method, chains, store)
            scores = {} if found is None else measures(found)
            rows.append({"key": list(key), "measures": scores})
    write_json(to / f"{name}.json", {"rows": rows})


def probabilities(found: Answers) -> np.ndarray:
    """Probabilities of every network on the test rows; the means of a regression."""
    if np.issubdtype(found.test_y.dtype, np.floating):
        return found.test.astype(np.float64)
    return np.asarray(softmax(found.test.astype(np.float64), axis=-1))


def networks(league: str, task: Task, store: Store) -> dict[str, tuple[float, float, float]]:
    """K with its interval for every method that averages several networks."""
    found = {}
    for method in methods_of(task):
        knobs, _ = knobs_of(league, method, task, store)
        stacks = [] if knobs is None else _stacks(method, task, knobs, store)
        if len(stacks) > 2 and stacks[0].shape[0] > 1:
            found[method.name] = stats.effective_interval(np.stack(stacks), draws=200)
    return found


def _stacks(method: Method, task: Task, knobs: Knobs, store: Store) -> list[np.ndarray]:
    stacks = []
    for seed in range(task.seeds):
        runs = trajectories(method, task, seed, knobs)
        one = None if store.missing(runs) else answers(method, runs, store)
        if one is not None:
            stacks.append(probabilities(one))
    return stacks
