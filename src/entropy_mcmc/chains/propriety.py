"""Improper densities: parameters that the log density leaves free, and chains that run away.

A density that is constant along a whole line through a start, for starts with a continuous
distribution, has no finite integral. In unconstrained coordinates the line is endless for every
parameter, unless θ is between two bounds and p(θ) itself is constant: that is a uniform density.
"""

from __future__ import annotations

import torch
from torch import Tensor

from entropy_mcmc.chains.log_density import LogDensity
from entropy_mcmc.errors import ConfigError

REACH = tuple(10.0**k for k in range(8))  # distances from a start at which slopes are looked at
GROWTH = 1e4  # of a scale in the warm-up from which on its confinement is looked at
CONFINED = 0.01  # E[(x − E x)·∂U/∂x], which is 1 for draws of exp(−U), and 0 without confinement


def check_dependence(density: LogDensity, states: Tensor) -> None:
    """Refuse a parameter on which the log density does not depend, at any start or far from it."""
    for index in _flat(density, states).nonzero().flatten().tolist():
        along = torch.zeros_like(states[0])
        along[index] = 1.0
        distances = 1 + states[:, index].abs()
        probes = [states + sign * r * distances[:, None] * along for r in REACH for sign in (1, -1)]
        if bool(_flat(density, torch.cat(probes))[index]):
            name = density.layout.labels()[index]
            raise ConfigError(
                f"log_density must depend on every parameter in init, got a gradient of 0 for "
                f"{name} at all starts and up to 1e7 away from them: an improper density; leave "
                f"{name} out of init, or give it a log_prior (what rounds or compares has no "
                f"gradient)"
            )


def _flat(density: LogDensity, states: Tensor) -> Tensor:
    """Which elements have no slope at any of these states."""
    energy = density.slopes(torch.ones_like(states[0]))(states)
    own = density.own_slopes()(states)
    # A slope that cancels that of the Jacobian, as of 1/s, does so to rounding.
    flat = (energy.abs() <= 1e-6 * own.abs()) | ~energy.isfinite()
    still = ((own == 0) | ~own.isfinite()).all(dim=0)
    return flat.all(dim=0) | (still & ~_bounded(density).to(states.device))


def _bounded(density: LogDensity) -> Tensor:
    """Which elements are between two bounds."""
    pairs = zip(density.names, density.layout.shapes, strict=True)
    each = [[density.transform(name).bounded] * shape.numel() for name, shape in pairs]
    return torch.tensor([bounded for one in each for bounded in one])


def check_confined(density: LogDensity, states: Tensor, scale: Tensor, first: Tensor) -> None:
    """Refuse chains that the energy does not hold: scales grew, and slopes do not grow with them.

    For a wide but proper posterior E[(x − E x)·∂U/∂x] = 1, by integration by parts.
    """
    grown = scale > GROWTH * first
    if not bool(grown.any()):
        return
    slopes = density.slopes(torch.ones_like(scale))(states)
    held = ((states - states.mean(dim=0)) * (slopes - slopes.mean(dim=0))).mean(dim=0)
    lost = (grown & ~(held > CONFINED)).nonzero().flatten()
    if len(lost):
        name, width = density.layout.labels()[int(lost[0])], float(scale[lost[0]])
        raise ConfigError(
            f"the density must be proper, got draws of {name} that spread over {width:.3g} in the "
            f"warm-up and still are not held back; look whether log_density has the right sign (it "
            f"is minus a loss), and give {name} a log_prior"
        )
