"""Stiff directions: θ stands still, θ_a alone relaxes, half as fast as in flat ones."""

import pytest
import torch

from entropy_mcmc import EntropyMCMC
from entropy_mcmc.diagnostics import Thermometer
from entropy_mcmc.diagnostics.temperature_verdict import judge

LR, ETA, SIZE = 0.02, 1.0, 200_000


def read(curvature, temperature, steps):
    """A reading after `steps` from θ = θ_a, on a quadratic of this curvature with N = 1."""
    p = torch.nn.Parameter(torch.zeros(SIZE))
    sampler = EntropyMCMC([p], lr=LR, num_data=1, eta=ETA, temperature=temperature, seed=3)
    thermometer = Thermometer(sampler)
    for _ in range(steps):
        p.grad = curvature * p.detach()
        sampler.step()
        thermometer.step()
    return thermometer.read()


@pytest.mark.parametrize("curvature", [0.0, 20.0])
def test_a_chain_at_its_temperature_is_not_called_cold(curvature):
    """The first readings, at Σ 2·lr/(ηN) = 3: stiff ones lack e^{-3} of T, 16 standard errors.

    False alarm of one reading: 5e-4 (3.5 standard errors).
    """
    reading = read(curvature, 1.0, 76)
    assert reading.lag == pytest.approx(0.0478, abs=1e-3)
    assert judge([reading]).kind == "right"
    if curvature:
        assert reading.ratio < 1 - 10 * reading.error  # it is low, and known to be


def test_a_cold_chain_is_still_found():
    """A tenth less than claimed, twice the lag."""
    reading = read(0.0, 0.9, 76)
    claimed = type(reading)(
        **{**vars(reading), "temperature": 1.0, "expected": reading.expected / 0.9}
    )
    assert judge([claimed]).kind == "cold"
