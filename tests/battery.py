"""Every sampler with its equations written naively: add a case, and it gets all the tests.

A naive step works on numbers or numpy arrays, term by term as the rule is written:
`naive(h, state, grad, eps) -> new state`, h the hyper-parameters, grad(θ) the gradient of the mean
loss, eps(i) the i-th noise. `noises` names the address (stream, inner, half of the pair, steps
ahead) of each. `remembered` are numbers that the equations keep and the sampler does not: noise of
the last step, which it computes again; they begin as the noise at the given address.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import entropy_mcmc as em

COMMON = {"lr": 0.3, "num_data": 10, "temperature": 0.7, "weight_decay": 0.05}
ETA = {"eta": 0.2}


@dataclass(frozen=True)
class Case:
    name: str
    sampler: type
    options: dict[str, Any]
    naive: Callable
    variables: tuple[str, ...] = ("theta",)
    noises: tuple[tuple[int, ...], ...] = ((0, 0, 0),)
    remembered: dict[str, tuple[int, ...]] = field(default_factory=dict)
    linear: bool = True
    adapts: bool = False  # its noise is scaled by gradients that it has seen
    start: dict[str, float] = field(default_factory=dict)

    def make(self, params, **overrides):
        return self.sampler(params, **{**self.options, **overrides})

    @property
    def names(self):
        """All that the equations keep."""
        return (*self.variables, *self.remembered)

    @property
    def closure(self):
        return self.sampler.needs_closure


def noise_scale(h):
    return np.sqrt(2 * h["lr"] * h["temperature"] / h["num_data"])


def sgld(h, z, grad, eps):
    theta = z["theta"]
    drift = grad(theta) + h["weight_decay"] * theta
    return {"theta": theta - h["lr"] * drift + noise_scale(h) * eps(0)}


def psgld(h, z, grad, eps):
    """While it adapts; frozen from the first step on, V stays 0."""
    theta, beta = z["theta"], h["smoothing"] if np.all(h["freeze_after"]) else 1.0
    square = beta * z.get("square", 0.0) + (1 - beta) * grad(theta) ** 2
    scale = 1 / (h["epsilon"] + np.sqrt(square))
    drift = scale * (grad(theta) + h["weight_decay"] * theta)
    theta = theta - h["lr"] * drift + noise_scale(h) * np.sqrt(scale) * eps(0)
    return {"theta": theta, "square": square}


def sghmc(h, z, grad, eps):
    theta, v = z["theta"], z["velocity"]
    v = (
        h["momentum"] * v
        - h["lr"] * (grad(theta) + h["weight_decay"] * theta)
        + noise_scale(h) * np.sqrt(1 - h["momentum"]) * eps(0)
    )
    return {"theta": theta + v, "velocity": v}


def averaged(h, z, grad, eps):
    """Leimkuhler & Matthews: half of the last step's noise and half of a new one."""
    theta = z["theta"]
    drift = grad(theta) + h["weight_decay"] * theta
    theta = theta - h["lr"] * drift + noise_scale(h) * (z["last"] + eps(0)) / 2
    return {"theta": theta, "last": eps(0)}


def baoab(h, z, grad, eps):
    """B A O A, with v the displacement per step and a step size whose square is 2α/(1+μ)."""
    theta, v, mu = z["theta"], z["velocity"], h["momentum"]
    square = 2 * h["lr"] / ((1 + mu) * h["num_data"])
    v = v - square * h["num_data"] * (grad(theta) + h["weight_decay"] * theta)
    theta = theta + v / 2
    v = mu * v + np.sqrt(1 - mu**2) * np.sqrt(square * h["temperature"]) * eps(0)
    return {"theta": theta + v / 2, "velocity": v}


def euler(h, z, grad, eps):
    theta, guide, eta_n = z["theta"], z["guide"], h["eta"] * h["num_data"]
    drift = grad(theta) + h["weight_decay"] * theta + (theta - guide) / eta_n
    pull = (guide - theta) / eta_n + h.get("guide_weight_decay", 0.0) * guide
    return {
        "theta": theta - h["lr"] * drift + noise_scale(h) * eps(0),
        "guide": guide - h["lr"] * pull + noise_scale(h) * eps(1),
    }


def euler_momentum(h, z, grad, eps):
    theta, guide, eta_n = z["theta"], z["guide"], h["eta"] * h["num_data"]
    scale = noise_scale(h) * np.sqrt(1 - h["momentum"])
    drift = grad(theta) + h["weight_decay"] * theta + (theta - guide) / eta_n
    v = h["momentum"] * z["velocity"] - h["lr"] * drift + scale * eps(0)
    v_a = h["momentum"] * z["guide_velocity"] - h["lr"] * (guide - theta) / eta_n + scale * eps(1)
    return {"theta": theta + v, "guide": guide + v_a, "velocity": v, "guide_velocity": v_a}


