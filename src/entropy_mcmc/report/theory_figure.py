"""Measured W2 of Entropy-MCMC against Theorem 1, printed and corrected, on quadratics.

On a quadratic energy the chain's distribution is Gaussian at every step, so W2 is computed, not
estimated: one 2×2 block (θ, θ_a) per curvature.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entropy_mcmc import theory

Array = NDArray[np.float64]
# (title, m, M, η, steps, α as a share of the corrected limit, or None: the printed limit)
_PANELS = (
    ("small step", 1.0, 4.0, 0.5, 2400, 0.02),
    ("corrected limit", 1.0, 4.0, 0.5, 120, 1.0),
    ("printed limit", 1.0, 4.0, 0.5, 120, None),
)
_START = 300.0


def chain_distances(
    curvatures: Array, eta: float, alpha: float, steps: int, start: float = _START
) -> Array:
    """W2(μ_k, π_joint), k = 0 … steps, of the Euler chain from θ = θ_a = start (T = 1)."""
    squares = np.zeros(steps + 1)
    for h in curvatures:
        hessian = np.array([[h + 1 / eta, -1 / eta], [-1 / eta, 1 / eta]])
        target, step = np.linalg.inv(hessian), np.eye(2) - alpha * hessian
        mean, sigma = np.full(2, start), np.zeros((2, 2))
        for k in range(steps + 1):
            squares[k] += mean @ mean + _bures(sigma, target)
            mean, sigma = step @ mean, step @ sigma @ step.T + 2 * alpha * np.eye(2)
    return np.asarray(np.sqrt(squares.clip(min=0)))


def _bures(a: Array, b: Array) -> float:
    """tr(a + b − 2(a½ b a½)½); for 2×2, tr √X = √(tr X + 2√det X)."""
    dets = max(float(np.linalg.det(a) * np.linalg.det(b)), 0.0)
    return float(np.trace(a + b)) - 2 * math.sqrt(float(np.trace(a @ b)) + 2 * math.sqrt(dets))


def draw_bounds(d: int = 4) -> Any:
    """Three panels: a small step, the corrected theorem's limit, and the printed one's."""
    from entropy_mcmc.flatness.figures import new_figure

    figure, panels = new_figure(len(_PANELS))
    for axis, (title, m, M, eta, steps, share) in zip(panels, _PANELS, strict=True):
        low, high = theory.joint_eigenvalues(m, M, eta)
        alpha = 2 / (m + M) if share is None else share * 2 / (low + high)
        _draw(axis, m, M, eta, alpha, steps, d, share is not None)
        axis.set_title(f"{title}: α = {alpha:.3g}", fontsize=10)
        axis.set(xlabel="step", yscale="log")
    panels[0].set_ylabel("W2 to the joint target")
    panels[0].legend(fontsize=8)
    return figure


def _draw(
    axis: Any, m: float, M: float, eta: float, alpha: float, steps: int, d: int, valid: bool
) -> None:
    measured = chain_distances(np.linspace(m, M, d), eta, alpha, steps)
    k = np.arange(steps + 1)
    bounds = {"printed bound": theory.theorem1_printed}
    if valid:
        bounds["corrected bound"] = theory.theorem1_corrected
    else:
        axis.text(0.05, 0.92, "corrected: step refused", transform=axis.transAxes, fontsize=8)
    axis.plot(k, measured, "k", label="measured (exact)")
    for (name, bound), style in zip(bounds.items(), ("r--", "b-."), strict=False):
        start = float(measured[0])
        values = [
            bound(m, M, eta, alpha=alpha, d=d, sigma=0.0, K=int(i), w2_start=start) for i in k
        ]
        axis.plot(k, values, style, label=name)


def save_theory_figure(path: str | Path = "docs/pictures/theory-bounds.png") -> Path:
    """Write the figure of the docs."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    draw_bounds().savefig(target, dpi=130)
    return target
