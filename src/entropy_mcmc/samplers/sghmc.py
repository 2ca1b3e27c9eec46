r"""Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox & Guestrin, 2014), in velocity form.

.. math::
    v &\leftarrow \mu v - lr\,[\hat g + \lambda\theta] + \sqrt{2\,lr\,T(1-\mu)/N}\,\epsilon \\
    \theta &\leftarrow \theta + v

The noise carries √(1−μ): without it the chain would run at T/(1−μ). When lr changes, v is first
multiplied by √(lr/lr_last), which keeps it at temperature T. At T = 0 and constant lr it is
`torch.optim.SGD(momentum=μ)`. On a quadratic energy of curvature h the variance of θ is
T/(h(1 − αh/(2(1+μ)))), α = lr/N.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from torch import Tensor

from entropy_mcmc.samplers.base import Group, Params, Sampler
from entropy_mcmc.samplers.hyper_parameters import (
    LearningRate,
    Momentum,
    NumData,
    PriorVariance,
    Temperature,
    WeightDecay,
)
from entropy_mcmc.samplers.rule import Pair, Update, starts
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
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.
    """

    run_defaults: ClassVar = {
        "lr": 0.02,
        "temperature": 1e-2,
        "weight_decay": 5e-4,
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
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        super().__init__(params, locals())

    @staticmethod
    def update(group: Group) -> Update:
        """The Hamiltonian step of a group."""
        s = scales(group)
        momentum = carried_momentum(group["momentum"], group["lr"], group["last_lr"])
        c = Coefficients(lr=s.lr, decay=s.decay, noise=s.noise, momentum=momentum)
        return Update(hamiltonian, Variables, c, normals=1 if s.noise else 0)

    @staticmethod
    def target(group: Group) -> str:
        """The posterior of θ, tempered."""
        return posterior_in_words(group)


class Variables(NamedTuple):
    """What the chain keeps for each parameter."""

    theta: Tensor
    velocity: Tensor = starts(0.0)


class Coefficients(NamedTuple):
    """Numbers of one step: lr, lr·λ, √(2·lr·T(1−μ)/N) and μ, rescaled if lr changed."""

    lr: float
    decay: float
    noise: float
    momentum: float


def hamiltonian(v: Variables, grad: Tensor, eps: Pair | None, c: Coefficients) -> Variables:
    """One step from the gradient ĝ of the mean loss."""
    velocity = c.momentum * v.velocity - c.lr * grad - c.decay * v.theta
    if eps is not None:
        velocity = velocity + c.noise * eps[0]
    return Variables(v.theta + velocity, velocity)
