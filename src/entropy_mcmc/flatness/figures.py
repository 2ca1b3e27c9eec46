"""Figures of the measures. Matplotlib's Figure objects only: no global state, no window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entropy_mcmc.flatness.compare import Comparison
from entropy_mcmc.flatness.fisher import FisherDiagonal
from entropy_mcmc.flatness.interpolation import Interpolation
from entropy_mcmc.flatness.surface import Surface

Array = NDArray[np.float64]


def fisher_histogram(
    fisher: FisherDiagonal, *, bins: int = 60, limit: float | None = None
) -> tuple[Array, Array]:
    """Counts and edges of the paper's Fig. 4; what is above `limit` is in the last bin."""
    values = np.asarray(fisher.variance.double().cpu())
    top = float(values.max()) if limit is None else limit
    counts, edges = np.histogram(values.clip(max=top), bins=bins, range=(0.0, top or 1.0))
    return counts.astype(np.float64), edges


def fisher_figure(comparison: Comparison) -> Any:
    """One histogram per state on a common axis (frequency on a log scale)."""
    shared = max(float(m.fisher.variance.max()) for m in comparison.measured.values())
    figure, panels = new_figure(len(comparison.measured))
    for axis, (name, measured) in zip(panels, comparison.measured.items(), strict=True):
        counts, edges = fisher_histogram(measured.fisher, limit=shared)
        axis.stairs(counts, edges, fill=True)
        axis.set(title=name, xlabel="diagonal Fisher", yscale="log", ylim=(0.5, None))
    panels[0].set_ylabel("parameters")
    return figure


def density_figure(comparison: Comparison) -> Any:
    """Smoothed spectral densities of the Hessian."""
    figure, (axis,) = new_figure(1)
    for name, measured in comparison.measured.items():
        axis.plot(measured.density.grid, measured.density.density, label=name)
    top = max(float(m.density.density.max()) for m in comparison.measured.values())
    axis.set(xlabel="eigenvalue", ylabel="density", yscale="log", ylim=(top * 1e-6, top * 2))
    axis.legend()
    return figure


def interpolation_figure(lines: dict[str, Interpolation]) -> Any:
    """Loss with its spread over directions, and test error if it was measured."""
    both = all(line.error is not None for line in lines.values())
    figure, panels = new_figure(2 if both else 1)
    for name, line in lines.items():
        mean, spread = line.mean_loss, line.spread
        panels[0].plot(line.distances, mean, marker=".", label=name)
        panels[0].fill_between(line.distances, mean - spread, mean + spread, alpha=0.2)
        if both and line.error is not None:
            panels[1].plot(line.distances, line.error.mean(0), marker=".", label=name)
    first = next(iter(lines.values()))
    for axis, title in zip(panels, ("training loss", "test error"), strict=False):
        axis.set(xlabel=first.unit, ylabel=title)
        axis.legend()
    figure.suptitle(f"batch-norm statistics: {first.batchnorm}", fontsize=9)
    return figure


def surface_figure(surface: Surface) -> Any:
    """Contours of the loss, the three points, and the samples with their distance off the plane."""
    figure, (axis,) = new_figure(1)
    contours = axis.contourf(surface.x, surface.y, surface.loss, levels=30, cmap="viridis")
    figure.colorbar(contours, ax=axis, label="loss")
    axis.plot(*surface.points.T, "w^", markeredgecolor="k", label="plane")
    if len(surface.samples):
        axis.plot(*surface.samples.T, "ro", markeredgecolor="k", label="samples (projected)")
    for name, place, off in zip(surface.names, surface.samples, surface.residuals, strict=True):
        axis.annotate(f"{name} ({off:.2g} off)", place, color="white", fontsize=8)
    axis.set(xlabel="distance", ylabel="distance")
    axis.legend()
    return figure


def save_figures(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Write fisher.png, density.png and interpolation.png, and return their paths."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    lines = {name: m.interpolation for name, m in comparison.measured.items()}
    figures = {
        "fisher": fisher_figure(comparison),
        "density": density_figure(comparison),
        "interpolation": interpolation_figure(lines),
    }
    for name, figure in figures.items():
        figure.savefig(target / f"{name}.png", dpi=120)
    return [target / f"{name}.png" for name in figures]


def new_figure(count: int) -> tuple[Any, list[Any]]:
    """A figure with `count` panels side by side, bound to no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(5.0, 3.6 * count), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, squeeze=False, sharey=False)[0])
