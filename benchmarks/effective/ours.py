"""Samplers, rules and integrators of this library, each with the step sizes that are tried."""

from __future__ import annotations

import time
from typing import Any

import torch

from effective.measure import Run
from effective.targets import Target
from entropy_mcmc import chains

# αh of the stiffest direction that are tried: Euler's bias is 5 % near 0.1.
EULER, WIDE = (0.05, 0.1, 0.2), (0.3, 0.7, 1.2)
MOMENTUM, FAR = (0.1, 0.2, 0.4), (0.3, 0.8, 1.6)
METHODS: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "SGLD": ({"sampler": "sgld"}, EULER),
    "SGLD lm": ({"sampler": "sgld", "integrator": "lm"}, WIDE),
    "PSGLD": ({"sampler": "psgld"}, EULER),
    "SGHMC": ({"sampler": "sghmc"}, MOMENTUM),
    "SGHMC baoab": ({"sampler": "sghmc", "integrator": "baoab"}, FAR),
    "EMCMC": ({}, EULER),
    "EMCMC exact": ({"guide_update": "exact"}, EULER),
    "EMCMC gibbs": ({"guide_update": "gibbs"}, EULER),
    "EMCMC momentum": ({"momentum": "critical"}, MOMENTUM),
    "EMCMC lm": ({"integrator": "lm"}, WIDE),
    "EMCMC baoab": ({"integrator": "baoab", "momentum": "critical"}, FAR),
    "EMCMC collapsed": ({"guide_update": "collapsed"}, EULER),
    "EMCMC collapsed lm": ({"guide_update": "collapsed", "integrator": "lm"}, WIDE),
    "EMCMC collapsed baoab": (
        {"guide_update": "collapsed", "integrator": "baoab", "momentum": "critical"},
        FAR,
    ),
}
NEED_MOMENTUM = ("SGHMC", "SGHMC baoab")


def critical_momentum(ratio: float, condition: float) -> float:
    """μ = e^{−2√(β·h_min)}, β = 2α/(1+μ) ≈ α: critical for the softest direction."""
    from math import exp, sqrt

    return min(0.99, exp(-2 * sqrt(ratio / condition)))


def run(
    target: Target,
    method: str,
    ratio: float,
    stiffest: float,
    condition: float,
    steps: int,
    number: int,
    seed: int,
) -> Run:
    """Chains of `steps` steps at αh = ratio; the first fifth is burn-in."""
    settings = dict(METHODS[method][0])
    if method in NEED_MOMENTUM or settings.get("momentum") == "critical":
        settings["momentum"] = critical_momentum(ratio, condition)
    step = ratio / stiffest
    if settings.get("sampler", "emcmc") == "emcmc":
        settings["eta"] = 4 / stiffest if "guide_update" not in settings else 1 / stiffest
        if settings.get("guide_update") == "collapsed":
            settings["eta"] = 1 / stiffest
    if method == "PSGLD":
        settings |= {"freeze_after": steps // 5, "epsilon": 1e-5}
        step = ratio / stiffest**0.5  # G is about 1/√(mean square gradient)
    if not target.data:
        settings["num_data"] = 1
    thin = max(1, steps // 4000)
    begin = time.process_time()
    draws = chains.run(
        target.mean_loss,
        target.first(),
        chains=number,
        data=target.data,
        batch_size=target.batch,
        steps=steps,
        burn_in=steps // 5,
        thin=thin,
        lr=step * target.num_data,
        seed=seed,
        compile=False,
        **settings,
    )
    seconds = time.process_time() - begin
    theta = draws.theta
    assert isinstance(theta, torch.Tensor)
    return Run(target.observe(theta.numpy()), steps, seconds)
