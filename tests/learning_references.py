"""Losses with known learning coefficients, and their values at finite n without sampling."""

import math

import numpy as np
import torch
from torch import nn

from entropy_mcmc import flatness
from entropy_mcmc.flatness.learning_coefficient import estimate


class Population(nn.Module):
    """A model whose output is its population loss: the data only give n.

    `copies` independent copies of the weights share the loss as a sum, so that one chain is many
    and learning coefficients add up.
    """

    def __init__(self, loss, copies, size):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(copies, size, dtype=torch.float64))
        self.loss = loss

    def forward(self, x):
        return self.loss(self.w).sum().expand(len(x))


def mean(output, target):
    return output.mean()


def rows(n):
    """Data of n rows, which the population losses do not look at."""
    return torch.zeros(n, 1, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)


def half_square(output, target):
    return (output - target).square().sum(1).mean() / 2


def of_population(loss, copies, size, n, **options):
    """λ̂ per copy, and the whole estimate."""
    sampling = flatness.LocalSampling(num_data=n, batch_size=None, **options)
    coefficient = estimate(Population(loss, copies, size), mean, rows(1), sampling)
    return coefficient.value / copies, coefficient


def normal_crossing(exponents):
    """∏ w_j^{2k_j} of each copy."""
    powers = torch.tensor(exponents)
    return lambda w: (w ** (2 * powers)).prod(1)


def crossing_by_quadrature(exponents, weight, gamma):
    """Mean and deviation of nβ∏ w_j^{2k_j} in two dimensions, on a grid of log |w_j|.

    `weight` is nβ; the density is exp(−nβ∏ w_j^{2k_j} − ½γ‖w‖²).
    """
    log_w = np.linspace(-40, math.log(12 / math.sqrt(gamma)), 2001)
    one, two = np.meshgrid(log_w, log_w, indexing="ij")
    energy = weight * np.exp(2 * exponents[0] * one + 2 * exponents[1] * two)
    prior = gamma / 2 * (np.exp(2 * one) + np.exp(2 * two))
    mass = np.exp(-energy - prior + one + two)  # dw = w dlog w
    return _moments(mass, energy)


def _moments(mass, mean, variance=0.0):
    """Mean and deviation of a number with these conditional means and variances."""
    mass = mass / mass.sum()
    first = float((mass * mean).sum())
    return first, math.sqrt((mass * (variance + (mean - first) ** 2)).sum())


def linear_network(a0, b0):
    """½‖BA − B*A*‖² of each copy around (A*, B*): a two-layer linear network on white inputs."""

    def loss(w):
        a = a0 + w[:, : a0.numel()].view(-1, *a0.shape)
        b = b0 + w[:, a0.numel() :].view(-1, *b0.shape)
        return (b @ a - b0 @ a0).square().sum((1, 2)) / 2

    return loss


def pair_by_quadrature(inputs, outputs, weight, gamma):
    """Mean and deviation of nβ½‖BA‖² for 2 hidden units and at least 2 outputs.

    Given B, the weights A are Gaussian: integrating them out leaves ∏(aμ_i + γ)^(−M/2) over the two
    eigenvalues μ of BᵀB, whose density under the localisation is that of a Wishart matrix.
    """
    log_mu = np.linspace(-40, math.log(150 / gamma), 2001)
    one, two = np.meshgrid(np.exp(log_mu), np.exp(log_mu), indexing="ij")
    powers = (outputs - 2 - 1) / 2
    log_mass = (powers + 1) * np.log(one * two) - gamma / 2 * (one + two)
    log_mass -= inputs / 2 * np.log((weight * one + gamma) * (weight * two + gamma))
    mass = np.exp(log_mass - log_mass.max()) * abs(one - two)
    first, second = weight * one / (weight * one + gamma), weight * two / (weight * two + gamma)
    return _moments(mass, inputs / 2 * (first + second), inputs / 2 * (first**2 + second**2))


def linear_network_by_gibbs(truth, weight, gamma, *, chains, steps, seed):
    """Mean of nβ½‖BA − B*A*‖², its standard error and its deviation, by exact Gibbs moves.

    `truth` is (A*, B*), the centre of the localisation. Given B, the columns of A are independent
    Gaussians of precision aBᵀB + γ; given A, so are the rows of B. No step size enters.
    """
    draw = torch.Generator().manual_seed(seed)
    a0, b0 = (t.expand(chains, *t.shape) for t in truth)
    a, b, goal, means = a0, b0, b0 @ a0, []
    eye = torch.eye(a0.shape[1], dtype=torch.float64)

    def given(design, response, centre):
        precision = weight * design.mT @ design + gamma * eye
        factor = torch.linalg.cholesky(precision)
        middle = torch.cholesky_solve(weight * design.mT @ response + gamma * centre, factor)
        noise = torch.randn(centre.shape, dtype=torch.float64, generator=draw)
        return middle + torch.linalg.solve_triangular(factor.mT, noise, upper=True)

    for step in range(steps):
        a = given(b, goal, a0)
        b = given(a.mT, goal.mT, b0.mT).mT
        if step >= steps // 2:
            means.append(weight * (b @ a - goal).square().sum((1, 2)) / 2)
    kept = torch.stack(means)
    own = kept.mean(0)
    return float(own.mean()), float(own.std() / math.sqrt(chains)), float(kept.std())