def joint_averaged(h, z, grad, eps):
    theta, guide, eta_n = z["theta"], z["guide"], h["eta"] * h["num_data"]
    drift = grad(theta) + h["weight_decay"] * theta + (theta - guide) / eta_n
    kick, guide_kick = (z["last"] + eps(0)) / 2, (z["guide_last"] + eps(1)) / 2
    return {
        "theta": theta - h["lr"] * drift + noise_scale(h) * kick,
        "guide": guide - h["lr"] * (guide - theta) / eta_n + noise_scale(h) * guide_kick,
        "last": eps(0),
        "guide_last": eps(1),
    }


def joint_baoab(h, z, grad, eps):
    theta, guide, eta_n = z["theta"], z["guide"], h["eta"] * h["num_data"]
    pull = lambda x: grad(x) + (x - guide) / eta_n  # noqa: E731
    own = baoab(h, z, pull, eps)
    there = {"theta": guide, "velocity": z["guide_velocity"]}
    free = {**h, "weight_decay": 0.0}
    other = baoab(free, there, lambda x: (x - theta) / eta_n, lambda i: eps(i + 1))
    return {**own, "guide": other["theta"], "guide_velocity": other["velocity"]}


def exact(h, z, grad, eps):
    alpha, eta, T = h["lr"] / h["num_data"], h["eta"], h["temperature"]
    theta = z["theta"] - h["lr"] * (grad(z["theta"]) + h["weight_decay"] * z["theta"])
    s, delta = (theta + z["guide"]) / 2, theta - z["guide"]
    s = s + np.sqrt(alpha * T) * eps(0)
    delta = np.exp(-2 * alpha / eta) * delta
    delta = delta + np.sqrt(eta * T * (1 - np.exp(-4 * alpha / eta))) * eps(1)
    return {"theta": s + delta / 2, "guide": s - delta / 2}


def gibbs(h, z, grad, eps):
    theta = euler(h, z, grad, eps)["theta"]
    return {"theta": theta, "guide": theta + np.sqrt(h["eta"] * h["temperature"]) * eps(1)}


def entropy_sgld(h, z, grad, eps, outer_noise=True):
    theta, eta_n, a = z["theta"], h["eta"] * h["num_data"], h["averaging"]
    inner, mean = theta, theta
    scale = np.sqrt(2 * h["inner_lr"] * h["temperature"] / h["num_data"])
    for i in range(int(np.max(h["inner_steps"]))):
        drift = grad(inner) + h["weight_decay"] * inner + (inner - theta) / eta_n
        inner = inner - h["inner_lr"] * drift + scale * eps(i)
        mean = (1 - a) * mean + a * inner
    theta = theta - h["lr"] * (theta - mean) / eta_n
    if outer_noise:
        theta = theta + noise_scale(h) * eps(int(np.max(h["inner_steps"])))
    return {"theta": theta}


def entropy_sgd(h, z, grad, eps):
    return entropy_sgld(h, z, grad, eps, outer_noise=False)


def sam(h, z, grad, eps):
    theta = z["theta"]
    g = grad(theta)
    if np.all(h["adaptive"]):
        e = h["rho"] * theta**2 * g / np.linalg.norm(theta * g)
    else:
        e = h["rho"] * g / np.linalg.norm(g)
    drift = grad(theta + e) + h["weight_decay"] * theta
    v = h["momentum"] * z["velocity"] - h["lr"] * drift
    return {"theta": theta + v, "velocity": v}


def bsam(h, z, grad, eps):
    omega, m, s = z["theta"], z["momentum"], z["scale"]
    g = grad(omega + np.sqrt(h["temperature"] / (h["num_data"] * s)) * eps(0))
    g2 = grad(omega + h["rho"] * g / s)
    delta, gamma = h["weight_decay"], h["damping"]
    m = h["beta1"] * m + (1 - h["beta1"]) * (g2 + delta * omega)
    new_s = h["beta2"] * s + (1 - h["beta2"]) * (np.sqrt(s) * np.abs(g) + gamma + delta)
    return {"theta": omega - h["lr"] * m / s, "momentum": m, "scale": new_s}


