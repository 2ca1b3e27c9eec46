r"""Sharpness-aware minimisation (Foret et al., 2021), and its adaptive form (Kwon et al., 2021).

.. math::
    e = \rho\,\hat g(\theta)/\|\hat g(\theta)\| \quad\text{or, adaptive,}\quad
    e = \rho\,\theta^2\hat g(\theta)/\|\theta\,\hat g(\theta)\|

    v \leftarrow \mu v - lr\,[\hat g(\theta+e) + \lambda\theta], \qquad \theta \leftarrow \theta + v

Each step costs two gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from entropy_mcmc.samplers.base import Closure, Group, Params, Sampler
from entropy_mcmc.samplers.hyper_parameters import (
    LearningRate,
    Momentum,
    NumData,
    PriorVariance,
    WeightDecay,
    positive,
)
from entropy_mcmc.samplers.rule import Update
from entropy_mcmc.samplers.sghmc import Coefficients, Variables, hamiltonian

TINY = 1e-12


class SAM(Sampler):
    """Minimise the loss of the worst neighbour within a distance ρ.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate for the mean loss over the mini-batch.
        rho: ρ, the radius of the neighbourhood; 0.05 is usual, 0.5 to 2 for the adaptive form.
        adaptive: measure the distance relative to the size of each parameter (ASAM).
        momentum: μ of the velocity.
        weight_decay: λ, applied at θ, not at the neighbour.
        prior_variance: variance v of the prior N(0, v·I), instead of weight_decay = 1/(N·v).
        num_data: number N of training examples; only prior_variance needs it.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.
    """

    needs_closure = True
    result = "point"
    run_defaults: ClassVar = {"lr": 0.1, "momentum": 0.9, "prior_variance": 0.04, "rho": 0.05}
    entries: ClassVar[Mapping[str, Any]] = {}
    only_at_start = frozenset({"num_data"})

    def __init__(
        self,
        params: Params,
        lr: LearningRate,
        *,
        rho: Annotated[float, positive("use torch.optim.SGD for no neighbourhood")] = 0.05,
        adaptive: bool = False,
        momentum: Momentum = 0.0,
        weight_decay: WeightDecay = 0.0,
        prior_variance: PriorVariance = None,
        num_data: NumData = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        super().__init__(params, locals())

    def step(self, closure: Closure | None = None) -> Any:
        """Climb to the neighbour, take its gradient, step from θ; returns the loss at θ."""
        self._begin(closure)
        assert closure is not None
        loss = self._evaluate(closure)
        active = self._active()
        params = [p for _, members in active for p in members]
        with self._restored_on_error(params) as copies:
            self._climb(active)
            self._evaluate(closure)
            self._watch_gradients(params)
            self._restore(params, copies)
        for group, members in active:
            update = self.update(group)
            moved = self._variables(update, group, members)
            self._move(update, group, members, moved, [self._gradients(members)])
        self._end()
        return loss

    @torch.no_grad()
    def _climb(self, active: list[tuple[Group, list[Tensor]]]) -> None:
        weighted = [
            (group, p, self._theta(p), grad * self._theta(p).abs() if group["adaptive"] else grad)
            for group, params in active
            for p, grad in zip(params, self._gradients(params), strict=True)
        ]
        norm = total_norm([direction for *_, direction in weighted])
        for group, _, theta, direction in weighted:
            stretch = theta.abs() if group["adaptive"] else 1.0
            theta.add_(stretch * direction * (group["rho"] / (norm + TINY)))
        self._publish([p for _, p, *_ in weighted])

    @staticmethod
    def update(group: Group) -> Update:
        """SGD with momentum, from the gradient at the neighbour."""
        decay = group["lr"] * group["weight_decay"]
        c = Coefficients(lr=group["lr"], decay=decay, noise=0.0, momentum=group["momentum"])
        return Update(hamiltonian, Variables, c, normals=0)

    @staticmethod
    def gradients_per_step(group: Mapping[str, Any]) -> int:
        """Two: at θ and at its neighbour."""
        return 2

    @staticmethod
    def target(group: Group) -> str:
        """None: it is an optimizer."""
        return f"none: minimises the worst loss within {group['rho']:.4g} of θ"


def total_norm(tensors: list[Tensor]) -> Tensor:
    """Euclidean norm over all tensors and, for sharded ones, over all ranks."""
    norm = torch.nn.utils.get_total_norm(tensors)
    full = getattr(norm, "full_tensor", None)
    return norm if full is None else full()
