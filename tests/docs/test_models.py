"""The models of docs/models.md have the posteriors that independent references have.

Eight schools: exact draws, τ from a quadrature on a fine grid, then μ and z from their Gaussians.
The others: importance sampling, in float64, from a Student t at the mode with the covariance of
Laplace's approximation. Densities are written once more here, from the formulas.

Every mean and every variance is compared in standard errors of chain (from its ESS) and reference;
the bound of 4.5 has a false-alarm rate of 7e-6 for each of 48; seeds are fixed.
"""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats
from scipy.optimize import minimize

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BOUND = 4.5
SIZE = 40_000  # draws of a reference
DEGREES = 5.0  # of freedom of the proposal


@pytest.fixture(scope="module")
def page():
    """Names that the code of the page defines."""
    names = {"__name__": "models"}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), names)
    return names


def importance_draws(log_density, size, seed=0):
    """Draws (draw, element) of exp(log_density) of rows, and their weights, which add up to 1."""

    def loss(x):
        x = torch.from_numpy(x).requires_grad_()
        value = -log_density(x[None])[0]
        (slope,) = torch.autograd.grad(value, x)
        return float(value.detach()), slope.numpy()

    mode = torch.from_numpy(minimize(loss, np.zeros(size), jac=True, method="BFGS").x)
    bent = torch.autograd.functional.hessian(lambda x: -log_density(x[None])[0], mode)
    factor = torch.linalg.cholesky(torch.linalg.inv(bent))
    g = torch.Generator().manual_seed(seed)
    normal = torch.randn(SIZE, size, generator=g, dtype=torch.float64)
    chi = torch.randn(SIZE, int(DEGREES), generator=g, dtype=torch.float64).square().sum(1)
    standard = normal * (DEGREES / chi).sqrt()[:, None]
    draws = mode + standard @ factor.T
    proposal = -(DEGREES + size) / 2 * torch.log1p(standard.square().sum(1) / DEGREES)
    weights = (torch.cat([log_density(part) for part in draws.split(4096)]) - proposal).softmax(0)
    assert float(1 / weights.square().sum()) > 0.3 * SIZE  # else the proposal does not fit
    return draws, weights


def normal(value, mean, sd):
    return -(((value - mean) / sd) ** 2) / 2 - torch.as_tensor(sd, dtype=torch.float64).log()


def linear(page):
    x, y = page["x"].double(), page["y"].double()

    def log_density(rows):
        w, b, sigma = rows[:, :3], rows[:, 3], rows[:, 4].exp()
        likelihood = normal(y, w @ x.T + b[:, None], sigma[:, None]).sum(1)
        prior = normal(w, 0, 10.0).sum(1) + normal(b, 0, 10.0) - sigma
        return likelihood + prior + rows[:, 4]

    rows, weights = importance_draws(log_density, 5)
    return {"w": rows[:, :3], "b": rows[:, 3], "sigma": rows[:, 4].exp()}, weights


def logistic(page):
    x, labels = page["x"].double(), page["labels"].double()

    def log_density(rows):
        logits = rows[:, :3] @ x.T + rows[:, 3:]
        likelihood = labels * logits - torch.logaddexp(logits, torch.zeros(()).double())
        return likelihood.sum(1) + normal(rows, 0, 3.0).sum(1)

    rows, weights = importance_draws(log_density, 4)
    return {"w": rows[:, :3], "b": rows[:, 3]}, weights


def mixed(page):
    heights = page["heights"].double()

    def parameters(rows):
        low, gap, sd = rows[:, 0], rows[:, 1].exp(), rows[:, 2:4].exp()
        return low, gap, sd, rows[:, 4].sigmoid()

    def log_density(rows):
        low, gap, sd, share = parameters(rows)
        first = share.log()[:, None] + normal(heights, low[:, None], sd[:, :1])
        second = (1 - share).log()[:, None] + normal(heights, (low + gap)[:, None], sd[:, 1:])
        prior = normal(low, 0, 5.0) - gap / 5 - sd.sum(1)
        jacobian = rows[:, 1:4].sum(1) + share.log() + (1 - share).log()
        return torch.logaddexp(first, second).sum(1) + prior + jacobian

    rows, weights = importance_draws(log_density, 5)
    return dict(zip(("low", "gap", "sd", "share"), parameters(rows), strict=True)), weights


def hierarchical(page):
    """Given τ, y_j ~ N(μ, s_j² + τ²) with μ ~ N(0, 25), and z_j is Gaussian given both."""
    y, s = page["effect"].double(), page["error"].double()
    g = torch.Generator().manual_seed(0)
    tau = torch.linspace(-12, 9, 20_001, dtype=torch.float64).exp()
    spread = s**2 + tau[:, None] ** 2
    variance = 1 / (1 / 25 + (1 / spread).sum(1))
    centre = variance * (y / spread).sum(1)
    fit = centre**2 / variance - (spread.log() + y**2 / spread).sum(1)
    log_p = (variance.log() + fit) / 2
    log_p = log_p - torch.log1p((tau / 5) ** 2) + tau.log()  # the grid is one of log τ
    at = torch.multinomial(log_p.softmax(0), SIZE, replacement=True, generator=g)

    def noise(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    tau, spread = tau[at], spread[at]
    mu = centre[at] + variance[at].sqrt() * noise(SIZE)
    mean = tau[:, None] * (y - mu[:, None]) / spread
    z = mean + s / spread.sqrt() * noise(SIZE, 8)
    return {"mu": mu, "tau": tau, "z": z}, torch.full((SIZE,), 1 / SIZE, dtype=torch.float64)


def z_score(chain, rows, weights):
    """Difference of a mean over draws (chain, draw) and one over rows, in standard errors."""
    centre = float(weights @ rows)
    variance = float(weights @ (rows - centre) ** 2)
    ess = float(array_stats.ess(chain.numpy(), chain_axis=0, draw_axis=1, method="mean"))
    of_reference = float(weights.square() @ (rows - centre) ** 2)
    return abs(float(chain.mean()) - centre) / math.sqrt(variance / ess + of_reference)


@pytest.mark.parametrize("reference", [linear, logistic, hierarchical, mixed])
def test_moments_are_those_of_the_reference(page, reference):
    parameters, weights = reference(page)
    draws = page[reference.__name__]
    assert set(draws.parameters) == set(parameters)
    for name, rows in parameters.items():
        chain = draws[name].double().reshape(4, -1, rows[0].numel())
        for i, column in enumerate(rows.reshape(SIZE, -1).T):
            centre = float(weights @ column)
            squares = (chain[..., i] - centre) ** 2, (column - centre) ** 2
            of_mean = z_score(chain[..., i], column, weights)
            of_variance = z_score(*squares, weights)
            assert of_mean < BOUND, f"mean of {name}[{i}]"
            assert of_variance < BOUND, f"variance of {name}[{i}]"


@pytest.mark.parametrize("name", ["linear", "logistic", "hierarchical", "mixed"])
def test_the_diagnosis_has_no_warning(page, name):
    assert page[name].diagnose().severity in ("ok", "note")