PAIR = ((0, 0, 0), (0, 0, 1))
AHEAD = ((0, 0, 0, 1), (0, 0, 1, 1))
INNER = {"inner_lr": 0.4, "inner_steps": 3, "averaging": 0.6, "lr": 0.9}
INNER_NOISES = tuple((1, i, 0) for i in range(3))
NO_N = {"lr": 0.3, "weight_decay": 0.05, "momentum": 0.6, "rho": 0.1}
GUIDED = ("theta", "guide")

COLLAPSED = {"guide_update": "collapsed"}
# Samplers whose chain θ of a collapsed pair is.
ALONE = [
    Case("sgld", em.SGLD, COMMON, sgld),
    Case(
        "sgld-lm",
        em.SGLD,
        {**COMMON, "integrator": "lm"},
        averaged,
        noises=AHEAD[:1],
        remembered={"last": (0, 0, 0)},
    ),
    Case("sghmc", em.SGHMC, {**COMMON, "momentum": 0.6}, sghmc, ("theta", "velocity")),
    Case(
        "sghmc-baoab",
        em.SGHMC,
        {**COMMON, "momentum": 0.6, "integrator": "baoab"},
        baoab,
        ("theta", "velocity"),
    ),
]
CASES = [
    *ALONE,
    Case(
        "psgld",
        em.PSGLD,
        {**COMMON, "smoothing": 0.7, "epsilon": 0.5, "freeze_after": 10**6},
        psgld,
        ("theta", "square"),
        linear=False,
        adapts=True,
    ),
    Case(
        "psgld-frozen",
        em.PSGLD,
        {**COMMON, "smoothing": 0.7, "epsilon": 0.5, "freeze_after": 0},
        psgld,
    ),
    Case("emcmc", em.EntropyMCMC, {**COMMON, **ETA}, euler, GUIDED, PAIR),
    Case(
        "emcmc-decayed-guide",
        em.EntropyMCMC,
        {**COMMON, **ETA, "guide_weight_decay": 0.2},
        euler,
        GUIDED,
        PAIR,
    ),
    Case(
        "emcmc-momentum",
        em.EntropyMCMC,
        {**COMMON, **ETA, "momentum": 0.6},
        euler_momentum,
        (*GUIDED, "velocity", "guide_velocity"),
        PAIR,
    ),
    Case(
        "emcmc-exact",
        em.EntropyMCMC,
        {**COMMON, **ETA, "guide_update": "exact"},
        exact,
        GUIDED,
        PAIR,
    ),
    Case(
        "emcmc-gibbs",
        em.EntropyMCMC,
        {**COMMON, **ETA, "guide_update": "gibbs"},
        gibbs,
        GUIDED,
        PAIR,
    ),
    *(
        Case(
            f"emcmc-{case.name}",
            em.EntropyMCMC,
            {**case.options, **ETA, "momentum": case.options.get("momentum", 0.0), **COLLAPSED},
            case.naive,
            case.variables,
            case.noises,
            case.remembered,
        )
        for case in ALONE
    ),
    Case(
        "emcmc-lm",
        em.EntropyMCMC,
        {**COMMON, **ETA, "integrator": "lm"},
        joint_averaged,
        GUIDED,
        AHEAD,
        {"last": (0, 0, 0), "guide_last": (0, 0, 1)},
    ),
    Case(
        "emcmc-baoab",
        em.EntropyMCMC,
        {**COMMON, **ETA, "momentum": 0.6, "integrator": "baoab"},
        joint_baoab,
        (*GUIDED, "velocity", "guide_velocity"),
        PAIR,
    ),
    Case(
        "entropy-sgd", em.EntropySGD, {**COMMON, **ETA, **INNER}, entropy_sgd, noises=INNER_NOISES
    ),
    Case(
        "entropy-sgld",
        em.EntropySGLD,
        {**COMMON, **ETA, **INNER},
        entropy_sgld,
        noises=(*INNER_NOISES, (0, 0, 0)),
    ),
    Case("sam", em.SAM, {**NO_N, "adaptive": False}, sam, ("theta", "velocity"), (), linear=False),
    Case(
        "sam-adaptive",
        em.SAM,
        {**NO_N, "adaptive": True},
        sam,
        ("theta", "velocity"),
        (),
        linear=False,
    ),
    Case(
        "bsam",
        em.BSAM,
        {**COMMON, "rho": 0.1, "beta1": 0.8, "beta2": 0.9, "damping": 0.1, "initial_scale": 0.5},
        bsam,
        ("theta", "momentum", "scale"),
        linear=False,
        start={"scale": 0.5},
    ),
]
LINEAR = [case for case in CASES if case.linear]
NOISY = [case for case in CASES if case.noises]
GUIDES = [case for case in CASES if "guide" in case.variables]
