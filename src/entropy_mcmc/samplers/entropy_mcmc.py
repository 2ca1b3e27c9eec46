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
`coupled.py` has this rule, the integrators `lm` and `baoab`, and the table of what goes together.

While the group entry `coupled` is False (burn-in, with `schedules.Cyclical(…, coupled="noisy")`), θ
moves alone too, at the full speed of SGD; θ_a starts as θ at the first coupled step.

Target: θ ~ exp(−U/T) and θ_a | θ ~ N(θ, ηT·I) (Lemma 1 of the paper).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any, ClassVar, NamedTuple

from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.samplers import coupled
from entropy_mcmc.samplers.base import Closure, Group, Params
from entropy_mcmc.samplers.coupled import Coupled, Moving
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
from entropy_mcmc.samplers.kernel.swap import showing
from entropy_mcmc.samplers.replicas import Replicated
from entropy_mcmc.samplers.rule import Pair, Update
from entropy_mcmc.samplers.stacked_replicas import stacked_update
from entropy_mcmc.units import carried_momentum, least_eta, posterior_in_words, scales

OSCILLATES = 0.5


class EntropyMCMC(Replicated):
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
        "lr": 0.4,
        "temperature": 1e-2,
        "weight_decay": 5e-4,
        "eta": None,
        "momentum": 0.0,
        "guide_update": "euler",
        "guide_weight_decay": 0.0,
    }
    entries: ClassVar = {
        "last_lr": 0.0,
        "noise": True,
        "coupled": True,
        "replica": 0,
        "round_lr": 0.0,
    }
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

    def step(self, closure: Closure | None = None) -> Any:
        """Make one step from the gradients in `.grad`; returns the closure's loss, if given one."""
        for group in self.param_groups:
            if not group["coupled"] and group["replicas"] > 1:
                raise ConfigError(
                    f"replicas must be 1 in a phase without coupling, in which they would part, "
                    f'got replicas={group["replicas"]}; use Cyclical(..., coupled="always")'
                )
            if not group["coupled"]:
                self._forget_guide(group["params"])
        return super().step(closure)

    def _forget_guide(self, params: list[Tensor]) -> None:
        for state in [self.state[p] for p in params if "guide" in self.state.get(p, ())]:
            state.pop("guide")
            state.pop("guide_velocity", None)

    def guide(self) -> AbstractContextManager[None]:
        """Show θ_a to the model inside a `with` block; buffers (batch norm) are the caller's."""
        if self._watch:
            self._watch.report()
        return self._showing_guide()

    @contextmanager
    def _showing_guide(self) -> Iterator[None]:
        with self.drawn_guides(), showing(self, "guide"):
            yield

    @contextmanager
    def drawn_guides(self) -> Iterator[None]:
        """Inside the block `state` also holds θ_a of collapsed groups, drawn for this step.

        Before the first step there is nothing to draw: θ_a is θ.
        """
        self._refuse_inside_block("guide()")
        drawn: list[Tensor] = []
        try:
            for group in self.param_groups:
                update = coupled.guide_draw(group) if group["step"] else None
                if update is None:
                    continue
                params = [p for p in group["params"] if p.requires_grad]
                drawn += params
                guides = [self._variable(p, "guide", self._theta(p)) for p in params]
                self._move(update, group, params, [guides], [], stream=coupled.GUIDE_STREAM)
            yield
        finally:
            for p in drawn:
                self.state[p].pop("guide", None)
                if not self.state[p]:
                    del self.state[p]

    @staticmethod
    def update(group: Group) -> Update:
        """The step of a group, by its `integrator` and `guide_update`."""
        if group["replicas"] > 1:
            raise ConfigError(
                f"replicas must be 1 here, got replicas={group['replicas']}; use the optimizer "
                "EntropyMCMC, or chains.run"
            )
        if group["guide_update"] == "collapsed" or not group["coupled"]:
            return coupled.alone_update(group)
        if group["integrator"] != "euler":
            return coupled.joint_update(group)
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

    @classmethod
    def stacked_update(cls, group: Group) -> Update:
        """As `update`; replicas are rows one after the other."""
        return stacked_update(group) if group["replicas"] > 1 else cls.update(group)

    @staticmethod
    def guide_draw(group: Group) -> Update | None:
        """The draw of θ_a of a collapsed group."""
        return coupled.guide_draw(group)

    @staticmethod
    def target(group: Group) -> str:
        """The posterior of θ, tempered, and the Gaussian of θ_a around θ."""
        if group["replicas"] > 1:
            return replicas_in_words(group)
        spread = math.sqrt(group["eta"] * group["temperature"])
        return f"{posterior_in_words(group)}; θ_a | θ ~ N(θ, {spread:.4g}² I)"

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        coupled.check_combination(group)
        if group["guide_update"] == "euler":
            self._check_coupling(group)

    def _check_coupling(self, group: Group) -> None:
        given = f"lr={group['lr']!r}, num_data={group['num_data']!r}, eta={group['eta']!r}"
        least, formula = least_eta(group), "lr/((1+momentum)·num_data)"
        remedy = 'a larger eta, a smaller lr, or guide_update="exact"'
        if group["replicas"] > 1:
            given += f", replicas={group['replicas']}, exchange_every={group['exchange_every']}"
            formula = f"(replicas+1)·exchange_every/2·{formula}"
            remedy = "a larger eta, a smaller lr, or fewer replicas"
        if group["eta"] <= least:
            raise ConfigError(
                f"eta must be greater than {formula} = {least:.4g} for guide_update='euler', which "
                f"diverges below, got {given}; use {remedy}"
            )
        coupling = (1 + group["momentum"]) * least / group["eta"]  # lr/(ηN) of one replica
        hot = group["integrator"] == "euler" and coupling > OSCILLATES
        if hot and not self._warned:
            self._warned = True
            warnings.warn(
                f"lr/(eta·num_data) = {coupling:.3g} is above {OSCILLATES}: θ and θ_a oscillate "
                f"around each other and the chain is hotter than T ({given}); use {remedy}",
                UserWarning,
                stacklevel=2,
            )


def replicas_in_words(group: Group) -> str:
    """The joint distribution of the replicas and their guide."""
    y = group["replicas"]
    text = posterior_in_words(group).replace("θ ~ exp(−U/T)", "U of each replica")
    joint = f"θ_1 … θ_{y}, θ_a ~ exp(−[Σ U(θ_i) + Σ ‖θ_i−θ_a‖²/(2η)]/T)"
    return f"{joint}; θ_a ~ exp({y}·F(θ_a; η)); {text}"


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
