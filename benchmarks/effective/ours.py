"""Samplers, rules and integrators of this library, each with the step sizes that are tried."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from effective.measure import Place, Run
from effective.targets import Target
from entropy_mcmc import chains

# θ of EMCMC's collapsed guide is SGLD, SGHMC, "lm" or "baoab", number for number: no rows here.
METHODS: dict[str, dict[str, Any]] = {
    "SGLD": {"sampler": "sgld"},
    "SGLD lm": {"sampler": "sgld", "integrator": "lm"},
    "PSGLD": {"sampler": "psgld"},
    "SGHMC": {"sampler": "sghmc", "momentum": "matched"},
    "SGHMC baoab": {"sampler": "sghmc", "integrator": "baoab", "momentum": "matched"},
    "EMCMC": {},
    "EMCMC exact": {"guide_update": "exact"},
    "EMCMC gibbs": {"guide_update": "gibbs"},
    "EMCMC momentum": {"momentum": "matched"},
    "EMCMC lm": {"integrator": "lm"},
    "EMCMC baoab": {"integrator": "baoab", "momentum": "matched"},
}
ACCURATE = ("lm", "baoab")  # integrators without bias on a Gaussian: they begin with larger steps


def first_step(method: str, target: Target) -> float:
    """αh of the stiffest direction that is tried first."""
    if "momentum" in METHODS[method] and target.noisy:
        return 0.05  # the noise of mini-batches acts 1/(1−μ) times
    if method.endswith(ACCURATE):
        return 1.4
    return 0.1 if target.exact else 0.5  # where coordinates are the stiff directions themselves


def matched_momentum(ratio: float, condition: float) -> float:
    """μ = e^{−√(β·h_min)}, β = 2α/(1+μ) ≈ α: half of critical for the softest direction."""
    return min(0.99, math.exp(-math.sqrt(ratio / condition)))


def run(target: Target, method: str, ratio: float, place: Place, compile: bool = False) -> Run:
    """Chains of `place.steps` steps at αh = ratio; the first fifth is burn-in."""
    settings, stiffest, steps = dict(METHODS[method]), place.stiffest, place.steps
    if "momentum" in settings:
        settings["momentum"] = matched_momentum(ratio, place.condition)
    step = ratio / stiffest
    if settings.get("sampler", "emcmc") == "emcmc":
        loose = settings.get("guide_update", "euler") == "euler"
        settings["eta"] = (4 if loose else 1) / stiffest
    if method == "PSGLD":
        settings |= {"freeze_after": steps // 5, "epsilon": 1e-5}
        step = ratio / stiffest**0.5  # G is about 1/√(mean square gradient)
    if not target.data:
        settings["num_data"] = 1
    begin = time.process_time()
    draws = chains.run(
        target.plain or target.mean_loss,
        place.starts,
        data=target.data,
        batch_size=target.batch,
        steps=steps,
        burn_in=steps // 5,
        thin=place.thin,
        lr=step * target.num_data,
        seed=place.seed,
        compile=compile,
        **settings,
    )
    seconds = time.process_time() - begin
    theta = draws.theta
    assert isinstance(theta, torch.Tensor)
    return Run(target.observe(theta.numpy()), steps, seconds)
