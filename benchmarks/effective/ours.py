"""Samplers, rules and integrators of this library, each with its closed form."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from effective import linear
from effective.linear import Linear
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
AVERAGED = ("lm", "baoab")


def matched_momentum(ratio: float, condition: float) -> float:
    """μ = e^{−√(β·h_min)}, β = 2α/(1+μ) ≈ α: half of critical for the softest direction."""
    return min(0.9999, math.exp(-math.sqrt(ratio / condition)))


def settings_of(method: str, ratio: float, place: Place) -> dict[str, Any]:
    """Settings of the sampler at αh = ratio of the stiffest direction; `step` is α."""
    settings: dict[str, Any] = {**METHODS[method], "step": ratio / place.stiffest}
    if "momentum" in settings:
        settings["momentum"] = matched_momentum(ratio, place.condition)
    if settings.get("sampler", "emcmc") == "emcmc":
        loose = settings.get("guide_update", "euler") == "euler"
        settings["eta"] = (4 if loose else 1) / place.stiffest
    if method == "PSGLD":
        settings |= {"freeze_after": place.steps // 5, "epsilon": 1e-5}
        settings["step"] = ratio / place.stiffest**0.5  # G is about 1/√(mean square gradient)
    return settings


def linear_of(method: str, ratio: float, place: Place) -> Linear | None:
    """The rule in closed form for a quadratic energy; None for PSGLD, whose G is random."""
    s = settings_of(method, ratio, place)
    alpha, mu, averaged = s["step"], s.get("momentum", 0.0), s.get("integrator") in AVERAGED
    if method == "PSGLD":
        return None
    if method == "SGLD":
        return linear.langevin(alpha)
    if "eta" not in s:
        return linear.momentum(alpha, mu, averaged)
    forms = {"exact": linear.exact_guide, "gibbs": linear.drawn_guide}
    if s.get("guide_update") in forms:
        return forms[s["guide_update"]](alpha, s["eta"])
    return linear.coupled(alpha, s["eta"], mu, averaged)


def run(target: Target, method: str, ratio: float, place: Place, compile: bool = False) -> Run:
    """Chains of `place.steps` steps at αh = ratio; the first fifth is burn-in."""
    settings, steps = settings_of(method, ratio, place), place.steps
    step = settings.pop("step")
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
