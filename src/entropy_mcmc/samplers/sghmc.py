r"""Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin, 2014), in velocity form.

.. math::
    v &\leftarrow \mu v - lr\,[\hat g + \lambda\theta] + \sqrt{2\,lr\,T(1-\mu)/N}\,\epsilon \\
    \theta &\leftarrow \theta + v

The noise carries √(1−μ): without it the chain would run at T/(1−μ). When lr changes, v is first
multiplied by √(lr/lr_last), which keeps it at temperature T. At T = 0 and constant lr it is
`torch.optim.SGD(momentum=μ)`. On a quadratic energy of curvature h the variance of θ is
T/(h(1 − αh/(2(1+μ)))), α = lr/N.

`baoab` splits a step into a kick (B), half a drift (A), friction with noise (O) and half a drift
(A); the kick that ends a step and the one that begins the next have the same gradient and are one
(Leimkuhler & Matthews, 2013). With v the displacement per step:

.. math::
    B:\ v &\leftarrow v - \tfrac{2}{1+\mu}\,lr\,[\hat g + \lambda\theta] \qquad
    A:\ \theta \leftarrow \theta + v/2 \\
    O:\ v &\leftarrow \mu v + \sqrt{2\,lr\,T(1-\mu)/N}\,\epsilon \qquad
    A:\ \theta \leftarrow \theta + v/2

The factor 2/(1+μ) makes lr mean the same as above: at T = 0 and constant lr this, too, is
`torch.optim.SGD(momentum=μ)`, and with noise it is the rule above with (ε_last + ε)/2 for ε. At
μ = 0 it is the `lm` rule of SGLD.

Its covariance on a quadratic energy, β = 2α/(1+μ), κ = βh: O keeps v ~ N(0, βT). Let v be that and
independent of the midpoint y between the drifts. Then θ = y + v/2, the kicked velocity is
(1−κ/2)v − κy and the next midpoint (1−κ/2)y + (1−κ/4)v. Both are again independent with the same
variances if Var y = T/h − βT/4. So Var θ = T/h at every lr, Cov(θ, v) = βT/2, Var v = βT. Gradient
noise of variance V adds αV/(2(1−μ)h(1−αh/(2(1+μ)))), as it does to the rule above.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.samplers.base import Group, Params, Sampler
from entropy_mcmc.samplers.hyper_parameters import (
    Integrator,
    LearningRate,
    Momentum,
    NumData,
    PriorVariance,
    Temperature,
    WeightDecay,
)
from entropy_mcmc.samplers.rule import Pair, Update, starts
from entropy_mcmc.samplers.sgld import SGLD
from entropy_mcmc.units import carried_momentum, posterior_in_words, scales


class SGHMC(Sampler):
    """Sample θ from its posterior with momentum and one gradient per step.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate for the mean loss over the mini-batch.
        num_data: number N of training examples; required.
        momentum: μ, at least 0 and less than 1.
        temperature: T of the target exp(−U/T); 0 is SGD with momentum.
        weight_decay: λ of the prior N(0, I/(λN)).
        prior_variance: variance v of the prior N(0, v·I), instead of weight_decay = 1/(N·v).
        integrator: "euler", or "baoab": averaged noise, whose samples of a Gaussian posterior have
            no bias from a finite lr. ("lm" is for samplers without momentum.)
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.
    """

    run_defaults: ClassVar = {
        "lr": 0.1,
        "temperature": 0.02,
        "prior_variance": 0.04,
        "momentum": 0.9,
    }
    entries: ClassVar = {"last_lr": 0.0, "noise": True}

    def __init__(
        self,
        params: Params,
        lr: LearningRate,
        *,
        num_data: NumData = None,
        momentum: Momentum = 0.9,
        temperature: Temperature = 1.0,
        weight_decay: WeightDecay = 0.0,
        prior_variance: PriorVariance = None,
        integrator: Integrator = "euler",
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        super().__init__(params, locals())

    @staticmethod
    def update(group: Group) -> Update:
        """The Hamiltonian step of a group, by its `integrator`."""
        s = scales(group)
        normals = 1 if s.noise else 0
        if group["integrator"] == "baoab":
            return Update(baoab, Variables, splitting(group), normals)
        momentum = carried_momentum(group["momentum"], group["lr"], group["last_lr"])
        c = Coefficients(lr=s.lr, decay=s.decay, noise=s.noise, momentum=momentum)
        return Update(hamiltonian, Variables, c, normals)

    @staticmethod
    def target(group: Group) -> str:
        """The posterior of θ, tempered."""
        return posterior_in_words(group)

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        if group["integrator"] == "lm":
            raise ConfigError(
                "integrator must be 'euler' or 'baoab' for SGHMC, got integrator='lm', which has "
                'no momentum; use integrator="baoab" (at momentum=0 it is that rule), or '
                'SGLD(..., integrator="lm")'
            )


class Variables(NamedTuple):
    """What the chain keeps for each parameter."""

    theta: Tensor
    velocity: Tensor = starts(0.0)


class Coefficients(NamedTuple):
    """Coefficients of one step: lr, lr·λ, √(2·lr·T(1−μ)/N) and μ, rescaled if lr changed."""

    lr: float
    decay: float
    noise: float
    momentum: float


class Splitting(NamedTuple):
    """Coefficients of a BAOAB step, with share = 2/(1+μ).

    share·lr, share·lr·λ, √(lr/lr_last), μ and √(2·lr·T(1−μ)/N).
    """

    kick: float
    decay: float
    carry: float
    momentum: float
    noise: float


def splitting(group: Group) -> Splitting:
    """The coefficients of a group's BAOAB step."""
    s, mu = scales(group), group["momentum"]
    share = 2 / (1 + mu)
    carry = carried_momentum(1.0, group["lr"], group["last_lr"])
    return Splitting(share * s.lr, share * s.decay, carry, mu, s.noise)


def hamiltonian(v: Variables, grad: Tensor, eps: Pair | None, c: Coefficients) -> Variables:
    """One step from the gradient ĝ of the mean loss."""
    velocity = c.momentum * v.velocity - c.lr * grad - c.decay * v.theta
    if eps is not None:
        velocity = velocity + c.noise * eps[0]
    return Variables(v.theta + velocity, velocity)


def baoab(v: Variables, grad: Tensor, eps: Pair | None, c: Splitting) -> Variables:
    """Kick, half a drift, friction with noise, half a drift."""
    velocity = c.carry * v.velocity - c.kick * grad - c.decay * v.theta
    theta = v.theta + 0.5 * velocity
    velocity = c.momentum * velocity
    if eps is not None:
        velocity = velocity + c.noise * eps[0]
    return Variables(theta + 0.5 * velocity, velocity)


def alone_update(group: Group) -> Update:
    """The step of one variable by a group's integrator: SGHMC's with momentum, else SGLD's."""
    moving = group["momentum"] or group["integrator"] == "baoab"
    return SGHMC.update(group) if moving else SGLD.update(group)
