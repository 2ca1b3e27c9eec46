r"""The variance that mini-batches give to gradients, in the direction in which it is largest.

A mini-batch of B rows, drawn with replacement, has the gradient N·ĝ of covariance V = N²/B·Cov(g),
g the gradient of a row. The heat of a direction v is α·vᵀVv/(2(1−μ)), so that no variance grows by
more than that of the largest eigenvalue λ of V; its largest diagonal may be less by a factor of the
number of parameters, where these are correlated.

The largest eigenvalue of n sampled gradients of d parameters is too high, on average by up to
(1+√(d/n))²; the variance of other gradients along its direction is too low. Each half of the
sample gives a direction u, and the variances along u in both halves; the estimate is the geometric
mean of the two. For gradients whose variances are alike but for one, it is right where that one is
just about seen, and for equal variances too high by at most 1+√(d/n), n of a half.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad, vmap

from entropy_mcmc.chains.log_density import LogDensity

SAMPLED = 2**12  # gradients, at most
NUMBERS = 2**22  # of all of them
EACH = 2  # rows of a gradient: of one row, squeeze() would take away its dimension
ITERATIONS = 30


def largest_variance(
    density: LogDensity, states: Tensor, scale: Tensor, batch_size: int, seed: int
) -> float:
    """λ of mini-batches of this size, mean over scaled states (state, element)."""
    each = min(EACH, batch_size)
    slopes = sampled(density, states, scale, each, seed)
    return float(top_variance(slopes)) * each / batch_size


def sampled(density: LogDensity, states: Tensor, scale: Tensor, each: int, seed: int) -> Tensor:
    """N·ĝ of few rows less their mean at the state, (state, sample, element)."""
    loss, generator = density.mean_loss(scale), torch.Generator().manual_seed(seed % 2**63)
    number = min(SAMPLED, NUMBERS // scale.numel()) // len(states) // 2 * 2
    size = (len(states), max(8, number), each)
    rows = torch.stack([evenly(density.num_data, size[:2], generator) for _ in range(each)], dim=2)
    density.count.rows += rows.numel()

    def on_rows(state: Tensor, chosen: Tensor) -> Tensor:
        return loss(state, *(part[chosen] for part in density.data))

    over_samples = vmap(grad(on_rows), in_dims=(None, 0))
    slopes: Tensor = vmap(over_samples)(states, rows.to(states.device)) * density.num_data
    return slopes - slopes.mean(dim=1, keepdim=True)


def evenly(rows: int, size: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Rows in random order, each of them as often as any other, or once more."""
    wanted = size[0] * size[1]
    orders = [torch.randperm(rows, generator=generator) for _ in range(-(-wanted // rows))]
    return torch.cat(orders)[:wanted].reshape(size)


def top_variance(slopes: Tensor) -> Tensor:
    """Largest eigenvalue of the covariance of samples (state, sample, element), mean over states.

    At least the largest variance of a coordinate.
    """
    count = slopes.shape[1]
    halves = [half.flatten(0, 1) * (count / (count - 1)) ** 0.5 for half in slopes.chunk(2, dim=1)]
    along = [top_direction(half) for half in halves]
    seen = [[(half @ v).square().mean() for half in halves] for v in along]
    estimates = [(one * other).sqrt() for one, other in seen]
    widest = torch.cat(halves).square().mean(dim=0).max()
    return torch.stack(estimates).mean().maximum(widest)


def top_direction(samples: Tensor) -> Tensor:
    """The direction in which samples (sample, element) vary most, by power iteration."""
    v = samples[samples.norm(dim=1).argmax()]
    for _ in range(ITERATIONS):
        v = v / v.norm().clamp_min(1e-30)
        v = samples.T @ (samples @ v)
    unit: Tensor = v / v.norm().clamp_min(1e-30)
    return unit
