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

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from entropy_mcmc.samplers.base import Group, Params, Sampler
from entropy_mcmc.samplers.engine import Pair
from entropy_mcmc.samplers.explain import describe_posterior
from entropy_mcmc.samplers.scales import carried_momentum, scales


class SGHMC(Sampler):
    """Sample θ from its posterior with momentum and one gradient per step.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate for the mean loss over the mini-batch.
        num_data: number N of training examples; required.
        momentum: μ, at least 0 and less than 1.
        temperature: T of the target exp(−U/T); 0 is SGD with momentum.
        weight_decay: λ of the prior N(0, I/(λN)).
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        *,
        num_data: int | None = None,
        momentum: float = 0.9,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        defaults = {
            "lr": lr,
            "num_data": num_data,
            "temperature": temperature,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "last_lr": 0.0,
            "noise": True,
        }
        super().__init__(params, defaults, seed=seed, fused=fused, check_every=check_every)

    def _update(self, group: Group, params: list[Tensor]) -> None:
        scale = scales(group)
        thetas = [self._theta(p) for p in params]
        velocities = [self._variable(p, "velocity", None) for p in params]
        self._move(
            hamiltonian,
            group,
            params,
            [thetas, velocities],
            [self._gradients(params)],
            (scale.lr, scale.decay, scale.noise, carried_momentum(group)),
            noisy=scale.noise > 0,
        )
        group["last_lr"] = group["lr"]

    def _target(self, group: Group) -> str:
        return describe_posterior(group)


def hamiltonian(
    values: Sequence[Tensor], eps: Pair | None, coefficients: Sequence[Any]
) -> tuple[Tensor, Tensor]:
    """(θ, v) from (θ, v, ĝ), the noise and (lr, lr·λ, noise scale, μ)."""
    theta, velocity, grad = values
    lr, decay, noise, momentum = coefficients
    velocity = momentum * velocity - lr * grad - decay * theta
    if eps is not None:
        velocity = velocity + noise * eps[0]
    return theta + velocity, velocity
