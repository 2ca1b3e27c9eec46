r"""Preconditioned SGLD (Li, Chen, Carlson & Carin, 2016): steps scaled by RMSprop's G.

.. math::
    V &\leftarrow \beta V + (1-\beta)\,\hat g^2 \quad\text{in the first } freeze\_after
        \text{ steps}, \qquad G = 1/(\varepsilon + \sqrt V) \\
    \theta &\leftarrow \theta - lr\,G\,[\hat g + \lambda\theta] + \sqrt{2\,lr\,T\,G/N}\,\epsilon

Target: exp(−U/T), once G is constant: on a quadratic energy of Hessian A the covariance is then
T[A − αAGA/2]⁻¹, α = lr/N. While G adapts, the term Γ = ∂G/∂θ of the paper is left out, as it is in
all implementations, so that states of the first `freeze_after` steps are not samples of the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

from torch import Tensor

from entropy_mcmc.samplers.base import Group, Params, Sampler
from entropy_mcmc.samplers.hyper_parameters import (
    LearningRate,
    NumData,
    PriorVariance,
    Temperature,
    WeightDecay,
    count,
    fraction,
    positive,
)
from entropy_mcmc.samplers.rule import Pair, Update, starts
from entropy_mcmc.units import posterior_in_words, scales


class PSGLD(Sampler):
    """Sample θ from its posterior with steps fitted to the size of each coordinate's gradient.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate, as for RMSprop: G multiplies it.
        num_data: number N of training examples; required.
        temperature: T of the target exp(−U/T); 0 is RMSprop.
        weight_decay: λ of the prior N(0, I/(λN)).
        prior_variance: variance v of the prior N(0, v·I), instead of weight_decay = 1/(N·v).
        smoothing: β of the running mean V of squared gradients.
        epsilon: ε, which bounds G by 1/ε.
        freeze_after: steps after which G stays as it is; only then is the target exact.
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.
    """

    run_defaults: ClassVar = {
        "lr": 1e-3,
        "temperature": 0.02,
        "prior_variance": 0.04,
        "freeze_after": 400,
    }

    def __init__(
        self,
        params: Params,
        lr: LearningRate,
        *,
        num_data: NumData = None,
        temperature: Temperature = 1.0,
        weight_decay: WeightDecay = 0.0,
        prior_variance: PriorVariance = None,
        smoothing: Annotated[float, fraction()] = 0.99,
        epsilon: Annotated[float, positive()] = 1e-5,
        freeze_after: Annotated[int, count(least=0)] = 1000,
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        super().__init__(params, locals())

    @staticmethod
    def update(group: Group) -> Update:
        """The Langevin step of a group, with its preconditioner."""
        s = scales(group)
        keep = group["smoothing"] if group["step"] < group["freeze_after"] else 1.0
        c = Coefficients(s.lr, s.decay, s.noise, keep, group["epsilon"])
        return Update(preconditioned, Variables, c, normals=1 if s.noise else 0)

    @staticmethod
    def settles_after(group: Mapping[str, Any]) -> int:
        """G is constant from there on."""
        steps: int = group["freeze_after"]
        return steps

    @staticmethod
    def target(group: Group) -> str:
        """The posterior of θ, tempered."""
        return f"{posterior_in_words(group)}, after {group['freeze_after']:,} steps"


class Variables(NamedTuple):
    """What the chain keeps for each parameter: θ and V."""

    theta: Tensor
    square: Tensor = starts(0.0)


class Coefficients(NamedTuple):
    """Coefficients of one step: lr, lr·λ, √(2·lr·T/N), β (1 when frozen) and ε."""

    lr: float
    decay: float
    noise: float
    keep: float
    epsilon: float


def preconditioned(v: Variables, grad: Tensor, eps: Pair | None, c: Coefficients) -> Variables:
    """One step from the gradient ĝ of the mean loss."""
    square = c.keep * v.square + (1 - c.keep) * grad * grad
    scale = 1 / (c.epsilon + square.sqrt())
    theta = v.theta - scale * (c.lr * grad + c.decay * v.theta)
    if eps is not None:
        theta = theta + c.noise * scale.sqrt() * eps[0]
    return Variables(theta, square)
