r"""The pair (θ, θ_a): what is kept of it, which rules exist, and those beside the paper's.

`integrator` moves θ; `guide_update` says how θ_a follows:

=============  =====================  ===============  ===============  ==========================
integrator     "euler"                "exact"          "gibbs"          "collapsed"
=============  =====================  ===============  ===============  ==========================
"euler"        the paper; momentum    yes              yes              θ is SGLD; momentum: SGHMC
"lm"           both averaged          –                –                θ is SGLD's "lm"
"baoab"        both split; momentum   –                –                θ is SGHMC's "baoab"
=============  =====================  ===============  ===============  ==========================

With guide_update="euler", θ_a is moved by the same integrator as θ, pulled by the old values. `lm`
averages the noise of two steps, for both variables; `baoab` is kick, half a drift, friction with
noise, half a drift, for both (`sgld.py` and `sghmc.py` derive them). On a quadratic energy both
have the covariance T·A⁻¹ at every stable lr, A = [[h+1/η, −1/η], [−1/η, 1/η]]: the derivation for
one coordinate holds for each eigenvector of A. So Var θ = T/h, and θ−θ_a has the variance ηT.

`collapsed` leaves the coupling out of θ's rule and draws θ_a only when it is asked for:

.. math:: \theta_a = \theta + \sqrt{\eta T}\,\xi

with ξ a pure function of (seed, step, element), so that θ_a of a step is always the same. Nothing
is kept beside what θ's rule keeps. If θ has the variance v, θ_a has v + ηT, their covariance is v.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.samplers.rule import Pair, Pairs, Update, starts
from entropy_mcmc.samplers.sghmc import SGHMC, splitting
from entropy_mcmc.samplers.sgld import SGLD
from entropy_mcmc.units import heat_of, scales

GUIDE_STREAM = 2  # of the noise that draws θ_a given θ
# Whether the rule of (integrator, guide_update) takes momentum; what is missing does not exist.
TAKES_MOMENTUM = {
    ("euler", "euler"): True,
    ("euler", "exact"): False,
    ("euler", "gibbs"): False,
    ("euler", "collapsed"): True,
    ("lm", "euler"): False,
    ("lm", "collapsed"): False,
    ("baoab", "euler"): True,
    ("baoab", "collapsed"): True,
}


def check_combination(group: dict[str, Any]) -> None:
    """Refuse a combination of integrator, guide_update, momentum and decay that does not exist."""
    integrator, guide_update = pair = group["integrator"], group["guide_update"]
    if pair not in TAKES_MOMENTUM:
        raise ConfigError(
            f"guide_update must be 'euler' or 'collapsed' with integrator={integrator!r}, got "
            f'guide_update={guide_update!r}; use one of them, or integrator="euler"'
        )
    needs = f"with guide_update={guide_update!r}"
    remedy = 'guide_update="euler"'
    if guide_update in ("euler", "collapsed"):
        needs, remedy = f"with integrator={integrator!r}", 'integrator="baoab"'
    if group["momentum"] and not TAKES_MOMENTUM[pair]:
        raise ConfigError(
            f"momentum must be 0 {needs}, got momentum={group['momentum']!r}; use {remedy}"
        )
    if group["guide_weight_decay"] and pair != ("euler", "euler"):
        needs = f"with guide_update={guide_update!r} and integrator={integrator!r}"
        raise ConfigError(
            f"guide_weight_decay must be 0 {needs}, got guide_weight_decay="
            f'{group["guide_weight_decay"]!r}; use guide_update="euler" and integrator="euler"'
        )


class Coupled(NamedTuple):
    """What the chain keeps for each parameter."""

    theta: Tensor
    guide: Tensor = starts("theta")


class Moving(NamedTuple):
    """What it keeps with momentum."""

    theta: Tensor
    guide: Tensor = starts("theta")
    velocity: Tensor = starts(0.0)
    guide_velocity: Tensor = starts(0.0)


class Averaged(NamedTuple):
    """Numbers of an `lm` step: lr, lr·λ, lr/(ηN) and half of √(2·lr·T/N)."""

    lr: float
    decay: float
    coupling: float
    half: float


class Splitting(NamedTuple):
    """Numbers of a BAOAB step, with share = 2/(1+μ).

    share·lr, share·lr·λ, share·lr/(ηN), √(lr/lr_last), μ and √(2·lr·T(1−μ)/N).
    """

    kick: float
    decay: float
    coupling: float
    carry: float
    momentum: float
    noise: float


class Spread(NamedTuple):
    """The number of a draw: √(ηT)."""

    spread: float


class Guide(NamedTuple):
    """The variable of a draw, which starts as θ."""

    guide: Tensor


def alone_update(group: dict[str, Any]) -> Update:
    """The step of one variable by the group's integrator, without any coupling."""
    moving = group["momentum"] or group["integrator"] == "baoab"
    return SGHMC.update(group) if moving else SGLD.update(group)


def joint_update(group: dict[str, Any]) -> Update:
    """The step of both variables by the group's integrator, "lm" or "baoab"."""
    s = scales(group)
    normals = 2 if s.noise else 0
    if group["integrator"] == "lm":
        c = Averaged(s.lr, s.decay, s.coupling, s.noise / 2)
        return Update(averaged, Coupled, c, normals, pairs=2)
    kick, decay, *rest = splitting(group)
    coupling = kick / s.lr * s.coupling if s.lr else 0.0
    return Update(baoab, Moving, Splitting(kick, decay, coupling, *rest), normals)


def guide_draw(group: dict[str, Any]) -> Update | None:
    """The draw of θ_a given θ of a collapsed group; None where there is nothing to draw."""
    heat = heat_of(group)
    if group["guide_update"] != "collapsed" or not heat:
        return None
    return Update(draw, Guide, Spread(math.sqrt(group["eta"] * heat)), normals=1)


def averaged(v: Coupled, grad: Tensor, eps: Pairs | None, c: Averaged) -> Coupled:
    """Both from the old values, with half of the last step's noise and half of a new one."""
    pull = c.coupling * (v.theta - v.guide)
    theta = v.theta - c.lr * grad - c.decay * v.theta - pull
    guide = v.guide + pull
    if eps is None:
        return Coupled(theta, guide)
    last, new = eps
    return Coupled(
        theta + c.half * (last[0] + new[0]),
        guide + c.half * (last[1] + new[1]),
    )


def baoab(v: Moving, grad: Tensor, eps: Pair | None, c: Splitting) -> Moving:
    """Kick, half a drift, friction with noise, half a drift, of both."""
    pull = c.coupling * (v.theta - v.guide)
    velocity = c.carry * v.velocity - c.kick * grad - c.decay * v.theta - pull
    guide_velocity = c.carry * v.guide_velocity + pull
    theta, guide = v.theta + 0.5 * velocity, v.guide + 0.5 * guide_velocity
    velocity, guide_velocity = c.momentum * velocity, c.momentum * guide_velocity
    if eps is not None:
        velocity, guide_velocity = velocity + c.noise * eps[0], guide_velocity + c.noise * eps[1]
    return Moving(theta + 0.5 * velocity, guide + 0.5 * guide_velocity, velocity, guide_velocity)


def draw(v: Guide, eps: Pair | None, c: Spread) -> Guide:
    """θ_a ~ N(θ, ηT·I), from θ."""
    assert eps is not None
    return Guide(v.guide + c.spread * eps[0])
