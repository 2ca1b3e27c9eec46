r"""bSAM (Möllenhoff & Khan, 2023): SAM as a relaxed Bayes objective, with a diagonal Gaussian.

.. math::
    g &= \hat g(\omega + \epsilon/\sqrt{N s}\cdot\sqrt T), \qquad
    \tilde g = \hat g(\omega + \rho\,g/s) \\
    m &\leftarrow \beta_1 m + (1-\beta_1)(\tilde g + \delta\omega) \\
    \omega &\leftarrow \omega - lr\,m/s \qquad\text{with the old } s \\
    s &\leftarrow \beta_2 s + (1-\beta_2)(\sqrt s\,|g| + \gamma + \delta)

Its posterior is N(ω, T/(N s)). Each step costs two gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from entropy_mcmc.samplers.base import Closure, Group, Params, Sampler
from entropy_mcmc.samplers.hyper_parameters import (
    LearningRate,
    NumData,
    PriorVariance,
    Temperature,
    WeightDecay,
    fraction,
    not_negative,
    positive,
)
from entropy_mcmc.samplers.rule import Pair, Update, starts
from entropy_mcmc.units import heat_of

PREDICTIVE_STREAM = 1


class BSAM(Sampler):
    """Learn the mean ω and the precision N·s of a Gaussian posterior from flat regions.

    Args:
        params: parameters or groups, as for any optimizer.
        lr: learning rate; the step is preconditioned by 1/s, so it is larger than SGD's.
        num_data: number N of training examples; required.
        rho: ρ, the radius of the adversarial neighbour.
        beta1: β₁ of the momentum m.
        beta2: β₂ of the scale s.
        weight_decay: δ, the prior's precision per example.
        prior_variance: variance v of the prior N(0, v·I), instead of weight_decay = 1/(N·v).
        damping: γ, keeps s away from zero.
        initial_scale: s₀ at the first step.
        temperature: T of the Gaussian; 0 switches the weight noise off.
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.
    """

    needs_closure = True
    result = "draws"
    run_defaults: ClassVar = {
        "lr": 0.5,
        "rho": 0.01,
        "initial_scale": 1.0,
        "temperature": 1.0,
        "prior_variance": 0.04,
    }

    def __init__(
        self,
        params: Params,
        lr: LearningRate,
        *,
        num_data: NumData = None,
        rho: Annotated[float, not_negative()] = 0.05,
        beta1: Annotated[float, fraction()] = 0.9,
        beta2: Annotated[float, fraction()] = 0.999,
        weight_decay: WeightDecay = 0.0,
        prior_variance: PriorVariance = None,
        damping: Annotated[float, not_negative()] = 0.1,
        initial_scale: Annotated[float, positive()] = 1.0,
        temperature: Temperature = 1.0,
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        super().__init__(params, locals())

    def step(self, closure: Closure | None = None) -> Any:
        """Gradient at a draw, gradient at the neighbour, step from ω; returns the first loss."""
        self._begin(closure)
        assert closure is not None
        everyone = [(group, list(group["params"])) for group in self.param_groups]
        params = [p for _, members in everyone for p in members if p.requires_grad]
        with self._restored_on_error(params) as copies:
            for group, members in everyone:
                self._perturb(group, [p for p in members if p.requires_grad])
            loss = self._evaluate(closure)
            active = self._active()
            self._restore(params, copies)
            touched = [p for _, members in active for p in members]
            grads = [grad.clone() for grad in self._gradients(touched)]
            first = dict(zip(touched, grads, strict=True))
            self._climb(active, first)
            self._evaluate(closure)
            self._watch_gradients(touched)
            self._restore(params, copies)
        for group, members in active:
            self._descend(group, members, [first[p] for p in members])
        self._end()
        return loss

    @contextmanager
    def sampled(self, draw: int = 0) -> Iterator[None]:
        """Show draw number `draw` of N(ω, T/(N s)) to the model inside a `with` block."""
        params = [p for group in self.param_groups for p in group["params"]]
        with self._block("sampled()"):
            with self._restored_on_error(params) as copies:
                for group in self.param_groups:
                    self._perturb(group, list(group["params"]), PREDICTIVE_STREAM, draw)
                yield
            self._restore(params, copies)

    def _perturb(self, group: Group, params: list[Tensor], stream: int = 0, draw: int = 0) -> None:
        heat = heat_of(group)
        if heat == 0 or not params:
            return
        update = Update(perturb, Omega, Spread(heat / group["num_data"]), normals=1)
        moved = [[self._theta(p) for p in params]]
        scales = [self._scale(group, p) for p in params]
        self._move(update, group, params, moved, [scales], stream=stream, inner=draw)

    @torch.no_grad()
    def _climb(self, active: list[tuple[Group, list[Tensor]]], first: dict[Tensor, Tensor]) -> None:
        for group, params in active:
            for p in params:
                self._theta(p).add_(first[p] / self._scale(group, p), alpha=group["rho"])
            self._publish(params)

    def _descend(self, group: Group, params: list[Tensor], first: list[Tensor]) -> None:
        c = Coefficients(*(group[name] for name in Coefficients._fields))
        update = Update(descend, Variables, c, normals=0)
        moved = self._variables(update, group, params)
        self._move(update, group, params, moved, [first, self._gradients(params)])

    def _scale(self, group: Group, param: Tensor) -> Tensor:
        return self._variable(param, "scale", group["initial_scale"])

    @staticmethod
    def gradients_per_step(group: Mapping[str, Any]) -> int:
        """Two: at a draw and at its neighbour."""
        return 2

    @staticmethod
    def target(group: Group) -> str:
        """The Gaussian that it fits."""
        return "Gaussian N(ω, T/(N s)) fitted by a relaxed Bayes objective"


class Omega(NamedTuple):
    """The variable of a draw."""

    omega: Tensor


class Spread(NamedTuple):
    """Coefficient of a draw: T/N."""

    variance: float


class Variables(NamedTuple):
    """What is kept for each parameter: ω, its momentum m and its scale s."""

    omega: Tensor
    momentum: Tensor = starts(0.0)
    scale: Tensor = starts("initial_scale")


class Coefficients(NamedTuple):
    """Coefficients of one step: lr, β₁, β₂, δ and γ, by the names of the hyper-parameters."""

    lr: float
    beta1: float
    beta2: float
    weight_decay: float
    damping: float


def perturb(v: Omega, scale: Tensor, eps: Pair | None, c: Spread) -> Omega:
    """A draw of N(ω, T/(N s))."""
    assert eps is not None
    return Omega(v.omega + (c.variance / scale).sqrt() * eps[0])


def descend(
    v: Variables, first: Tensor, second: Tensor, eps: Pair | None, c: Coefficients
) -> Variables:
    """One step from the gradients g at the draw and g̃ at its neighbour, with the old s."""
    slope = second + c.weight_decay * v.omega
    momentum = c.beta1 * v.momentum + (1 - c.beta1) * slope
    curvature = v.scale.sqrt() * first.abs() + c.damping + c.weight_decay
    scale = c.beta2 * v.scale + (1 - c.beta2) * curvature
    return Variables(v.omega - c.lr * momentum / v.scale, momentum, scale)
