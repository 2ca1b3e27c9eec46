r"""Stochastic gradient Langevin dynamics (Welling & Teh, 2011).

.. math:: \theta \leftarrow \theta - lr\,[\hat g + \lambda\theta] + \sqrt{2\,lr\,T/N}\,\epsilon

Target: exp(−U/T), U = N·(L(θ) + ½λ‖θ‖²). On a quadratic energy of curvature h the chain has the
variance T/(h(1 − αh/2)), α = lr/N.

`lm` averages the noise of two steps (Leimkuhler & Matthews, 2013), at the same cost in gradients:

.. math::
    \theta \leftarrow \theta - lr\,[\hat g + \lambda\theta]
        + \sqrt{2\,lr\,T/N}\,(\epsilon_{\text{last}} + \epsilon)/2

ε_last is that of the step before, computed again from its counter: nothing is kept. (Of a parameter
that had no gradient there, it is that of its own last move; `kernel/rests.py`.) On a quadratic
energy the variance is T/h at every lr: with r = 1−αh and σ² = 2αT, θ' = rθ + σ(ε_last+ε)/2 and
Cov(θ, ε_last) = σ/2, so that Var = r²Var + σ²/2 + rσ²/2, that is αh(2−αh)·Var = αT(2−αh). Gradient
noise of variance V adds αV/(2h(1−αh/2)), as it does to Euler.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.samplers.base import Group, Params, Sampler
from entropy_mcmc.samplers.hyper_parameters import (
    Integrator,
    LearningRate,
    NumData,
    PriorVariance,
    Temperature,
    WeightDecay,
)
from entropy_mcmc.samplers.rule import Pair, Pairs, Update
from entropy_mcmc.units import posterior_in_words, scales


class SGLD(Sampler):
    """Sample θ from its posterior with one gradient per step.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate for the mean loss over the mini-batch.
        num_data: number N of training examples; required.
        temperature: T of the target exp(−U/T); 0 is plain SGD.
        weight_decay: λ of the prior N(0, I/(λN)).
        prior_variance: variance v of the prior N(0, v·I), instead of weight_decay = 1/(N·v).
        integrator: "euler", or "lm": averaged noise, whose samples of a Gaussian posterior have no
            bias from a finite lr. ("baoab" is for samplers with momentum.)
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.

    >>> import torch
    >>> net = torch.nn.Linear(2, 1)
    >>> sampler = SGLD(net.parameters(), lr=0.1, num_data=100, seed=0)
    >>> net(torch.ones(4, 2)).square().mean().backward(); sampler.step()
    """

    run_defaults: ClassVar = {"lr": 0.4, "temperature": 0.02, "prior_variance": 0.04}

    def __init__(
        self,
        params: Params,
        lr: LearningRate,
        *,
        num_data: NumData = None,
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
        """The Langevin step of a group, by its `integrator`."""
        s = scales(group)
        normals = 1 if s.noise else 0
        if group["integrator"] == "lm":
            c = Coefficients(s.lr, s.decay, s.noise / 2)
            return Update(averaged_langevin, Variables, c, normals, pairs=2)
        return Update(langevin, Variables, Coefficients(s.lr, s.decay, s.noise), normals)

    @staticmethod
    def target(group: Group) -> str:
        """The posterior of θ, tempered."""
        return posterior_in_words(group)

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        if group["integrator"] == "baoab":
            raise ConfigError(
                "integrator must be 'euler' or 'lm' for SGLD, which has no momentum, got "
                "integrator='baoab'; use SGHMC(..., momentum=0.9, integrator=\"baoab\")"
            )


class Variables(NamedTuple):
    """What the chain keeps for each parameter."""

    theta: Tensor


class Coefficients(NamedTuple):
    """Coefficients of one step: lr, lr·λ and √(2·lr·T/N), of `lm` half of it."""

    lr: float
    decay: float
    noise: float


def langevin(v: Variables, grad: Tensor, eps: Pair | None, c: Coefficients) -> Variables:
    """One step from the gradient ĝ of the mean loss."""
    theta = v.theta - c.lr * grad - c.decay * v.theta
    return Variables(theta if eps is None else theta + c.noise * eps[0])


def averaged_langevin(v: Variables, grad: Tensor, eps: Pairs | None, c: Coefficients) -> Variables:
    """One step with half of the last step's noise and half of a new one."""
    theta = v.theta - c.lr * grad - c.decay * v.theta
    if eps is None:
        return Variables(theta)
    last, new = eps
    return Variables(theta + c.noise * (last[0] + new[0]))
