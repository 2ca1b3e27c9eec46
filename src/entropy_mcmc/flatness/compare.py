"""Several states of one model side by side: a table, and what the figures need."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness.fisher import FisherDiagonal, fisher_diagonal
from entropy_mcmc.flatness.given_data import Data, Source, is_pair
from entropy_mcmc.flatness.hessian import (
    SpectralDensity,
    hessian_trace,
    spectral_density,
    top_eigenvalues,
)
from entropy_mcmc.flatness.input_checks import check_mean, tensors_for
from entropy_mcmc.flatness.interpolation import Interpolation, interpolate_random
from entropy_mcmc.flatness.learning_coefficient import LocalSampling, estimate
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    State,
    check_state,
    classification_error,
    load,
    mean_over,
    restoring,
)
from entropy_mcmc.flatness.sharpness import sam_sharpness
from entropy_mcmc.flatness.table import Sizes, table
from entropy_mcmc.noise import draw_seed


@dataclass(frozen=True)
class Settings:
    """How much work `compare` does.

    The defaults keep a network of 78,000 weights, 10,000 images for its Fisher diagonal and 500
    for the rest below a few minutes per state; `batch` rows at a time suit a processor's cache,
    and the error along random directions is taken on `test_rows` of the test set.
    """

    eigenvalues: int = 5
    tolerance: float = 1e-2
    probes: int = 16
    lanczos_probes: int = 1
    lanczos_steps: int = 30
    batch: int = 32
    test_rows: int = 1000
    directions: int = 5
    distances: Sequence[float] = (0.0, 0.5, 1.0, 2.0, 4.0)
    normalise: str = "euclidean"
    rho: float = 0.05
    ascent_steps: int = 5
    chunk: int | None = None
    seed: int | None = 0
    learning: LocalSampling | None = None  # of the local learning coefficient; None leaves it out

    def __post_init__(self) -> None:
        if self.seed is None:  # kept, so that all states get the same
            object.__setattr__(self, "seed", draw_seed())


@dataclass(frozen=True)
class Row:
    """Measures of one state.

    Loss, Fisher and learning coefficient are of all data, the rest of the Hessian's.
    """

    name: str
    loss: float
    test_error: float | None
    fisher_mean: float
    fisher_max: float
    top_eigenvalue: float
    trace: float
    trace_error: float
    sharpness: float
    rise: float
    learning_coefficient: float | None = None
    learning_coefficient_error: float | None = None
    learning_coefficient_warning: str | None = None
    learning_localisation: float | None = None  # γ, and what the curvatures give at γ/4, γ and 4γ:
    learning_by_localisation: tuple[float, ...] | None = None
    learning_sensitivity: float | None = None  # to γ: 0 for a count of directions, 1 for a trace/γ
    learning_gamma_decides: bool | None = None  # by the sensitivity, unless that is too rough
    learning_rhat: float | None = None  # of the loss over its chains
    learning_ess: float | None = None
    learning_temperature: float | None = None  # T = 1/β of its target, and that of its chains:
    learning_measured_temperature: float | None = None
    learning_counted_temperature: float | None = None  # along the directions that it counts


@dataclass(frozen=True)
class Measured:
    """The curves behind a row."""

    fisher: FisherDiagonal
    eigenvalues: NDArray[np.float64]
    density: SpectralDensity
    interpolation: Interpolation


@dataclass(frozen=True)
class Comparison:
    """`print(comparison)` is the table; `rows` and `measured` hold the numbers."""

    rows: list[Row]
    measured: dict[str, Measured] = field(repr=False)
    sizes: Sizes = field(default_factory=Sizes)

    def records(self) -> list[dict[str, Any]]:
        """The rows as plain dictionaries, for JSON."""
        return [asdict(row) for row in self.rows]

    def __str__(self) -> str:
        return table(self.records(), self.sizes)


def compare(
    model: nn.Module,
    loss: Loss,
    data: Data,
    states: Mapping[str, State],
    *,
    hessian_data: Data | None = None,
    test: Data | None = None,
    error: Loss = classification_error,
    settings: Settings | None = None,
) -> Comparison:
    """Measure every state (parameters and batch-norm buffers) in the same way, same seeds.

    Fisher, loss and learning coefficient use `data`; Hessian, sharpness and interpolation use
    `hessian_data` (a fixed `subset`) if given. Batch norm uses each state's own stored statistics.
    The model is left as it was.
    """
    if not states:
        raise ConfigError("states must name at least one state, got none")
    for name, state in states.items():
        check_state(model, state, f"state {name!r}")
    s = settings or Settings()
    source = tensors_for(model, data)
    few = source if hessian_data is None else tensors_for(model, hessian_data)
    whole = None if test is None else tensors_for(model, test)
    small, some = _in_batches(few, s.batch), _first(whole, s.test_rows)
    rows, measured = [], {}
    with restoring(model):
        for name, state in states.items():
            load(model, state)
            check_mean(model, loss, source)
            curves = _measure(model, loss, source, small, some, error, s)
            row = _row(name, model, loss, source, small, whole, error, s, curves)
            rows.append(_with_learning(row, model, loss, source, s.learning))
            measured[name] = curves
    sizes = Sizes(_count(source), _count(small), s.rho, float(s.distances[-1]))
    return Comparison(rows, measured, sizes)


def _with_learning(
    row: Row, model: nn.Module, loss: Loss, data: Source, sampling: LocalSampling | None
) -> Row:
    if sampling is None:
        return row
    coefficient = estimate(model, loss, data, sampling)
    effect = coefficient.effect
    return replace(
        row,
        learning_coefficient=_finite(coefficient.value),
        learning_coefficient_error=_finite(coefficient.standard_error),
        learning_coefficient_warning="; ".join(coefficient.warnings) or None,
        learning_localisation=coefficient.localisation,
        learning_by_localisation=effect.values if effect else None,
        learning_sensitivity=effect.sensitivity if effect else None,
        learning_gamma_decides=effect.decides if effect else None,
        learning_rhat=coefficient.rhat,
        learning_ess=coefficient.ess,
        learning_temperature=coefficient.temperature,
        learning_measured_temperature=_finite(coefficient.measured_temperature),
        learning_counted_temperature=_finite(coefficient.counted_temperature),
    )


def _finite(value: float) -> float | None:
    """The value, or None where JSON has no number for it."""
    return value if math.isfinite(value) else None


def _in_batches(data: Source, size: int) -> Source:
    if not is_pair(data):
        return data
    x, y = data
    return list(zip(torch.split(x, size), torch.split(y, size), strict=True))


def _first(test: Source | None, rows: int) -> Source | None:
    """Evenly spaced rows of a test set in memory; another one is used whole."""
    if test is None or not is_pair(test) or len(test[0]) <= rows:
        return test
    index = torch.linspace(0, len(test[0]) - 1, rows).long()
    return test[0][index], test[1][index]


def _count(data: Source) -> int:
    return len(data[0]) if is_pair(data) else sum(len(x) for x, _ in data)


def _measure(
    model: nn.Module,
    loss: Loss,
    data: Source,
    small: Source,
    test: Source | None,
    error: Loss,
    s: Settings,
) -> Measured:
    return Measured(
        fisher_diagonal(model, loss, data, chunk=s.chunk),
        top_eigenvalues(model, loss, small, s.eigenvalues, tolerance=s.tolerance, seed=s.seed),
        spectral_density(
            model, loss, small, probes=s.lanczos_probes, steps=s.lanczos_steps, seed=s.seed
        ),
        interpolate_random(
            model,
            loss,
            small,
            s.distances,
            directions=s.directions,
            normalise=s.normalise,
            test=test,
            error=error,
            seed=s.seed,
        ),
    )


def _row(
    name: str,
    model: nn.Module,
    loss: Loss,
    data: Source,
    small: Source,
    test: Source | None,
    error: Loss,
    s: Settings,
    curves: Measured,
) -> Row:
    trace = hessian_trace(model, loss, small, probes=s.probes, seed=s.seed)
    sam = sam_sharpness(model, loss, small, rho=s.rho, steps=s.ascent_steps)
    variance = curves.fisher.variance
    return Row(
        name=name,
        loss=mean_over(model, loss, data),
        test_error=None if test is None else mean_over(model, error, test),
        fisher_mean=float(variance.mean()),
        fisher_max=float(variance.max()),
        top_eigenvalue=float(curves.eigenvalues[0]),
        trace=trace.value,
        trace_error=trace.standard_error,
        sharpness=sam.ascent,
        rise=float(curves.interpolation.mean_loss[-1]) - sam.loss,
    )
