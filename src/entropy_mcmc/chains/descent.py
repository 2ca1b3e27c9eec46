"""Starts from which a step of the first scale would leap: brought nearer by a safe descent.

Where the energy grows faster than its curvature at the start says (a log link: exp(w·x)), the first
steps of the warm-up would overshoot to where it is steeper still, and diverge.
"""

from __future__ import annotations

import torch
from torch import Tensor

from entropy_mcmc.chains.log_density import LogDensity

NEAR = 10.0  # |∇U|² of a coordinate, in units of its scale; 1 on average over a posterior
STEPS = 64
HALVINGS = 64  # in a step, at most
ENOUGH = 0.1  # of the fall that a slope promises


@torch.no_grad()
def descended(
    density: LogDensity, states: Tensor, scale: Tensor, rows: tuple[Tensor, ...] | None
) -> Tensor:
    """States from which a full step along the scaled gradient lowers the energy, or near to a mode.

    The given ones where they are such; they are not brought nearer than they need be.
    """
    slopes, energies = density.slopes(scale, rows), density.energies(scale, rows)
    z, length = states / scale, torch.ones_like(states[:, 0])
    now, near = energies(z), NEAR * scale.numel()
    for _ in range(STEPS):
        slope = slopes(z)
        square = slope.square().sum(dim=1)
        far = (square > near) & ~(energies(z - slope) < now)
        if not bool(far.any()):
            break
        for _ in range(HALVINGS):
            moved = z - length[:, None] * slope
            then = energies(moved)
            falls = then < now - ENOUGH * length * square
            if bool((falls | ~far).all()):
                break
            length = torch.where(falls, length, length / 2)
        falls &= far
        z, now = torch.where(falls[:, None], moved, z), torch.where(falls, then, now)
        length = torch.where(falls, 2 * length, length).clamp(max=1.0)
    return torch.where(z == states / scale, states, z * scale)
