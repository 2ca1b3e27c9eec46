"""Units: how N, the temperature T, η and the prior scale a step. Nothing else derives them.

The loss is a mean over the mini-batch, `lr` the learning rate for that mean. The energy is
U = N·(L + ½λ‖θ‖²), so that α = lr/N is the step size on the energy, the target is exp(−U/T), and
the prior is N(0, v·I) with the variance v = 1/(λN).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from entropy_mcmc.errors import ConfigError, check_positive

if TYPE_CHECKING:
    from torch import Tensor

    Number = TypeVar("Number", float, Tensor)

NUM_DATA_REMEDY = "pass num_data=len(train_set), the number of training examples"
HORIZON = 0.2  # of the guide, as a part of a cycle
LEAST_HORIZON = 4.0  # steps; below 2 the pair oscillates
MARGIN = 4.0  # of an automatic η over what a guide that moves seldom needs
UNKNOWN_HORIZON = 100.0  # steps, where the length of a cycle is not known
RELAXED = 3.0  # Σ of `relaxation` after which e^{-6} of the variance of θ−θ_a is left


@dataclass(frozen=True)
class Scales:
    """What one step of a parameter group multiplies.

    Attributes:
        alpha: α = lr/N, of the energy's gradient.
        lr: of the mean loss's gradient.
        decay: lr·λ, of θ.
        coupling: lr/(ηN), of θ−θ_a; 0 without η.
        noise: √(2·lr·T(1−μ)/N), of a standard normal.
        heat: T, or 0 while the noise is off.
    """

    alpha: float
    lr: float
    decay: float
    coupling: float
    noise: float
    heat: float


def scales(group: Mapping[str, Any], *, lr: str = "lr") -> Scales:
    """Scales of a parameter group; `lr` names the entry that is the learning rate.

    >>> s = scales({"lr": 0.5, "num_data": 50_000, "eta": 4e-4, "temperature": 1e-4})
    >>> round(s.coupling, 6), round(s.noise * 1e5, 3)
    (0.025, 4.472)
    """
    rate, num_data, heat = group[lr], group["num_data"], heat_of(group)
    # Momentum μ lets each kick act 1/(1−μ) times: without the factor the chain runs at T/(1−μ).
    friction = 1.0 - group.get("momentum", 0.0)
    return Scales(
        alpha=step_size(rate, num_data),
        lr=rate,
        decay=rate * group.get("weight_decay", 0.0),
        coupling=coupling(rate, num_data, group["eta"]) if "eta" in group else 0.0,
        noise=math.sqrt(2.0 * rate * heat * friction / num_data),
        heat=heat,
    )


def heat_of(group: Mapping[str, Any]) -> float:
    """Temperature of a group's noise: T, or 0 while the noise is off."""
    heat: float = group["temperature"] if group.get("noise", True) else 0.0
    return heat


def step_size(lr: float, num_data: float) -> float:
    """α = lr/N, the step size on the full energy."""
    return lr / num_data


def coupling(lr: float, num_data: float, eta: float) -> float:
    """lr/(ηN), the share of θ−θ_a that one step removes from θ and adds to θ_a."""
    return lr / (eta * num_data)


def tie(num_data: float, eta: float) -> float:
    """1/(ηN), of θ−θ_a in the gradient of the mean loss."""
    return 1 / (eta * num_data)


def least_eta(group: Mapping[str, Any]) -> float:
    """η at and below which the coupled pair, or y replicas and their guide, diverge on any energy.

    (y+1)·lr/(2(1+μ)N): lr/((1+μ)N) for one replica. For a guide that moves in every k-th round,
    see `exchange_limit`.
    """
    replicas, every = group.get("replicas", 1), rounds_between(group)
    mu = group.get("momentum", 0.0)
    critical = 2 * (1 + mu) / (replicas + 1)
    if every > 1:
        from entropy_mcmc.exchange_limit import critical_coupling  # numpy: not at import

        critical = critical_coupling(replicas, every, mu)
    return float(group["lr"] / (critical * group["num_data"]))


def safe_eta(group: Mapping[str, Any]) -> float:
    """η at and below which replicas and their guide diverge on a curvature of at most N/lr.

    Of a guide that moves in every k-th round, k > 1; at k = 1 it is `least_eta`.
    """
    replicas, every = group.get("replicas", 1), rounds_between(group)
    if every == 1:
        return least_eta(group)
    from entropy_mcmc.exchange_limit import safe_coupling  # numpy: not at import

    critical = safe_coupling(replicas, every, group.get("momentum", 0.0))
    return float(group["lr"] / (critical * group["num_data"]))


def rounds_between(group: Mapping[str, Any]) -> int:
    """Rounds from one move of the guide to the next: `exchange_every`, of replicas only."""
    every: int = group.get("exchange_every", 1) if group.get("replicas", 1) > 1 else 1
    return every


