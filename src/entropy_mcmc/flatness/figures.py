"""Figures of the measures. Matplotlib's Figure objects only: no global state, no window."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entropy_mcmc.flatness.compare import Comparison
from entropy_mcmc.flatness.fisher import FisherDiagonal
from entropy_mcmc.flatness.interpolation import Interpolation
from entropy_mcmc.flatness.surface import Surface

Array = NDArray[np.float64]
NAMED = 6  # samples on a surface above which their names are left out
BEYOND = tuple(np.linspace(-0.5, 1.5, 17))  # fractions of a line from θ to its guide


def fisher_histogram(
    fisher: FisherDiagonal, *, bins: int = 60, limit: float | None = None
) -> tuple[Array, Array]:
    """Counts and edges of the paper's Fig. 4; what is above `limit` is in the last bin."""
    values = np.asarray(fisher.variance.double().cpu())
    top = float(values.max()) if limit is None else limit
    counts, edges = np.histogram(values.clip(max=top), bins=bins, range=(0.0, top or 1.0))
    return counts.astype(np.float64), edges


def fisher_figure(comparison: Comparison) -> Any:
    """One histogram per state on common axes (counts on a log scale), as the paper's Fig. 4."""
    shared = max(float(m.fisher.variance.max()) for m in comparison.measured.values())
    figure, panels = new_figure(len(comparison.measured), sharey=True)
    top = 2 * max(m.fisher.variance.numel() for m in comparison.measured.values())
    for number, (axis, (name, measured)) in enumerate(
        zip(panels, comparison.measured.items(), strict=True)
    ):
        counts, edges = fisher_histogram(measured.fisher, limit=shared)
        axis.stairs(counts, edges, fill=True, color=f"C{number}")
        axis.set(xlabel="diagonal Fisher", yscale="log", ylim=(0.5, top), xlim=(0, edges[-1]))
        axis.set_title(name, fontsize=10)
        axis.locator_params(axis="x", nbins=5)
    panels[0].set_ylabel("number of parameters")
    return figure


def density_figure(comparison: Comparison) -> Any:
    """Smoothed spectral densities of the Hessian, each over its own range."""
    figure, (axis,) = new_figure(1)
    for name, measured in comparison.measured.items():
        axis.plot(measured.density.grid, measured.density.density, label=name, lw=1.2)
    top = max(float(m.density.density.max()) for m in comparison.measured.values())
    axis.set(xlabel="Hessian eigenvalue", ylabel="density", yscale="log")
    axis.set(ylim=(top * 1e-6, top * 2))
    _legend(axis)
    return figure


def interpolation_figure(lines: dict[str, Interpolation]) -> Any:
    """Loss with its spread over directions, and test error if it was measured."""
    both = all(line.error is not None for line in lines.values())
    figure, panels = new_figure(2 if both else 1)
    for name, line in lines.items():
        mean, spread = line.mean_loss, line.spread
        panels[0].plot(line.distances, mean, marker=".", label=name)
        low = np.maximum(mean - spread, line.loss.min(0))  # a loss has a floor, its mean ± sd none
        panels[0].fill_between(line.distances, low, mean + spread, alpha=0.2)
        if both and line.error is not None:
            panels[1].plot(line.distances, line.error.mean(0), marker=".", label=name)
    first = next(iter(lines.values()))
    for axis, title in zip(panels, ("training loss", "test error"), strict=False):
        axis.set(xlabel=first.unit, ylabel=title)
    _legend(panels[0])
    figure.suptitle(f"batch-norm statistics: {first.batchnorm}", fontsize=9)
    return figure


def between_figure(lines: dict[str, Interpolation]) -> Any:
    """Loss and error on the lines from θ (at 0) to its guide (at 1), and beyond them."""
    both = all(line.error is not None for line in lines.values())
    figure, panels = new_figure(2 if both else 1)
    for name, line in lines.items():
        length = line.distances[-1] / BEYOND[-1]
        label = f"{name} ({length:.3g} apart)"
        panels[0].plot(line.distances / length, line.loss[0], marker=".", label=label)
        if both and line.error is not None:
            panels[1].plot(line.distances / length, line.error[0], marker=".")
    for axis, title in zip(panels, ("training loss", "test error"), strict=False):
        for place in (0, 1):
            axis.axvline(place, color="0.6", lw=0.8, ls="--", zorder=0)
        axis.set(ylabel=title, xticks=(-0.5, 0, 0.5, 1, 1.5))
        axis.set_xticklabels(("\u22120.5", "\u03b8", "0.5", "guide", "1.5"))
    _legend(panels[0])
    batchnorm = next(iter(lines.values())).batchnorm
    figure.suptitle(f"batch-norm statistics: {batchnorm}", fontsize=9)
    return figure


def surface_figure(surface: Surface) -> Any:
    """Contours of the loss, the three points, and the samples with their distance off the plane."""
    from matplotlib.colors import LogNorm

    figure, (axis,) = new_figure(1, width=6.4, height=4.8)
    low, high = float(surface.loss.min()), float(surface.loss.max())
    log = low > 0 and high > 20 * low
    levels = np.geomspace(low, high, 25) if log else np.linspace(low, high or 1.0, 25)
    options = {"levels": levels, "cmap": "viridis", "norm": LogNorm(low, high) if log else None}
    contours = axis.contourf(surface.x, surface.y, surface.loss, **options)
    bar = figure.colorbar(contours, ax=axis, label="training loss", ticks=levels[::4])
    bar.ax.set_yticklabels([f"{level:.3g}" for level in levels[::4]])
    bar.ax.minorticks_off()
    axis.plot(
        *surface.points.T, "w^", markeredgecolor="k", ms=9, zorder=3, label="points of the plane"
    )
    if len(surface.samples):
        label = f"other samples, {_range(surface.residuals)} off the plane"
        axis.plot(*surface.samples.T, "ro", markeredgecolor="k", ms=5, zorder=4, label=label)
    # A few names can be read; many would cover the picture.
    if len(surface.names) <= NAMED:
        for name, place in zip(surface.names, surface.samples, strict=True):
            axis.annotate(name, place, (4, 4), textcoords="offset points", color="w", fontsize=8)
    axis.set(xlabel="distance", ylabel="distance", aspect="equal")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.suptitle(f"batch-norm statistics: {surface.batchnorm}", fontsize=9)
    return figure


def save_figures(
    comparison: Comparison, folder: str | Path, extra: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write fisher.png, density.png, interpolation.png and `extra` ones; returns their paths."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    lines = {name: m.interpolation for name, m in comparison.measured.items()}
    figures = {
        "fisher": fisher_figure(comparison),
        "density": density_figure(comparison),
        "interpolation": interpolation_figure(lines),
        **(extra or {}),
    }
    for name, figure in figures.items():
        figure.savefig(target / f"{name}.png", dpi=120)
    return [target / f"{name}.png" for name in figures]


def _legend(axis: Any) -> None:
    axis.legend(fontsize=8, frameon=False)


def _range(values: Array) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"


def new_figure(
    count: int, *, sharey: bool = False, width: float | None = None, height: float = 3.6
) -> tuple[Any, list[Any]]:
    """A figure with `count` panels side by side, bound to no window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = (max(5.0, 3.6 * count) if width is None else width, height)
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, squeeze=False, sharey=sharey)[0])
