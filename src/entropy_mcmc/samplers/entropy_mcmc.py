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

Target: θ ~ exp(−U/T) and θ_a | θ ~ N(θ, ηT·I) (Lemma 1 of the paper).
"""

from __future__ import annotations

import math
import warnings
from contextlib import AbstractContextManager
from typing import Annotated, ClassVar, NamedTuple

from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.samplers.base import Group, Params, Sampler
from entropy_mcmc.samplers.hyper_parameters import (
    Eta,
    LearningRate,
    Momentum,
    NumData,
    PriorVariance,
    Temperature,
    WeightDecay,
    one_of,
)
from entropy_mcmc.samplers.kernel.swap import showing
from entropy_mcmc.samplers.rule import Pair, Update, starts
from entropy_mcmc.units import carried_momentum, posterior_in_words, scales

OSCILLATES = 0.5


class EntropyMCMC(Sampler):
    """Sample θ and its guide θ_a with one gradient per step.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate for the mean loss over the mini-batch. Under strong coupling the pair
            moves like one particle of twice the mass: it learns at half the speed of SGD.
        num_data: number N of training examples; required.
        eta: η, the variance of θ_a around θ at T = 1. The guide averages θ over about ηN/lr steps:
            choose it with N, lr and the length of a cycle in mind; required.
        temperature: T of the target; 0 is the noiseless optimizer.
        weight_decay: λ of the prior N(0, I/(λN)) of θ; it never touches θ_a.
        prior_variance: variance v of the prior N(0, v·I), instead of weight_decay = 1/(N·v).
        momentum: μ; needs guide_update="euler".
        guide_update: "euler" (the paper), "exact" (stable for every η) or "gibbs".
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
        "lr": 0.4,
        "temperature": 1e-2,
        "weight_decay": 5e-4,
        "eta": None,
        "momentum": 0.0,
        "guide_update": "euler",
        "guide_weight_decay": 0.0,
    }
    entries: ClassVar = {"last_lr": 0.0, "noise": True}
    _warned = False

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
        guide_update: Annotated[str, one_of("euler", "exact", "gibbs")] = "euler",
        guide_weight_decay: WeightDecay = 0.0,
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        super().__init__(params, locals())

    def guide(self) -> AbstractContextManager[None]:
        """Show θ_a to the model inside a `with` block; buffers (batch norm) are the caller's."""
        if self._watch:
            self._watch.report()
        return showing(self, "guide")

    @staticmethod
    def update(group: Group) -> Update:
        """The coupled step of a group, by its `guide_update`."""
        s, rule, eta = scales(group), group["guide_update"], group["eta"]
        normals = 2 if s.noise else 0
        if rule == "exact":
            shrink = math.exp(-2 * s.alpha / eta)
            spread = math.sqrt(-eta * s.heat * math.expm1(-4 * s.alpha / eta))
            centre = math.sqrt(s.alpha * s.heat)
            return Update(exact, Coupled, Exact(s.lr, s.decay, centre, shrink, spread), normals)
        if rule == "gibbs":
            spread = math.sqrt(eta * s.heat)
            return Update(
                gibbs, Coupled, Gibbs(s.lr, s.decay, s.coupling, s.noise, spread), normals
            )
        guide_decay = s.lr * group["guide_weight_decay"]
        if not group["momentum"]:
            c = Euler(s.lr, s.decay, s.coupling, guide_decay, s.noise)
            return Update(euler, Coupled, c, normals)
        momentum = carried_momentum(group["momentum"], group["lr"], group["last_lr"])
        c = Euler(s.lr, s.decay, s.coupling, guide_decay, s.noise, momentum)
        return Update(euler_momentum, Moving, c, normals)

    @staticmethod
    def target(group: Group) -> str:
        """The posterior of θ, tempered, and the Gaussian of θ_a around θ."""
        spread = math.sqrt(group["eta"] * group["temperature"])
        return f"{posterior_in_words(group)}; θ_a | θ ~ N(θ, {spread:.4g}² I)"

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        update = group["guide_update"]
        if update == "euler":
            self._check_coupling(group)
            return
        for name in ("momentum", "guide_weight_decay"):
            if group[name]:
                raise ConfigError(
                    f"{name} must be 0 with guide_update={update!r}, got {name}={group[name]!r}; "
                    f'use guide_update="euler"'
                )

    def _check_coupling(self, group: Group) -> None:
        coupling = scales(group).coupling
        given = f"lr={group['lr']!r}, num_data={group['num_data']!r}, eta={group['eta']!r}"
        least = group["lr"] / ((1 + group["momentum"]) * group["num_data"])
        if group["eta"] <= least:
            raise ConfigError(
                f"eta must be greater than lr/((1+momentum)·num_data) = {least:.4g} for the Euler "
                f"rule, which diverges below, got {given}; use a larger eta, a smaller lr, or "
                f'guide_update="exact"'
            )
        if coupling > OSCILLATES and not self._warned:
            self._warned = True
            warnings.warn(
                f"lr/(eta·num_data) = {coupling:.3g} is above {OSCILLATES}: θ and θ_a oscillate "
                f"around each other and the chain is hotter than T ({given}); use a larger eta, a "
                f'smaller lr, or guide_update="exact"',
                UserWarning,
                stacklevel=2,
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


class Euler(NamedTuple):
    """Numbers of an Euler step: lr, lr·λ, lr/(ηN), lr·(decay of θ_a), noise scale, and μ."""

    lr: float
    decay: float
    coupling: float
    guide_decay: float
    noise: float
    momentum: float = 0.0


class Exact(NamedTuple):
    """Numbers of an exact step: lr, lr·λ, √(αT), e^{−2α/η} and √(ηT(1−e^{−4α/η}))."""

    lr: float
    decay: float
    drift: float
    shrink: float
    spread: float


class Gibbs(NamedTuple):
    """Numbers of a Gibbs step: lr, lr·λ, lr/(ηN), noise scale and √(ηT)."""

    lr: float
    decay: float
    coupling: float
    noise: float
    spread: float


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


def exact(v: Coupled, grad: Tensor, eps: Pair | None, c: Exact) -> Coupled:
    """A gradient step of θ, then the exact solution of the coupling for centre and half gap."""
    theta = v.theta - c.lr * grad - c.decay * v.theta
    centre, half = 0.5 * (theta + v.guide), 0.5 * c.shrink * (theta - v.guide)
    if eps is not None:
        centre, half = centre + c.drift * eps[0], half + 0.5 * c.spread * eps[1]
    return Coupled(centre + half, centre - half)


def gibbs(v: Coupled, grad: Tensor, eps: Pair | None, c: Gibbs) -> Coupled:
    """An Euler step of θ with the old θ_a, then a draw of θ_a given θ."""
    theta = v.theta - c.lr * grad - c.decay * v.theta - c.coupling * (v.theta - v.guide)
    if eps is None:
        return Coupled(theta, theta)
    theta = theta + c.noise * eps[0]
    return Coupled(theta, theta + c.spread * eps[1])
