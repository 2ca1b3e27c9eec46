"""Preconditioned SGLD: exact once its preconditioner is frozen, the same in chains."""

import numpy as np
import pytest
import torch

from entropy_mcmc import PSGLD, chains
from scenarios import covariance_z, stationary_covariance

A = torch.tensor([[12.0, 5.0], [5.0, 4.0]])  # Hessian of the energy, N times the mean loss's
N, LR, T = 10, 0.1, 0.5
COPIES = 20_000


def mean_loss_gradient(theta):
    return theta @ (A / N)


def adapted(steps):
    """A chain of many copies whose preconditioner saw `steps` gradients and is then frozen."""
    start = torch.tensor([1.0, -2.0]).expand(COPIES, 2).clone()
    param = torch.nn.Parameter(start)
    hyper = {"num_data": N, "temperature": T, "smoothing": 0.9, "epsilon": 0.1}
    sampler = PSGLD([param], lr=LR, freeze_after=steps, seed=3, **hyper)
    for _ in range(steps):
        sampler.param_groups[0]["noise"] = False  # all copies see the same gradients
        param.grad = mean_loss_gradient(param.detach())
        sampler.step()
    sampler.param_groups[0]["noise"] = True
    return param, sampler


def test_frozen_it_has_the_covariance_of_its_preconditioner():
    """T[A − αAGA/2]⁻¹ with G of the two coordinates as they were adapted.

    Three z-scores below 4.5: false alarm 2e-5. The same G in both coordinates would miss by far.
    """
    param, sampler = adapted(20)
    square = sampler.state[param]["square"].clone()
    for _ in range(300):
        param.grad = mean_loss_gradient(param.detach())
        sampler.step()
    assert torch.equal(sampler.state[param]["square"], square)
    assert torch.equal(square, square[:1].expand_as(square))
    G = torch.diag(1 / (0.1 + square[0].sqrt())).double().numpy()
    assert not 0.8 < G[0, 0] / G[1, 1] < 1.25
    alpha, H = LR / N, A.double().numpy()
    M, B = np.eye(2) - alpha * G @ H, np.sqrt(2 * alpha * T * G)
    closed = T * np.linalg.inv(H - alpha * H @ G @ H / 2)
    np.testing.assert_allclose(stationary_covariance(M, B), closed, rtol=1e-6)
    z = covariance_z(param.detach().double().numpy().T, closed)
    assert np.abs(z).max() < 4.5, z


def test_it_adapts_until_it_is_frozen():
    param, sampler = adapted(2)
    first = mean_loss_gradient(torch.tensor([1.0, -2.0])) ** 2 * 0.1
    second = sampler.state[param]["square"][0]
    assert bool((second > 0.9 * first).all())
    assert sampler.update(sampler.param_groups[0]).coefficients.keep == 1.0
    sampler.param_groups[0]["step"] = 1
    assert sampler.update(sampler.param_groups[0]).coefficients.keep == 0.9


@pytest.mark.parametrize("freeze_after", [0, 7, 16, 25, 1000])
def test_a_chain_is_the_chain_of_the_optimizer(freeze_after):
    """Also where the preconditioner freezes in the middle of a call of 16 steps."""
    hyper = {"num_data": N, "temperature": T, "epsilon": 0.1, "freeze_after": freeze_after}
    energy = lambda theta: (theta @ A @ theta) / (2 * N)  # noqa: E731
    start = torch.tensor([1.0, -2.0])
    draws = chains.run(energy, start, steps=40, lr=LR, sampler="psgld", chains=1, seed=5, **hyper)
    param = torch.nn.Parameter(start.clone())
    sampler = PSGLD([param], lr=LR, seed=5, **hyper)
    states = []
    for _ in range(40):
        param.grad = mean_loss_gradient(param.detach())
        sampler.step()
        states.append(param.detach().clone())
    torch.testing.assert_close(draws.theta[0], torch.stack(states), rtol=1e-4, atol=1e-5)
    assert draws.guide is None


@pytest.mark.soak
def test_compiled_chains_freeze_at_the_same_step():
    hyper = {"num_data": N, "temperature": T, "epsilon": 0.1, "freeze_after": 25}
    energy = lambda theta: (theta @ A @ theta) / (2 * N)  # noqa: E731
    start = torch.tensor([1.0, -2.0]).expand(3, 2)
    given = {"steps": 64, "lr": LR, "sampler": "psgld", "seed": 5, **hyper}
    eager, compiled = (chains.run(energy, start, compile=c, **given) for c in (False, True))
    torch.testing.assert_close(eager.theta, compiled.theta, rtol=1e-4, atol=1e-4)
