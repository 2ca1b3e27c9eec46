"""Several states of one model side by side: a table, and what the figures need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness.fisher import FisherDiagonal, fisher_diagonal
from entropy_mcmc.flatness.hessian import (
    SpectralDensity,
    hessian_trace,
    spectral_density,
    top_eigenvalues,
)
from entropy_mcmc.flatness.interpolation import Interpolation, interpolate_random
from entropy_mcmc.flatness.problem import (
    Data,
    Loss,
    State,
    classification_error,
    load,
    mean_over,
    restoring,
)
from entropy_mcmc.flatness.sharpness import sam_sharpness


@dataclass(frozen=True)
class Settings:
    """How much work `compare` does; the defaults are those of the report."""

    eigenvalues: int = 5
    tolerance: float = 1e-3
    probes: int = 16
    lanczos_probes: int = 2
    lanczos_steps: int = 40
    directions: int = 5
    distances: Sequence[float] = (0.0, 0.5, 1.0, 2.0, 4.0)
    normalise: str = "euclidean"
    rho: float = 0.05
    ascent_steps: int = 5
    chunk: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """The numbers of one state; `loss` and Fisher on all data, the rest on the Hessian's."""

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

    def records(self) -> list[dict[str, float | str | None]]:
        """The rows as plain dictionaries, for JSON."""
        return [asdict(row) for row in self.rows]

    def __str__(self) -> str:
        return _table(self.records())


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

    Fisher and loss use `data`; Hessian, sharpness and interpolation use `hessian_data` (a fixed
    `subset`) if given. Batch norm uses each state's own stored statistics. The model is left
    as it was.
    """
    if not states:
        raise ConfigError("states must name at least one state, got none")
    chosen, small = settings or Settings(), data if hessian_data is None else hessian_data
    rows, measured = [], {}
    with restoring(model):
        for name, state in states.items():
            load(model, state)
            curves = _measure(model, loss, data, small, test, error, chosen)
            rows.append(_row(name, model, loss, data, small, test, error, chosen, curves))
            measured[name] = curves
    return Comparison(rows, measured)


def _measure(
    model: nn.Module,
    loss: Loss,
    data: Data,
    small: Data,
    test: Data | None,
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
    data: Data,
    small: Data,
    test: Data | None,
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


def _table(records: list[dict[str, float | str | None]]) -> str:
    cells = [list(records[0]), *([_cell(v) for v in record.values()] for record in records)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = (
        [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        for row in cells
    )
    return "\n".join("  ".join(line) for line in lines)


def _cell(value: float | str | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.4g}"
