"""Products, eigenvalues, trace and density against the dense Hessian."""

import numpy as np
import pytest
import torch
from torch import nn

from entropy_mcmc import flatness
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness.hessian import _signs


def test_products_equal_the_dense_hessian(problem, unchanged):
    dense = problem.hessian()
    unchanged(problem.model)
    eye = torch.eye(len(dense)).to(dense)
    loader = [(problem.x[:7], problem.y[:7]), (problem.x[7:], problem.y[7:])]
    for data in (problem.data, loader):
        got = flatness.hessian_products(problem.model, problem.loss, data, eye)
        torch.testing.assert_close(got, dense)


def test_products_work_without_autograd_around(plain):
    with torch.no_grad():
        got = flatness.hessian_products(plain.model, plain.loss, plain.data, plain.flat()[None])
    torch.testing.assert_close(got[0], plain.hessian() @ plain.flat())


def test_a_linear_loss_has_no_curvature(device):
    model = nn.Linear(2, 1).to(device)
    data = torch.ones(3, 2), torch.ones(3)
    ones = torch.ones(1, 3, device=device)
    assert not flatness.hessian_products(model, lambda out, y: out.mean(), data, ones).any()


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("LA", lambda v: v[-3:][::-1]),
        ("SA", lambda v: v[:3][::-1]),
        ("LM", lambda v: np.sort(v[np.argsort(-abs(v))[:3]])[::-1]),
    ],
)
def test_eigenvalues_equal_the_dense_ones(problem, which, expected, unchanged):
    dense = np.linalg.eigvalsh(problem.hessian().cpu().numpy())
    unchanged(problem.model)
    got = flatness.top_eigenvalues(
        problem.model, problem.loss, problem.data, 3, which=which, tolerance=1e-10
    )
    np.testing.assert_allclose(got, expected(dense), atol=1e-9)


def test_too_many_eigenvalues_are_refused(plain):
    with pytest.raises(ConfigError, match="k=31"):
        flatness.top_eigenvalues(plain.model, plain.loss, plain.data, 31)


def test_trace_is_within_its_error_and_the_error_is_the_theoretical_one(problem, unchanged):
    dense = problem.hessian()
    unchanged(problem.model)
    got = flatness.hessian_trace(problem.model, problem.loss, problem.data, probes=2000, seed=0)
    # Seed 0. Four standard errors: false alarm 6e-5.
    assert abs(got.value - float(dense.trace())) < 4 * got.standard_error
    # Signs: Var vᵀHv = 2·Σ_{i≠j} H_ij². Sample deviation of 2000 draws: 3.5 % typical.
    off = dense - torch.diag(dense.diag())
    exact = float((2 * off.square().sum()).sqrt()) / 2000**0.5
    assert got.standard_error == pytest.approx(exact, rel=0.15)


def test_trace_of_a_diagonal_hessian_is_exact(device):
    model = nn.Linear(3, 1, bias=False).to(device)
    data = torch.eye(3), torch.zeros(3, 1)
    got = flatness.hessian_trace(model, nn.functional.mse_loss, data, probes=2)
    assert got.value == pytest.approx(2.0)
    assert got.standard_error == pytest.approx(0.0, abs=1e-6)


def test_lanczos_recovers_a_known_spectrum():
    torch.manual_seed(0)
    values = torch.cat([torch.linspace(-1, 2, 37), torch.tensor([10.0, 50.0, 1000.0])]).double()
    q = torch.linalg.qr(torch.randn(40, 40, dtype=torch.float64)).Q
    matrix = q @ torch.diag(values) @ q.T
    start = torch.randn(40, dtype=torch.float64)
    diagonal, off = flatness.lanczos(lambda v: matrix @ v, start, 60)
    tri = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
    np.testing.assert_allclose(np.linalg.eigvalsh(tri), values.numpy(), atol=1e-8)


def test_lanczos_stops_when_the_space_is_exhausted():
    values = torch.tensor([1.0, 1.0, 3.0, 3.0], dtype=torch.float64)
    diagonal, off = flatness.lanczos(lambda v: values * v, torch.ones(4).double(), 4)
    assert (len(diagonal), len(off)) == (2, 1)
    tri = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
    np.testing.assert_allclose(np.linalg.eigvalsh(tri), [1.0, 3.0])


def smoothed(values, grid, width):
    bumps = np.exp(-0.5 * ((grid[:, None] - values) / width) ** 2)
    return bumps.mean(1) / (width * np.sqrt(2 * np.pi))


def test_density_equals_the_dense_one(problem, unchanged):
    dense = np.linalg.eigvalsh(problem.hessian().cpu().numpy())
    unchanged(problem.model)
    width, probes = 0.05, 20
    grid = np.linspace(dense.min() - 0.2, dense.max() + 0.2, 50)
    args = (problem.model, problem.loss, problem.data)
    got = flatness.spectral_density(*args, probes=probes, steps=40, grid=grid, width=width, seed=1)
    # Exactly the quadratic forms of its probes, since steps ≥ d …
    matrices = smoothed_matrices(problem.hessian().cpu().numpy(), grid, width)
    v = _signs(problem.model, probes, seed=1).cpu().numpy()
    expected = np.einsum("pi,gij,pj->g", v, matrices, v) / (probes * len(dense))
    np.testing.assert_allclose(got.density, expected, atol=1e-8)
    # … and the dense density within the error of probing: the variance of vᵀf(H)v/d over signs
    # is 2·Σ_{i≠j} f(H)_ij²/d². Seed 1; 5 errors at 50 points: false alarm below 3e-5.
    off = matrices * (1 - np.eye(len(dense)))
    errors = np.sqrt(2 * (off**2).sum((1, 2)) / probes) / len(dense)
    assert (abs(got.density - smoothed(dense, grid, width)) <= 5 * errors + 1e-9).all()
    assert got.weights.sum() == pytest.approx(1.0)


def smoothed_matrices(matrix, grid, width):
    values, vectors = np.linalg.eigh(matrix)
    bumps = np.exp(-0.5 * ((grid[:, None] - values) / width) ** 2) / (width * np.sqrt(2 * np.pi))
    return np.einsum("ik,gk,jk->gij", vectors, bumps, vectors)


def test_density_moments_are_those_of_the_probes(plain):
    args = (plain.model, plain.loss, plain.data)
    d = plain.flat().numel()
    density = flatness.spectral_density(*args, probes=6, steps=5, seed=3)
    trace = flatness.hessian_trace(*args, probes=6, seed=3)
    # Same seed, same signs: the first moment is Hutchinson's trace, whatever the steps.
    assert density.moment(1) * d == pytest.approx(trace.value)
    area = np.trapezoid(density.density, density.grid)
    assert area == pytest.approx(1.0, abs=1e-3)


def test_seeds_repeat_and_differ(plain):
    args = (plain.model, plain.loss, plain.data)
    first, again, other = (flatness.hessian_trace(*args, probes=4, seed=s) for s in (0, 0, 1))
    assert first == again
    assert first != other
