"""HMC, the reference of the regressions: exact on Gaussians, its gradient and noise as derived."""

import math

import pytest
import torch
from scipy import stats

from entropy_mcmc.sklearn.networks import Architecture
from entropy_mcmc_reproduction import regression_hmc as hmc
from entropy_mcmc_reproduction.regression_data import Splits

CHAINS = 4000


def test_a_gaussian_is_left_exactly_as_it_is():
    """Even with so large a step that a fifth of the proposals fails, one step keeps the variance.

    4,000 chains start from the target: each of two variances is known to 2.2 %, so that 4.5
    standard errors are 10 %. False alarm 1.4e-5.
    """
    generator = torch.Generator().manual_seed(1)
    curvatures = torch.tensor([1.0, 25.0], dtype=torch.float64)

    def energy(theta):
        return (curvatures * theta.square()).sum(1) / 2, curvatures * theta

    theta = torch.randn(CHAINS, 2, generator=generator, dtype=torch.float64) / curvatures.sqrt()
    step = torch.full((CHAINS,), 0.3, dtype=torch.float64)
    accepted = []
    for _ in range(20):
        theta, chance = hmc.hmc_step(energy, theta, step, 5, generator)
        accepted.append(chance.mean())
    assert 0.6 < torch.stack(accepted).mean() < 0.95
    ratio = theta.square().mean(0) * curvatures
    assert ratio.tolist() == pytest.approx([1, 1], abs=4.5 * math.sqrt(2 / CHAINS))


@pytest.fixture
def posterior():
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(1, 7, 3, generator=generator), torch.randn(1, 7, generator=generator)
    splits = Splits(x, y, x, y, torch.ones(1))
    form, owner = Architecture((3, 4, 1), "relu"), torch.zeros(2, dtype=torch.long)
    return hmc.Posterior(form, splits, owner, torch.tensor([0.5, 2.0], dtype=torch.float64))


def test_energy_is_the_equation_and_its_slope_that_of_autograd(posterior):
    posterior.noise = torch.tensor([0.3, 1.7], dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    flat = torch.randn(2, posterior.form.weights, generator=generator, dtype=torch.float64)
    energies, slopes = posterior.energy(flat)
    for k in range(2):
        w = flat[k].clone().requires_grad_()
        w1, b1, w2, b2 = w.split([12, 4, 4, 1])
        hidden = torch.relu(posterior.x[k] @ w1.view(4, 3).T / math.sqrt(3) + b1)
        output = hidden @ w2 * math.sqrt(2) / math.sqrt(4) + b2
        squares = (output - posterior.y[k, 0]).square().sum()
        energy = squares / (2 * posterior.noise[k]) + w.square().sum() / (
            2 * posterior.variances[k]
        )
        assert float(energies[k]) == pytest.approx(energy.item(), rel=1e-12)
        (slope,) = torch.autograd.grad(energy, w)
        assert torch.allclose(slopes[k], slope, rtol=1e-10)


def test_noise_is_drawn_from_its_inverse_gamma(posterior):
    """Kolmogorov and Smirnov on 2,000 draws; false alarm 1e-4."""
    flat = torch.zeros(2, posterior.form.weights, dtype=torch.float64)
    generator = torch.Generator().manual_seed(4)
    draws = []
    for _ in range(1000):
        posterior.draw_noise(flat, generator)
        draws += posterior.noise.tolist()
    squares = float(posterior.y[0].square().sum())  # a network of zeros predicts zero
    known = stats.invgamma(7 / 2, scale=squares / 2)
    assert stats.kstest(draws, known.cdf).pvalue > 1e-4
