"""How strongly an energy bends: what the step size of BAOAB and its first scale are set by.

All of it comes from gradients, as differences: second derivatives by autograd are NaN for some
functions whose gradient is fine (logaddexp).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from entropy_mcmc.chains.log_density import LogDensity, Slopes

STEEPER = 10  # 1 for a Gaussian
SHRINKS = 8
FEW = 4  # states at which the power iteration goes on to its end
LAST = 4  # iterations there


def spaced(rows: Tensor, most: int) -> Tensor:
    """Evenly spaced rows, at most so many."""
    places = torch.linspace(0, len(rows) - 1, min(most, len(rows))).long()
    return rows[places]


def hessian_products(
    slopes: Slopes, states: Tensor, v: Tensor, step: float | None = None
) -> Tensor:
    """H·v of each row, by a central difference of gradients at ±step·v."""
    step = step or (1e-3 if states.dtype == torch.float32 else 1e-5)
    ahead, behind = slopes(torch.cat([states + step * v, states - step * v])).chunk(2)
    return (ahead - behind) / (2 * step)


def diagonal(slopes: Slopes, states: Tensor, probes: int = 8) -> Tensor:
    """Diagonal of the Hessian of U, mean over rows, by Hutchinson's estimate E[v·Hv], v = ±1."""
    generator = torch.Generator().manual_seed(1)
    total = torch.zeros_like(states)
    for _ in range(probes):
        v = signs(states, generator)
        total += v * hessian_products(slopes, states, v)
    return total.mean(dim=0) / probes


def signs(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """±1 at random, from a fixed seed unless a generator is given."""
    generator = generator or torch.Generator().manual_seed(2)
    return torch.randint(2, like.shape, generator=generator).to(like) * 2 - 1


def largest(
    slopes: Slopes, states: Tensor, along: Tensor | None, last: int = LAST
) -> tuple[float, Tensor]:
    """Largest |eigenvalue| of the Hessian of U over states, and its direction.

    Power iteration from random signs, to which a direction found before is added. After every
    iteration half of the states are left out, those that bend least; the last few go on alone.
    """
    v = signs(states, torch.Generator().manual_seed(0))
    # Of signs v, |H·v| has the largest eigenvalue of a diagonal H as its largest number.
    order = math.inf
    while True:
        v = hessian_products(slopes, states, _unit(v))
        if not bool(v.isfinite().all()):
            return math.nan, v[0]
        if len(states) <= FEW:
            last -= 1
        if last <= 0:
            sizes = v.norm(dim=1)
            worst = sizes.argmax()
            return float(sizes[worst]), _unit(v)[worst]
        most = min(len(states), max(FEW, len(states) // 2))
        kept = torch.linalg.vector_norm(v, ord=order, dim=1).topk(most).indices
        states, v, order = states[kept], _unit(v[kept]), 2.0
        if along is not None:
            v, along = v + along, None


def _unit(v: Tensor) -> Tensor:
    size: Tensor = v.norm(dim=1, keepdim=True)
    return v / size.clamp_min(1e-30)


def over_distances(slopes: Slopes, states: Tensor, step: float) -> float:
    """Largest difference of slopes at distances of 1, 3 and 10 steps, over the distance."""
    v = signs(states)
    bent = torch.cat([hessian_products(slopes, states, v, step=k * step) for k in (1, 3, 10)])
    sizes = bent.norm(dim=1) / math.sqrt(states.shape[1])
    return float(sizes.nan_to_num(nan=4 / step**2, posinf=4 / step**2).max())


def first_scale(density: LogDensity, states: Tensor) -> Tensor:
    """1/√curvature of each coordinate at the starts; 1 where it is not positive, and not far more.

    A flat coordinate at the start may be a narrow one elsewhere: at most ten times 1 + |x|, and
    less where a scale away the energy bends more than STEEPER times as much (x⁴ near 0).
    """
    slopes = density.slopes(torch.ones_like(states[0]))
    bends = diagonal(slopes, states)
    bent = (bends > 0) & bends.isfinite()
    scale = torch.where(bent, bends.clamp_min(1e-30).rsqrt(), torch.ones_like(bends))
    scale = scale.minimum(10 * (1 + states.abs().amax(dim=0)))
    for _ in range(SHRINKS):
        steeper = steepening(slopes, states, scale)
        if not steeper > STEEPER:
            break
        scale = scale * steeper**-0.25  # of x⁴ + c·x², the scale at which both count
    return scale


def steepening(slopes: Slopes, states: Tensor, scale: Tensor) -> float:
    """Curvature over a distance of a scale as a multiple of that at the states, at least."""
    v = signs(states) * scale
    near, far = (hessian_products(slopes, states, v, step=step) for step in (None, 1.0))
    ratio = (far * scale).norm() / (near * scale).norm().clamp_min(1e-30)
    return float(ratio.nan_to_num(nan=1.0, posinf=1e8))
