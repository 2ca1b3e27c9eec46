"""SAM sharpness and local entropy against closed forms."""

import math

import pytest
import torch
from torch import nn

from entropy_mcmc import flatness
from entropy_mcmc.errors import ConfigError


def half_square(output, target):
    return (output - target).square().mean() / 2


def linear_model(weights, device):
    model = nn.Linear(len(weights), 1, bias=False).to(device, torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([weights]))
    return model


def test_first_order_point_is_sams(problem, unchanged):
    unchanged(problem.model)
    got = flatness.sam_sharpness(problem.model, problem.loss, problem.data, rho=0.3, steps=5)
    flat = problem.flat().requires_grad_()
    gradient = torch.autograd.grad(problem.flat_loss(flat), flat)[0]
    moved = problem.flat() + 0.3 * gradient / gradient.norm()
    base = float(problem.flat_loss(problem.flat()))
    assert got.loss == pytest.approx(base)
    assert got.first_order == pytest.approx(float(problem.flat_loss(moved)) - base)
    assert got.ascent >= got.first_order


def test_ascent_finds_the_maximum_of_a_quadratic(device):
    # L = ½(4a² + b²)/2·…: two samples 2·e1 and e2 give Hessian diag(4, 1)/2.
    x = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    data = x, torch.zeros(2, 1, dtype=torch.float64)
    model = linear_model([1e-3, 1e-3], device)
    got = flatness.sam_sharpness(model, half_square, data, rho=1.0, steps=40)
    angles = torch.linspace(0, 2 * math.pi, 100_001, dtype=torch.float64)
    a, b = 1e-3 + angles.cos(), 1e-3 + angles.sin()
    best = float(((4 * a**2 + b**2) / 4).max()) - (4 + 1) / 4 * 1e-6
    assert got.ascent == pytest.approx(best, rel=1e-6)
    assert got.first_order < got.ascent


def test_no_direction_at_a_minimum(device):
    model = linear_model([0.0, 0.0], device)
    data = torch.eye(2).double(), torch.zeros(2, 1).double()
    got = flatness.sam_sharpness(model, half_square, data)
    assert (got.first_order, got.ascent) == (0.0, 0.0)


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_local_entropy_equals_the_closed_form_of_a_quadratic(device, temperature, decay, unchanged):
    eta, n = 0.4, 2
    x = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    data = x, torch.zeros(2, 1, dtype=torch.float64)
    point = [0.3, -0.5]
    model = linear_model(point, device)
    unchanged(model)
    got = flatness.local_entropy(
        model,
        half_square,
        data,
        num_data=n,
        eta=eta,
        temperature=temperature,
        weight_decay=decay,
        samples=4000,
        seed=0,
    )
    # U = ½Σ h_i θ_i², h = (4, 1) + Nλ. Completing the square, per coordinate:
    # ½log(2πT/(h+1/η)) − ½·h/(1+ηh)·θ²/T.
    expected = sum(
        math.log(2 * math.pi * temperature / (h + 1 / eta)) / 2
        - h / (1 + eta * h) * t**2 / (2 * temperature)
        for h, t in zip((4 + n * decay, 1 + n * decay), point, strict=True)
    )
    # Seed 0. Four standard errors: false alarm 6e-5 for each of the four cases.
    assert abs(got.value - expected) < 4 * got.standard_error
    assert got.standard_error < 0.03
    assert 1000 < got.effective < 4000


def test_bad_numbers_are_refused(plain):
    args = (plain.model, plain.loss, plain.data)
    with pytest.raises(ConfigError, match="rho=0"):
        flatness.sam_sharpness(*args, rho=0)
    with pytest.raises(ConfigError, match="eta=-1"):
        flatness.local_entropy(*args, num_data=20, eta=-1)
