"""The update rule of a sampler with its coefficients, for chains that never change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc.samplers import SGHMC, SGLD, EntropyMCMC, Sampler
from entropy_mcmc.samplers.engine import Rule
from entropy_mcmc.samplers.entropy_mcmc import choose_rule
from entropy_mcmc.samplers.scales import scales
from entropy_mcmc.samplers.sghmc import hamiltonian
from entropy_mcmc.samplers.sgld import langevin

SAMPLERS: dict[str, type[Sampler]] = {"emcmc": EntropyMCMC, "sgld": SGLD, "sghmc": SGHMC}


@dataclass(frozen=True)
class Method:
    """An update rule with its coefficients, and how many normals per element it takes."""

    rule: Rule
    coefficients: tuple[float, ...]
    normals: int  # 0, 1 or 2
    seed: int


def method_of(sampler: str, settings: dict[str, Any]) -> Method:
    """Rule and coefficients, after the checks of the optimizer of the same name."""
    optimizer: Any = SAMPLERS[sampler]
    group = optimizer([nn.Parameter(torch.zeros(1))], **settings).param_groups[0]
    s = scales(group)
    if sampler == "emcmc":
        (rule, coefficients), normals = choose_rule(group), 2
    elif sampler == "sgld":
        rule, coefficients, normals = langevin, (s.lr, s.decay, s.noise), 1
    else:
        coefficients = (s.lr, s.decay, s.noise, group["momentum"])
        rule, normals = hamiltonian, 1
    return Method(rule, coefficients, normals if s.noise > 0 else 0, group["seed"])


def first_state(sampler: str, settings: dict[str, Any], flat: Tensor) -> list[Tensor]:
    """θ of all chains and what the sampler keeps beside it, before the first step."""
    if sampler == "sgld":
        return [flat]
    if sampler == "sghmc":
        return [flat, torch.zeros_like(flat)]
    velocities = 2 if settings.get("momentum") else 0
    return [flat, flat.clone(), *(torch.zeros_like(flat) for _ in range(velocities))]
