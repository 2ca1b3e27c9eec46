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
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from entropy_mcmc.errors import ConfigError, check_choice, check_not_negative
from entropy_mcmc.samplers.base import Group, Params, Sampler
from entropy_mcmc.samplers.engine import Pair, Rule
from entropy_mcmc.samplers.explain import describe_posterior
from entropy_mcmc.samplers.guide import showing_guide
from entropy_mcmc.samplers.scales import carried_momentum, scales

OSCILLATES = 0.5


class EntropyMCMC(Sampler):
    """Sample θ and its guide θ_a with one gradient per step.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate for the mean loss over the mini-batch. Under strong coupling the pair
            moves like one particle of twice the mass: it learns at half the speed of SGD.
        num_data: number N of training examples; required.
        eta: η, the variance of θ_a around θ at T = 1. The guide averages θ over about ηN/lr steps:
            choose it with N, lr and the length of a cycle in mind.
        temperature: T of the target; 0 is the noiseless optimizer.
        weight_decay: λ of the prior N(0, I/(λN)) of θ; it never touches θ_a.
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

    _warned = False

    def __init__(
        self,
        params: Params,
        lr: float,
        *,
        num_data: int | None = None,
        eta: float,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        guide_update: str = "euler",
        guide_weight_decay: float = 0.0,
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        defaults = {
            "lr": lr,
            "num_data": num_data,
            "eta": eta,
            "temperature": temperature,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "last_lr": 0.0,
            "guide_update": guide_update,
            "guide_weight_decay": guide_weight_decay,
            "noise": True,
        }
        super().__init__(params, defaults, seed=seed, fused=fused, check_every=check_every)

    def guide(self) -> AbstractContextManager[None]:
        """Show θ_a to the model inside a `with` block; buffers (batch norm) are the caller's."""
        if self._watch:
            self._watch.report()
        return showing_guide(self)

    def _update(self, group: Group, params: list[Tensor]) -> None:
        thetas = [self._theta(p) for p in params]
        moved = [thetas, [self._variable(p, "guide", self._theta(p)) for p in params]]
        if group["momentum"]:
            moved.append([self._variable(p, "velocity", None) for p in params])
            moved.append([self._variable(p, "guide_velocity", None) for p in params])
        rule, coefficients = choose_rule(group)
        grads = self._gradients(params)
        noisy = scales(group).noise > 0
        self._move(rule, group, params, moved, [grads], coefficients, noisy=noisy)
        group["last_lr"] = group["lr"]

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        update = group["guide_update"]
        check_choice("guide_update", update, ("euler", "exact", "gibbs"))
        check_not_negative("guide_weight_decay", group["guide_weight_decay"])
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
        found = f"lr={group['lr']!r}, num_data={group['num_data']!r}, eta={group['eta']!r}"
        least = group["lr"] / ((1 + group["momentum"]) * group["num_data"])
        if group["eta"] <= least:
            raise ConfigError(
                f"eta must be greater than lr/((1+momentum)·num_data) = {least:.4g} for the Euler "
                f"rule, which diverges below, got {found}; use a larger eta, a smaller lr, or "
                f'guide_update="exact"'
            )
        if coupling > OSCILLATES and not self._warned:
            self._warned = True
            warnings.warn(
                f"lr/(eta·num_data) = {coupling:.3g} is above {OSCILLATES}: θ and θ_a oscillate "
                f"around each other and the chain is hotter than T ({found}); use a larger eta, a "
                f'smaller lr, or guide_update="exact"',
                UserWarning,
                stacklevel=2,
            )

    def _target(self, group: Group) -> str:
        spread = math.sqrt(group["eta"] * group["temperature"])
        return f"{describe_posterior(group)}; θ_a | θ ~ N(θ, {spread:.4g}² I)"


def choose_rule(group: Group) -> tuple[Rule, tuple[float, ...]]:
    """The update rule of a group and the coefficients that it takes."""
    s, update, eta = scales(group), group["guide_update"], group["eta"]
    if update == "exact":
        shrink = math.exp(-2 * s.alpha / eta)
        spread = math.sqrt(-eta * s.heat * math.expm1(-4 * s.alpha / eta))
        return exact, (s.lr, s.decay, math.sqrt(s.alpha * s.heat), shrink, spread)
    if update == "gibbs":
        return gibbs, (s.lr, s.decay, s.coupling, s.noise, math.sqrt(eta * s.heat))
    common = (s.lr, s.decay, s.coupling, s.lr * group["guide_weight_decay"], s.noise)
    if group["momentum"]:
        return euler_momentum, (*common, carried_momentum(group))
    return euler, common


def euler(
    values: Sequence[Tensor], eps: Pair | None, coefficients: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """(θ, θ_a) from (θ, θ_a, ĝ) and (lr, lr·λ, lr/(ηN), decay of the guide, noise scale)."""
    theta, guide, grad = values
    lr, decay, coupling, guide_decay, noise = coefficients
    pull = coupling * (theta - guide)
    theta = theta - lr * grad - decay * theta - pull
    guide = guide + pull - guide_decay * guide
    if eps is not None:
        theta, guide = theta + noise * eps[0], guide + noise * eps[1]
    return theta, guide


def euler_momentum(
    values: Sequence[Tensor], eps: Pair | None, coefficients: Sequence[Any]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(θ, θ_a, v, v_a) from (θ, θ_a, v, v_a, ĝ); coefficients of `euler`, then μ."""
    theta, guide, velocity, guide_velocity, grad = values
    lr, decay, coupling, guide_decay, noise, momentum = coefficients
    pull = coupling * (theta - guide)
    velocity = momentum * velocity - lr * grad - decay * theta - pull
    guide_velocity = momentum * guide_velocity + pull - guide_decay * guide
    if eps is not None:
        velocity, guide_velocity = velocity + noise * eps[0], guide_velocity + noise * eps[1]
    return theta + velocity, guide + guide_velocity, velocity, guide_velocity


def exact(
    values: Sequence[Tensor], eps: Pair | None, coefficients: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """(θ, θ_a) from (θ, θ_a, ĝ) and (lr, lr·λ, √(αT), e^{−2α/η}, √(ηT(1−e^{−4α/η})))."""
    theta, guide, grad = values
    lr, decay, drift, shrink, spread = coefficients
    theta = theta - lr * grad - decay * theta
    centre, half = 0.5 * (theta + guide), 0.5 * shrink * (theta - guide)
    if eps is not None:
        centre, half = centre + drift * eps[0], half + 0.5 * spread * eps[1]
    return centre + half, centre - half


def gibbs(
    values: Sequence[Tensor], eps: Pair | None, coefficients: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """(θ, θ_a) from (θ, θ_a, ĝ) and (lr, lr·λ, lr/(ηN), noise scale, √(ηT))."""
    theta, guide, grad = values
    lr, decay, coupling, noise, spread = coefficients
    theta = theta - lr * grad - decay * theta - coupling * (theta - guide)
    if eps is None:
        return theta, theta
    theta = theta + noise * eps[0]
    return theta, theta + spread * eps[1]
