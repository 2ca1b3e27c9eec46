"""Curvatures around a network, and the directions that its learning coefficient counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entropy_mcmc.flatness.given_data import Source
from entropy_mcmc.flatness.hessian import lanczos_basis, products
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    generator,
    mean_gradient,
    move_to,
    parameters,
    vector,
)

Floats = NDArray[np.float64]
Product = Callable[[Tensor], Tensor]
CURVATURE_ROWS = 512  # rows on which curvatures are measured
LANCZOS_STEPS = 20
SMALL = 1e-3  # share below which a direction is left out


@dataclass(frozen=True)
class Curvatures:
    """Nodes of a Gauss quadrature of a spectrum, from one random vector.

    Attributes:
        values: Ascending; the largest is that of the Hessian.
        counts: How many directions each stands for, d in all.
        vectors: A direction of length 1 with that curvature, one per row.
    """

    values: Floats
    counts: Floats
    vectors: Tensor


def curvatures(product: Product, point: Tensor, seed: int | None) -> Curvatures:
    """By Lanczos, from products of the Hessian with vectors like `point`."""
    from scipy.linalg import eigh_tridiagonal

    start = torch.randn(point.numel(), generator=generator(seed)).to(point)
    diagonal, off, basis = lanczos_basis(product, start, LANCZOS_STEPS)
    values, vectors = eigh_tridiagonal(diagonal, off)
    turned = torch.from_numpy(np.ascontiguousarray(vectors.T)).to(basis) @ basis
    return Curvatures(values, point.numel() * vectors[0] ** 2, turned)


def by_hessian(model: nn.Module, loss: Loss, data: Source, scale: Sequence[Tensor]) -> Product:
    """Hv of a vector v, for the mean loss in u = (w − w*)/s."""
    flat = _flat(model, scale)
    return lambda v: flat * products(model, loss, data, (flat * v)[None])[0]


def by_differences(
    model: nn.Module, loss: Loss, data: Source, scale: Sequence[Tensor], length: float
) -> Product:
    """The same from gradients at ±`length` along v; 0 where they are not finite."""
    center, flat = vector(model), _flat(model, scale)

    def slope(u: Tensor) -> Tensor:
        move_to(model, center + flat * u)
        return mean_gradient(model, loss, data)

    def product(v: Tensor) -> Tensor:
        difference = slope(length * v) - slope(-length * v)
        move_to(model, center)
        finite = bool(difference.isfinite().all())
        return flat * difference / (2 * length) if finite else torch.zeros_like(v)

    return product


def counted_directions(found: Curvatures, weight: float, localisation: float) -> Tensor:
    """Rows √s·v of the directions v and their shares s of the value, a/(a + γ) with a = nβh.

    A direction stands for as many as its node does, and at least for itself: a single stiff one may
    hardly be in the random vector. Where the loss curves nowhere upwards, all directions are alike.
    """
    a = weight * np.maximum(found.values, 0.0)
    parts = a / (a + localisation) * np.maximum(found.counts, 1.0)
    if not parts.any():
        parts = found.counts
    kept = np.flatnonzero(parts > SMALL * parts.sum())
    roots = torch.from_numpy(np.sqrt(parts[kept] / parts[kept].sum())).to(found.vectors)
    return roots[:, None] * found.vectors[torch.from_numpy(kept).to(roots.device)]


def _flat(model: nn.Module, scale: Sequence[Tensor]) -> Tensor:
    pairs = zip(parameters(model).values(), scale, strict=True)
    return torch.cat([(torch.ones_like(p) * s.to(p)).reshape(-1) for p, s in pairs])
