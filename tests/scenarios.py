"""Targets whose distribution is known in closed form, and the algebra that gives it.

On a quadratic energy every sampler is a linear map z ← Mz + Bξ, ξ ~ N(0, I). `linear_map` reads M
and B off a naive step by probing it with unit vectors; the covariance after K steps and the
stationary one follow from Σ ← MΣMᵀ + BBᵀ, at the step size used, never from its limit.
"""

import math

import numpy as np
import torch


def linear_map(naive_step, variables, curvature, noises):
    """M and B of a naive step on the mean loss ½·curvature·θ², one coordinate.

    `naive_step(state, grad, eps)` takes and returns a dict of numbers; `eps(i)` is the i-th noise.
    """

    def apply(z, xi):
        state = dict(zip(variables, z, strict=True))
        new = naive_step(state, lambda theta: curvature * theta, lambda i: xi[i])
        return np.array([float(new[name]) for name in variables])

    zero, none = np.zeros(len(variables)), np.zeros(noises)
    M = np.stack([apply(e, none) for e in np.eye(len(variables))], axis=1)
    B = np.stack([apply(zero, e) for e in np.eye(noises)], axis=1)
    return M, B


def covariance_after(M, B, steps, start=None):
    """Covariance after a number of steps from the origin, or from a start with its own."""
    sigma = np.zeros_like(M) if start is None else start
    for _ in range(steps):
        sigma = M @ sigma @ M.T + B @ B.T
    return sigma


def stationary_covariance(M, B):
    """Solution of Σ = MΣMᵀ + BBᵀ."""
    n = len(M)
    return np.linalg.solve(np.eye(n * n) - np.kron(M, M), (B @ B.T).ravel()).reshape(n, n)


def covariance_z(samples, sigma):
    """z-scores of the empirical second moments of rows of `samples` (mean known to be zero).

    The standard error of E[xy] over n draws is √((Σxx·Σyy + Σxy²)/n).
    """
    n = samples.shape[1]
    actual = samples @ samples.T / n
    error = np.sqrt((np.outer(np.diag(sigma), np.diag(sigma)) + sigma**2) / n)
    return (actual - sigma) / error


# The paper's two-mode landscape ½N([−2,−1], 0.5 I) + ½N([2,1], I); 0.5 is a variance.
SHARP, FLAT = torch.tensor([-2.0, -1.0]), torch.tensor([2.0, 1.0])
SHARP_VARIANCE, FLAT_VARIANCE = 0.5, 1.0


def mixture_gradient(x):
    """Gradient of −log density for rows x of shape (chains, 2)."""
    sharp, flat = x - SHARP.to(x), x - FLAT.to(x)
    logits = torch.stack(
        [
            -sharp.square().sum(1) / (2 * SHARP_VARIANCE) - math.log(SHARP_VARIANCE),
            -flat.square().sum(1) / (2 * FLAT_VARIANCE) - math.log(FLAT_VARIANCE),
        ]
    )
    w = logits.softmax(0)[:, :, None]
    return w[0] * sharp / SHARP_VARIANCE + w[1] * flat / FLAT_VARIANCE


def draw_mixture(n, generator):
    """Exact draws from the mixture."""
    flat = torch.rand(n, 1, generator=generator) < 0.5
    z = torch.randn(n, 2, generator=generator)
    return torch.where(flat, FLAT + z * FLAT_VARIANCE**0.5, SHARP + z * SHARP_VARIANCE**0.5)


def nearer_flat(x):
    """Fraction of rows nearer to the flat mode."""
    return ((x - FLAT.to(x)).norm(dim=1) < (x - SHARP.to(x)).norm(dim=1)).float().mean().item()
