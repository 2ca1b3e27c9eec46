r"""Top eigenvalues, trace and spectral density of the Hessian of the mean loss.

Nothing here forms the matrix: only products :math:`Hv`, summed over the batches of the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entropy_mcmc.errors import ConfigError, check_choice, check_count, check_positive
from entropy_mcmc.flatness.given_data import Data, Source
from entropy_mcmc.flatness.input_checks import checked
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    batches,
    check_measured,
    device_of,
    evaluating,
    generator,
    parameters,
    vector,
)

Array = NDArray[np.float64]


def hessian_products(model: nn.Module, loss: Loss, data: Data, vectors: Tensor) -> Tensor:
    """H·v for every row v of `vectors` (k, d): one pass over the data for all k rows."""
    return products(model, loss, checked(model, loss, data), vectors)


@torch.enable_grad()
def products(model: nn.Module, loss: Loss, data: Source, vectors: Tensor) -> Tensor:
    """`hessian_products` of data that have been checked."""
    params = list(parameters(model).values())
    total, count = torch.zeros_like(vectors), 0
    with evaluating(model):
        for x, y in batches(data, device_of(model)):
            value = loss(model(x), y)
            grads = torch.autograd.grad(
                value, params, create_graph=True, allow_unused=True, materialize_grads=True
            )
            flat = torch.cat([g.reshape(-1) for g in grads])
            for row, v in zip(total, vectors, strict=True):
                row += _second(flat, params, v) * len(x)
            count += len(x)
    if count == 0:
        raise ConfigError("data must hold at least one sample, got none")
    check_measured("the Hessian", total, data)
    return total / count


def _second(flat: Tensor, params: list[nn.Parameter], v: Tensor) -> Tensor:
    if not flat.requires_grad:  # the loss is linear in the parameters
        return torch.zeros_like(v)
    parts = torch.autograd.grad(
        flat, params, v, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat([part.reshape(-1) for part in parts])


def top_eigenvalues(
    model: nn.Module,
    loss: Loss,
    data: Data,
    k: int = 5,
    *,
    which: str = "LA",
    tolerance: float = 1e-4,
    seed: int | None = 0,
) -> Array:
    """The k largest eigenvalues, descending, by SciPy's implicitly restarted Lanczos.

    `which="LM"` takes the largest in magnitude instead, `"SA"` the most negative. `tolerance` is
    relative.

    >>> model, data = nn.Linear(2, 1, bias=False), (torch.eye(2), torch.zeros(2, 1))
    >>> top_eigenvalues(model, nn.functional.mse_loss, data, k=1).round(4).tolist()
    [1.0]
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    check_choice("which", which, ("LA", "LM", "SA"))
    source, point = checked(model, loss, data), vector(model)
    d = point.numel()
    if check_count("k", k) >= d:
        raise ConfigError(f"k must be less than the number of parameters {d}, got k={k}")

    def product(v: Array) -> Array:
        tensor = torch.from_numpy(np.ascontiguousarray(v, dtype=np.float64)).reshape(1, -1)
        out = products(model, loss, source, tensor.to(point.device, point.dtype))
        return np.asarray(out[0].double().cpu())

    operator: Any = LinearOperator((d, d), matvec=product, dtype=np.float64)
    start = torch.randn(d, generator=generator(seed), dtype=torch.float64).numpy()
    values = eigsh(operator, k=k, which=which, v0=start, tol=tolerance, return_eigenvectors=False)
    return np.sort(np.asarray(values, dtype=np.float64))[::-1]


@dataclass(frozen=True)
class TraceEstimate:
    """Hutchinson's estimate with the standard error over its probes."""

    value: float
    standard_error: float
    probes: int


def hessian_trace(
    model: nn.Module, loss: Loss, data: Data, *, probes: int = 32, seed: int | None = 0
) -> TraceEstimate:
    """Trace by Hutchinson: the mean of vᵀHv over random signs v."""
    check_count("probes", probes, least=2, remedy="one probe has no standard error")
    signs = _signs(model, probes, seed)
    draws = (signs * products(model, loss, checked(model, loss, data), signs)).sum(1)
    error = float(draws.std()) / math.sqrt(probes)
    return TraceEstimate(float(draws.mean()), error, probes)


