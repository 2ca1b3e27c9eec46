"""Points to try: a Sobol sequence first, then Optuna's TPE sampler.

Pure functions of (space, seed, results so far), so that a search can be replayed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.tuning.space import Axis, Point


def spread_points(space: Sequence[Axis], count: int, seed: int) -> list[dict[str, float]]:
    """Points spread evenly over the space."""
    from scipy.stats import qmc

    if not count:
        return []
    power = (count - 1).bit_length()
    cube = qmc.Sobol(len(space), seed=seed % 2**32).random_base2(power)[:count]
    return [_at(space, row.tolist()) for row in cube]


def _at(space: Sequence[Axis], parts: Sequence[float]) -> dict[str, float]:
    """The point at these parts of the axes' ranges."""
    pairs = zip(space, parts, strict=True)
    return {axis.name: axis.value(axis.low + u * (axis.high - axis.low)) for axis, u in pairs}


def next_points(
    space: Sequence[Axis], count: int, seed: int, done: Sequence[tuple[Point, float]]
) -> list[dict[str, float]]:
    """Points that the results so far speak for.

    Args:
        space: Where to look.
        count: How many points.
        seed: Of Optuna's sampler.
        done: Points and their NLL, infinite for those that diverged.
    """
    optuna = require_optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes = {a.name: optuna.distributions.FloatDistribution(a.low, a.high) for a in space}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=seed % 2**32, n_startup_trials=1, multivariate=True, constant_liar=True
        )
        study = optuna.create_study(sampler=sampler, direction="minimize")
        worst = max((value for _, value in done if value < float("inf")), default=0.0)
        for point, value in done:
            places = {a.name: _within(a, point[a.name]) for a in space}
            study.add_trial(
                optuna.trial.create_trial(
                    params=places, distributions=axes, value=min(value, worst + 1.0)
                )
            )
        asked = [study.ask(axes).params for _ in range(count)]
    return [{a.name: a.value(params[a.name]) for a in space} for params in asked]


def _within(axis: Axis, value: float) -> float:
    """Coordinate of a value; rounding may have put it just outside its range."""
    return min(axis.high, max(axis.low, axis.place(value)))


def require_optuna() -> Any:
    """The package, or an error that says what to install."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            "tune needs the package optuna, which is not installed; run "
            "`pip install 'entropy-mcmc[tune]'`"
        ) from error
    return optuna