def tightness(group: Mapping[str, Any], eta: float) -> float:
    """(y+1)/2·k·lr/(ηN): of one replica the share of θ−θ_a that a step removes."""
    spokes = (1 + group.get("replicas", 1)) / 2 * rounds_between(group)
    return float(spokes * coupling(group["lr"], group["num_data"], eta))


def wide_enough(eta: float, group: Mapping[str, Any]) -> float:
    """An automatic η, or the least that suits a guide that moves in every k-th round, k > 1."""
    if rounds_between(group) == 1:
        return eta
    return max(eta, MARGIN * safe_eta(group), MARGIN * tightness(group, 1.0))


def horizon(lr: float, num_data: float, eta: float) -> float:
    """ηN/lr, the steps over which the guide averages θ.

    >>> round(horizon(0.5, 50_000, 4e-4))
    40
    """
    return eta * num_data / lr


def eta_of_horizon(steps: float, lr: float, num_data: float) -> float:
    """η at which the guide averages θ over `steps` steps: the inverse of `horizon`."""
    return steps * lr / num_data


def relaxation(lr: float, num_data: float, eta: float, momentum: float = 0.0) -> float:
    """2·lr/((1−μ)ηN): the rate per step at which θ−θ_a forgets where it was."""
    return 2 * coupling(lr, num_data, eta) / (1 - momentum)


def auto_horizon(cycle_steps: float, noise_from: float | None, momentum: float = 0.0) -> float:
    """The guide's horizon ηN/lr in steps for a cosine of `cycle_steps` steps.

    A fifth of the cycle; shorter where the guide would not relax twice (Σ `relaxation` = 2·3) in
    the noisy part, which begins at `noise_from` of the cycle (None: no noise), so that its
    temperature can be read; at least 4 steps, so that the pair does not oscillate.

    >>> auto_horizon(1000, 0.5, momentum=0.9), round(auto_horizon(1000, 0.5), 1)
    (200.0, 30.3)
    """
    horizon = HORIZON * cycle_steps
    if noise_from is not None:
        # Σ lr/lr₀ of a cosine from there on, in cycles.
        path = (1 - noise_from) / 2 - math.sin(math.pi * noise_from) / (2 * math.pi)
        horizon = min(horizon, path * cycle_steps / ((1 - momentum) * RELAXED))
    return max(LEAST_HORIZON, horizon)


def nested_horizon(inner_steps: int) -> float:
    """Horizon ηN/lr_in of an inner chain of that many steps: a well that it does not fill."""
    return 10.0 * inner_steps


def lr_of_full_pull(eta: float, num_data: float) -> float:
    """Lr at which one step removes all of θ−θ_a: lr/(ηN) = 1."""
    return eta * num_data


def weight_decay(prior_variance: Number, num_data: float) -> Number:
    """λ = 1/(N·v) of the prior N(0, v·I).

    >>> round(weight_decay(0.04, 50_000), 10)
    0.0005
    """
    return 1 / (num_data * prior_variance)


def prior_variance(weight_decay: float, num_data: float) -> float:
    """Variance v = 1/(λN) of the prior of a weight decay λ: the inverse of `weight_decay`."""
    return 1 / (weight_decay * num_data) if weight_decay else math.inf


def carried_momentum(momentum: float, lr: float, last_lr: float) -> float:
    """μ·√(lr/lr_last): the share of the velocity that the next step keeps; μ at the first step.

    The velocity of a chain at temperature T scales with √lr. Rescaled when lr changes, it stays at
    T; left alone, a cosine that runs out heats θ (up to twofold at the end of a short cycle), and
    a warm restart cools it.
    """
    return momentum * math.sqrt(lr / last_lr) if last_lr > 0 else momentum


def check_variance(name: str, variance: object) -> float:
    """The variance of a prior as a float: greater than 0, infinite for no prior."""
    if variance == math.inf:
        return math.inf
    remedy = "it is that of the prior N(0, v·I); math.inf is no prior"
    return check_positive(name, variance, remedy=remedy)


def decay_of_prior(variance: object, num_data: object) -> float:
    """`weight_decay` after a check of both numbers, as a user gave them."""
    number = check_variance("prior_variance", variance)
    if num_data is None:
        raise ConfigError(
            f"prior_variance needs the number of training examples, got "
            f"prior_variance={variance!r} and num_data=None; {NUM_DATA_REMEDY}"
        )
    return weight_decay(number, check_positive("num_data", num_data, remedy=NUM_DATA_REMEDY))


def posterior_in_words(group: Mapping[str, Any]) -> str:
    """The distribution of θ that N, T and the weight decay imply."""
    if group["temperature"] == 0:
        return "T = 0: an optimizer, no distribution"
    prior = "flat prior"
    if group["weight_decay"]:
        std = math.sqrt(prior_variance(group["weight_decay"], group["num_data"]))
        prior = f"prior N(0, {std:.4g}² I) before tempering"
    energy = f"U = {group['num_data']:,} · mean loss, {prior}"
    text = f"θ ~ exp(−U/T), T = {group['temperature']:.4g}, {energy}"
    return text if group.get("noise", True) else text + " (noise is off now)"
