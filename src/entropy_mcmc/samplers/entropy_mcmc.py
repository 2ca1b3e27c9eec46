r"""Entropy-MCMC (Li & Zhang, ICLR 2024): θ and a guide θ_a, coupled by ‖θ−θ_a‖²/(2η).

`euler`, the paper's rule, both from the old values:

.. math::
    \theta &\leftarrow \theta - lr\,[\hat g + \lambda\theta + (\theta-\theta_a)/(\eta N)]
        + \sqrt{2\,lr\,T/N}\,\epsilon_1 \\
    \theta_a &\leftarrow \theta_a - lr\,(\theta_a-\theta)/(\eta N) + \sqrt{2\,lr\,T/N}\,\epsilon_2

With momentum μ, in velocity form, v ← μv − lr[…] + √(2·lr·T(1−μ)/N)·ε, θ ← θ+v, likewise θ_a; when
lr changes, v is first multiplied by √(lr/lr_last), which keeps it at temperature T.

`exact`: θ ← θ − lr(ĝ+λθ), then the coupled pair by its exact Ornstein-Uhlenbeck solution, with
α = lr/N, s = (θ+θ_a)/2 and δ = θ−θ_a:

.. math::
    s \leftarrow s + \sqrt{\alpha T}\,\epsilon_1, \qquad
    \delta \leftarrow e^{-2\alpha/\eta}\delta + \sqrt{\eta T(1-e^{-4\alpha/\eta})}\,\epsilon_2

`gibbs`: the Euler step of θ with the old θ_a, then θ_a ~ N(θ, ηT·I).

`collapsed`: θ moves alone, as SGLD or SGHMC do, and θ_a ~ N(θ, ηT·I) is drawn when it is asked for.

`integrator` "lm" averages the noise of two steps, for both variables; "baoab" is kick, half a
drift, friction with noise, half a drift, for both (`sgld.py` and `sghmc.py` derive them). On a
quadratic energy both have the covariance T·A⁻¹ at every stable lr, A = [[h+1/η, −1/η],
[−1/η, 1/η]]: the derivation for one coordinate holds for each eigenvector of A. So Var θ = T/h, and
θ−θ_a has the variance ηT. `coupled.py` has the table of what goes together.

While the group entry `coupled` is False (burn-in, with `schedules.Cyclical(…, coupled="noisy")`), θ
moves alone too, at the full speed of SGD; θ_a starts as θ at the first coupled step. `replicas.py`
has what several θ with one θ_a do.

Target: θ ~ exp(−U/T) and θ_a | θ ~ N(θ, ηT·I) (Lemma 1 of the paper).
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, NamedTuple

from torch import Tensor

from entropy_mcmc.samplers.base import Group, Params
from entropy_mcmc.samplers.coupled import Guided, replicas_in_words
from entropy_mcmc.samplers.hyper_parameters import (
    Eta,
    Integrator,
    LearningRate,
    Momentum,
    NumData,
    PriorVariance,
    Temperature,
    WeightDecay,
    count,
    one_of,
)
from entropy_mcmc.samplers.rule import Pair, Pairs, Update, starts
from entropy_mcmc.samplers.sghmc import alone_update, splitting
from entropy_mcmc.samplers.stacked_replicas import refuse_replicas, stacked_update
from entropy_mcmc.units import carried_momentum, posterior_in_words, scales


class EntropyMCMC(Guided):
    """Sample θ and its guide θ_a with one gradient per step.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate for the mean loss over the mini-batch. Under strong coupling the pair
            moves like one particle of twice the mass: it learns at half the speed of SGD.
        num_data: number N of training examples; required.
        eta: η, the variance of θ_a around θ at T = 1. The guide averages θ over about ηN/lr steps:
            "auto" takes 100 of them, and what fits the cycles of `schedules.Cyclical`; required.
        temperature: T of the target; 0 is the noiseless optimizer.
        weight_decay: λ of the prior N(0, I/(λN)) of θ; it never touches θ_a.
        prior_variance: variance v of the prior N(0, v·I), instead of weight_decay = 1/(N·v).
        momentum: μ; with guide_update="euler" or "collapsed".
        guide_update: "euler" (the paper), "exact" (stable for every η), "gibbs", or "collapsed":
            θ moves without coupling, θ_a is drawn given θ when it is asked for.
        integrator: "euler", "lm" (averaged noise) or "baoab" (underdamped; uses momentum): the last
            two sample a Gaussian posterior without bias from a finite lr.
        replicas: y, networks that share the guide; each step is then that of one of them, in turn.
            The guide's density is the smoothed posterior to the power y.
        exchange_every: k, the guide of replicas moves in every k-th round; 1 is exact.
        guide_weight_decay: decay of θ_a, 0 in theory; the authors' published code decays it too.
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.

    >>> import torch
    >>> net = torch.nn.Linear(2, 1)
    >>> sampler = EntropyMCMC(net.parameters(), lr=0.1, num_data=100, eta=0.01, seed=0)
    >>> net(torch.ones(4, 2)).square().mean().backward(); sampler.step()
    >>> theta = net.weight.clone()
    >>> with sampler.guide():
    ...     shows_guide = not torch.equal(net.weight, theta)
    >>> shows_guide, torch.equal(net.weight, theta)
    (True, True)
    """

    run_defaults: ClassVar = {
        "lr": 0.1,
        "temperature": 0.02,
        "prior_variance": 0.04,
        "eta": None,
        "momentum": 0.9,
        "guide_update": "euler",
        "guide_weight_decay": 0.0,
    }
    entries: ClassVar = {
        "last_lr": 0.0,
        "noise": True,
        "coupled": True,
        "replica": 0,
        "round_lr": 0.0,
        "exchange_lr": 0.0,
    }

    def __init__(
        self,
        params: Params,
        lr: LearningRate,
        *,
        num_data: NumData = None,
        eta: Eta = None,
        temperature: Temperature = 1.0,
        weight_decay: WeightDecay = 0.0,
        prior_variance: PriorVariance = None,
        momentum: Momentum = 0.0,
        guide_update: Annotated[str, one_of("euler", "exact", "gibbs", "collapsed")] = "euler",
        integrator: Integrator = "euler",
        replicas: Annotated[int, count()] = 1,
        exchange_every: Annotated[int, count()] = 1,
        guide_weight_decay: WeightDecay = 0.0,
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        super().__init__(params, locals())

    @staticmethod
    def update(group: Group) -> Update:
        """The step of a group, by its `integrator` and `guide_update`."""
        refuse_replicas(group)
        if group["guide_update"] == "collapsed" or not group["coupled"]:
            return alone_update(group)
        integrator, rule = group["integrator"], group["guide_update"]
        return JOINT_UPDATES[rule if integrator == "euler" else integrator](group)

    @classmethod
    def stacked_update(cls, group: Group) -> Update:
        """The step of `update` for stacked chains, whose replicas are rows one after the other."""
        if group["replicas"] > 1:
            return stacked_update(group, Coupled, Moving)
        return cls.update(group)

    @staticmethod
    def target(group: Group) -> str:
        """The posterior of θ, tempered, and the Gaussian of θ_a around θ."""
        if group["replicas"] > 1:
            return replicas_in_words(group)
        spread = math.sqrt(group["eta"] * group["temperature"])
        return f"{posterior_in_words(group)}; θ_a | θ ~ N(θ, {spread:.4g}² I)"


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


class Euler(NamedTuple):
    """Coefficients of an Euler step: lr, lr·λ, lr/(ηN), lr·(decay of θ_a), noise scale, and μ."""

    lr: float
    decay: float
    coupling: float
    guide_decay: float
    noise: float
    momentum: float = 0.0


def euler_update(group: Group) -> Update:
    """The paper's step, with momentum where the group has it."""
    s = scales(group)
    guide_decay = s.lr * group["guide_weight_decay"]
    momentum = carried_momentum(group["momentum"], group["lr"], group["last_lr"])
    c = Euler(s.lr, s.decay, s.coupling, guide_decay, s.noise, momentum)
    rule, variables = (euler_momentum, Moving) if group["momentum"] else (euler, Coupled)
    return Update(rule, variables, c, normals=2 if s.noise else 0)


