r"""Stochastic gradient Langevin dynamics (Welling & Teh, 2011).

.. math:: \theta \leftarrow \theta - lr\,[\hat g + \lambda\theta] + \sqrt{2\,lr\,T/N}\,\epsilon

Target: exp(−U/T), U = N·(L(θ) + ½λ‖θ‖²). On a quadratic energy of curvature h the chain has the
variance T/(h(1 − αh/2)), α = lr/N.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from entropy_mcmc.samplers.base import Group, Params, Sampler
from entropy_mcmc.samplers.engine import Pair
from entropy_mcmc.samplers.explain import describe_posterior
from entropy_mcmc.samplers.scales import scales


class SGLD(Sampler):
    """Sample θ from its posterior with one gradient per step.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate for the mean loss over the mini-batch.
        num_data: number N of training examples; required.
        temperature: T of the target exp(−U/T); 0 is plain SGD.
        weight_decay: λ of the prior N(0, I/(λN)).
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.

    >>> import torch
    >>> net = torch.nn.Linear(2, 1)
    >>> sampler = SGLD(net.parameters(), lr=0.1, num_data=100, seed=0)
    >>> net(torch.ones(4, 2)).square().mean().backward(); sampler.step()
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        *,
        num_data: int | None = None,
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
            "noise": True,
        }
        super().__init__(params, defaults, seed=seed, fused=fused, check_every=check_every)

    def _update(self, group: Group, params: list[Tensor]) -> None:
        scale = scales(group)
        thetas = [self._theta(p) for p in params]
        self._move(
            langevin,
            group,
            params,
            [thetas],
            [self._gradients(params)],
            (scale.lr, scale.decay, scale.noise),
            noisy=scale.noise > 0,
        )

    def _target(self, group: Group) -> str:
        return describe_posterior(group)


def langevin(
    values: Sequence[Tensor], eps: Pair | None, coefficients: Sequence[Any]
) -> tuple[Tensor]:
    """θ from (θ, ĝ), the noise and (lr, lr·λ, noise scale)."""
    theta, grad = values
    lr, decay, noise = coefficients
    theta = theta - lr * grad - decay * theta
    return (theta if eps is None else theta + noise * eps[0],)
