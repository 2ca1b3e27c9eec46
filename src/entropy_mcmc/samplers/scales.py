"""How N, the temperature and η scale a step: the one place that knows.

`lr` is the learning rate for the mean loss; everything else follows from α = lr/N, the step size
on the full energy U = N·(L + ½λ‖θ‖²).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from entropy_mcmc.errors import check_fraction, check_not_negative, check_positive

NUM_DATA_REMEDY = "pass num_data=len(train_set), the number of training examples"


@dataclass(frozen=True)
class Scales:
    """What one step multiplies: `alpha` the energy's gradient, the others as named."""

    alpha: float
    lr: float
    decay: float
    coupling: float
    noise: float
    heat: float  # temperature, or 0 while the noise is off


def scales(group: Mapping[str, Any], *, lr: str = "lr") -> Scales:
    r"""Scales of a parameter group: coupling lr/(ηN), noise √(2·lr·T·(1−μ)/N).

    >>> s = scales({"lr": 0.5, "num_data": 50_000, "eta": 4e-4, "temperature": 1e-4})
    >>> round(s.coupling, 6), round(s.noise * 1e5, 3)
    (0.025, 4.472)
    """
    rate, num_data = group[lr], group["num_data"]
    heat = group["temperature"] if group.get("noise", True) else 0.0
    # Momentum μ lets each kick act 1/(1−μ) times: without the factor the chain runs at T/(1−μ).
    friction = 1.0 - group.get("momentum", 0.0)
    return Scales(
        alpha=rate / num_data,
        lr=rate,
        decay=rate * group.get("weight_decay", 0.0),
        coupling=rate / (group["eta"] * num_data) if "eta" in group else 0.0,
        noise=math.sqrt(2.0 * rate * heat * friction / num_data),
        heat=heat,
    )


def carried_momentum(group: Mapping[str, Any]) -> float:
    """μ·√(lr/lr_last): the share of the velocity that the next step keeps.

    The velocity of a chain at temperature T scales with √lr. Rescaled when lr changes, it stays at
    T; left alone, a cosine that runs out heats θ (up to twofold at the end of a short cycle), and
    a warm restart cools it.
    """
    last = group["last_lr"]
    momentum: float = group["momentum"]
    return momentum * math.sqrt(group["lr"] / last) if last > 0 else momentum


def check_scales(group: Mapping[str, Any]) -> None:
    """Refuse hyper-parameters of a group that can never work, whatever the sampler."""
    check_not_negative("lr", group["lr"], remedy="a typical value for the mean loss is 0.01 to 0.5")
    if "num_data" in group:
        check_positive("num_data", group["num_data"], remedy=NUM_DATA_REMEDY)
    if "temperature" in group:
        check_not_negative("temperature", group["temperature"], remedy="0 switches the noise off")
    if "eta" in group:
        check_positive("eta", group["eta"], remedy="η is the variance of θ_a around θ at T = 1")
    if "momentum" in group:
        check_fraction("momentum", group["momentum"])
    check_not_negative("weight_decay", group["weight_decay"])