def euler(v: Coupled, grad: Tensor, eps: Pair | None, c: Euler) -> Coupled:
    """Both variables from the old values."""
    pull = c.coupling * (v.theta - v.guide)
    theta = v.theta - c.lr * grad - c.decay * v.theta - pull
    guide = v.guide + pull - c.guide_decay * v.guide
    if eps is not None:
        theta, guide = theta + c.noise * eps[0], guide + c.noise * eps[1]
    return Coupled(theta, guide)


def euler_momentum(v: Moving, grad: Tensor, eps: Pair | None, c: Euler) -> Moving:
    """Velocities from the old values, then both variables by their velocities."""
    pull = c.coupling * (v.theta - v.guide)
    velocity = c.momentum * v.velocity - c.lr * grad - c.decay * v.theta - pull
    guide_velocity = c.momentum * v.guide_velocity + pull - c.guide_decay * v.guide
    if eps is not None:
        velocity, guide_velocity = velocity + c.noise * eps[0], guide_velocity + c.noise * eps[1]
    return Moving(v.theta + velocity, v.guide + guide_velocity, velocity, guide_velocity)


class Exact(NamedTuple):
    """Coefficients of an exact step: lr, lr·λ, √(αT), e^{−2α/η} and √(ηT(1−e^{−4α/η}))."""

    lr: float
    decay: float
    drift: float
    shrink: float
    spread: float