def _signs(model: nn.Module, probes: int, seed: int | None) -> Tensor:
    point = vector(model)
    bits = torch.randint(0, 2, (probes, point.numel()), generator=generator(seed))
    return (2 * bits - 1).to(point)


def lanczos(product: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> tuple[Array, Array]:
    """Diagonal and off-diagonal of the tridiagonal matrix after at most `steps` products."""
    diagonal, off, _ = lanczos_basis(product, start, steps)
    return diagonal, off


def lanczos_basis(
    product: Callable[[Tensor], Tensor], start: Tensor, steps: int
) -> tuple[Array, Array, Tensor]:
    """`lanczos`, and the orthonormal rows in which the matrix is tridiagonal.

    Every new vector is made orthogonal to all earlier ones, twice: without it rounding brings
    found eigenvalues back as ghosts. Stops early when the start's Krylov space is exhausted.
    """
    basis = [start / start.norm()]
    diagonal: list[float] = []
    off: list[float] = []
    for _ in range(min(check_count("steps", steps), start.numel())):
        w = product(basis[-1])
        scale = float(w.norm())
        diagonal.append(float(basis[-1] @ w))
        stacked = torch.stack(basis)
        for _ in range(2):
            w = w - stacked.T @ (stacked @ w)
        norm = float(w.norm())
        # What is left is rounding: the space is invariant.
        if norm <= 100 * torch.finfo(w.dtype).eps * max(scale, *map(abs, diagonal)):
            break
        off.append(norm)
        basis.append(w / norm)
    size = len(diagonal)
    return np.array(diagonal), np.array(off[: size - 1]), torch.stack(basis[:size])


@dataclass(frozen=True)
class SpectralDensity:
    """Share of eigenvalues: smoothed on a grid, and the quadrature's nodes and weights."""

    grid: Array
    density: Array
    nodes: Array
    weights: Array
    width: float

    def moment(self, power: int) -> float:
        """Mean of λ**power over the spectrum, from the raw nodes."""
        return float((self.weights * self.nodes**power).sum())


def spectral_density(
    model: nn.Module,
    loss: Loss,
    data: Data,
    *,
    probes: int = 8,
    steps: int = 64,
    grid: Array | None = None,
    width: float | None = None,
    seed: int | None = 0,
) -> SpectralDensity:
    """Spectral density by stochastic Lanczos quadrature.

    Each probe's tridiagonal matrix gives nodes (its eigenvalues) and weights (the squared first
    components of its eigenvectors); the density is their sum smoothed by Gaussians of standard
    deviation `width` (default: 1 % of the range). Holds `steps` vectors of d numbers.
    """
    source = checked(model, loss, data)

    def product(v: Tensor) -> Tensor:
        return products(model, loss, source, v.unsqueeze(0))[0]

    parts = [
        quadrature(*lanczos(product, start, steps))
        for start in _signs(model, check_count("probes", probes), seed)
    ]
    nodes = np.concatenate([part[0] for part in parts])
    weights = np.concatenate([part[1] for part in parts]) / probes
    reach = float(np.ptp(nodes)) or max(abs(float(nodes[0])), 1.0)
    spread = 0.01 * reach if width is None else check_positive("width", width)
    if grid is None:
        grid = np.linspace(nodes.min() - 5 * spread, nodes.max() + 5 * spread, 1024)
    return SpectralDensity(grid, _smooth(grid, nodes, weights, spread), nodes, weights, spread)


def quadrature(diagonal: Array, off: Array) -> tuple[Array, Array]:
    """Nodes, ascending, and weights of the quadrature of a spectrum, from Lanczos numbers."""
    from scipy.linalg import eigh_tridiagonal

    values, vectors = eigh_tridiagonal(diagonal, off)
    return values, vectors[0] ** 2


def _smooth(grid: Array, nodes: Array, weights: Array, width: float) -> Array:
    bumps = np.exp(-0.5 * ((grid[:, None] - nodes) / width) ** 2)
    return np.asarray(bumps @ weights / (width * math.sqrt(2 * math.pi)))
