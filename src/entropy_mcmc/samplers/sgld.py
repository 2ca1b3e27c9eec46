r"""Stochastic gradient Langevin dynamics (Welling & Teh, 2011).

.. math:: \theta \leftarrow \theta - lr\,[\hat g + \lambda\theta] + \sqrt{2\,lr\,T/N}\,\epsilon

Target: exp(−U/T), U = N·(L(θ) + ½λ‖θ‖²). On a quadratic energy of curvature h the chain has the
variance T/(h(1 − αh/2)), α = lr/N.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from torch import Tensor

from entropy_mcmc.samplers.base import Group, Params, Sampler
from entropy_mcmc.samplers.hyper_parameters import (
    LearningRate,
    NumData,
    PriorVariance,
    Temperature,
    WeightDecay,
)
from entropy_mcmc.samplers.rule import Pair, Update
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
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.

    >>> import torch
    >>> net = torch.nn.Linear(2, 1)
    >>> sampler = SGLD(net.parameters(), lr=0.1, num_data=100, seed=0)
    >>> net(torch.ones(4, 2)).square().mean().backward(); sampler.step()
    """

    run_defaults: ClassVar = {"lr": 0.2, "temperature": 1e-2, "weight_decay": 5e-4}

    def __init__(
        self,
        params: Params,
        lr: LearningRate,
        *,
        num_data: NumData = None,
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
        """The Langevin step of a group."""
        s = scales(group)
        c = Coefficients(lr=s.lr, decay=s.decay, noise=s.noise)
        return Update(langevin, Variables, c, normals=1 if s.noise else 0)

    @staticmethod
    def target(group: Group) -> str:
        """The posterior of θ, tempered."""
        return posterior_in_words(group)


class Variables(NamedTuple):
    """What the chain keeps for each parameter."""

    theta: Tensor


class Coefficients(NamedTuple):
    """Numbers of one step: lr, lr·λ and √(2·lr·T/N)."""

    lr: float
    decay: float
    noise: float


def langevin(v: Variables, grad: Tensor, eps: Pair | None, c: Coefficients) -> Variables:
    """One step from the gradient ĝ of the mean loss."""
    theta = v.theta - c.lr * grad - c.decay * v.theta
    return Variables(theta if eps is None else theta + c.noise * eps[0])