def exact_update(group: Group) -> Update:
    """The step with the coupling solved exactly."""
    s, eta = scales(group), group["eta"]
    shrink = math.exp(-2 * s.alpha / eta)
    spread = math.sqrt(-eta * s.heat * math.expm1(-4 * s.alpha / eta))
    centre = math.sqrt(s.alpha * s.heat)
    c = Exact(s.lr, s.decay, centre, shrink, spread)
    return Update(exact, Coupled, c, normals=2 if s.noise else 0)


def exact(v: Coupled, grad: Tensor, eps: Pair | None, c: Exact) -> Coupled:
    """A gradient step of θ, then the exact solution of the coupling for centre and half gap."""
    theta = v.theta - c.lr * grad - c.decay * v.theta
    centre, half = 0.5 * (theta + v.guide), 0.5 * c.shrink * (theta - v.guide)
    if eps is not None:
        centre, half = centre + c.drift * eps[0], half + 0.5 * c.spread * eps[1]
    return Coupled(centre + half, centre - half)


class Gibbs(NamedTuple):
    """Coefficients of a Gibbs step: lr, lr·λ, lr/(ηN), noise scale and √(ηT)."""

    lr: float
    decay: float
    coupling: float
    noise: float
    spread: float


def gibbs_update(group: Group) -> Update:
    """The step with θ_a drawn given θ."""
    s = scales(group)
    c = Gibbs(s.lr, s.decay, s.coupling, s.noise, math.sqrt(group["eta"] * s.heat))
    return Update(gibbs, Coupled, c, normals=2 if s.noise else 0)


def gibbs(v: Coupled, grad: Tensor, eps: Pair | None, c: Gibbs) -> Coupled:
    """An Euler step of θ with the old θ_a, then a draw of θ_a given θ."""
    theta = v.theta - c.lr * grad - c.decay * v.theta - c.coupling * (v.theta - v.guide)
    if eps is None:
        return Coupled(theta, theta)
    theta = theta + c.noise * eps[0]
    return Coupled(theta, theta + c.spread * eps[1])


class Averaged(NamedTuple):
    """Coefficients of an `lm` step: lr, lr·λ, lr/(ηN) and half of √(2·lr·T/N)."""

    lr: float
    decay: float
    coupling: float
    half: float


def averaged_update(group: Group) -> Update:
    """The `lm` step of both variables."""
    s = scales(group)
    c = Averaged(s.lr, s.decay, s.coupling, s.noise / 2)
    return Update(averaged, Coupled, c, normals=2 if s.noise else 0, pairs=2)


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


class Splitting(NamedTuple):
    """Coefficients of a BAOAB step, with share = 2/(1+μ).

    share·lr, share·lr·λ, share·lr/(ηN), √(lr/lr_last), μ and √(2·lr·T(1−μ)/N).
    """

    kick: float
    decay: float
    coupling: float
    carry: float
    momentum: float
    noise: float


def baoab_update(group: Group) -> Update:
    """The BAOAB step of both variables."""
    s, alone = scales(group), splitting(group)
    coupling = alone.kick / s.lr * s.coupling if s.lr else 0.0
    c = Splitting(**alone._asdict(), coupling=coupling)
    return Update(baoab, Moving, c, normals=2 if s.noise else 0)


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


# By `guide_update`, and by `integrator` where that is not "euler".
JOINT_UPDATES = {
    "euler": euler_update,
    "exact": exact_update,
    "gibbs": gibbs_update,
    "lm": averaged_update,
    "baoab": baoab_update,
}
