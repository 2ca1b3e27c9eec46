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

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.errors import check_fraction, check_not_negative, check_positive
from entropy_mcmc.samplers.base import Closure, Group, Params, Sampler
from entropy_mcmc.samplers.engine import Pair

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
        damping: γ, keeps s away from zero.
        initial_scale: s₀ at the first step.
        temperature: T of the Gaussian; 0 switches the weight noise off.
        seed: of the noise; None draws one from torch's default generator.
        fused: compile the step: True, False, or "auto" (where it pays).
        check_every: steps between two reports of a non-finite gradient; 0 never looks.
    """

    needs_closure = True

    def __init__(
        self,
        params: Params,
        lr: float,
        *,
        num_data: int | None = None,
        rho: float = 0.05,
        beta1: float = 0.9,
        beta2: float = 0.999,
        weight_decay: float = 0.0,
        damping: float = 0.1,
        initial_scale: float = 1.0,
        temperature: float = 1.0,
        seed: int | None = None,
        fused: bool | str = "auto",
        check_every: int = 100,
    ) -> None:
        defaults = {
            "lr": lr,
            "num_data": num_data,
            "rho": rho,
            "beta1": beta1,
            "beta2": beta2,
            "weight_decay": weight_decay,
            "damping": damping,
            "initial_scale": initial_scale,
            "temperature": temperature,
            "noise": True,
        }
        super().__init__(params, defaults, seed=seed, fused=fused, check_every=check_every)

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
        with self._restored_on_error(params) as copies:
            for group in self.param_groups:
                self._perturb(group, list(group["params"]), PREDICTIVE_STREAM, draw)
            yield
        self._restore(params, copies)

    def _scales(self, group: Group, params: list[Tensor]) -> list[Tensor]:
        for p in params:
            if "scale" not in self.state[p]:
                self._variable(p, "scale", None).fill_(group["initial_scale"])
        return [self._variable(p, "scale", None) for p in params]

    def _perturb(self, group: Group, params: list[Tensor], stream: int = 0, draw: int = 0) -> None:
        heat = group["temperature"] if group["noise"] else 0.0
        if heat == 0 or not params:
            return
        thetas = [self._theta(p) for p in params]
        read = [self._scales(group, params)]
        coefficients = (heat / group["num_data"],)
        self._move(
            perturb,
            group,
            params,
            [thetas],
            read,
            coefficients,
            noisy=True,
            stream=stream,
            inner=draw,
        )

    @torch.no_grad()
    def _climb(self, active: list[tuple[Group, list[Tensor]]], first: dict[Tensor, Tensor]) -> None:
        for group, params in active:
            for p, scale in zip(params, self._scales(group, params), strict=True):
                self._theta(p).add_(first[p] / scale, alpha=group["rho"])
            self._publish(params)

    def _descend(self, group: Group, params: list[Tensor], first: list[Tensor]) -> None:
        thetas = [self._theta(p) for p in params]
        means = [self._variable(p, "momentum", None) for p in params]
        moved = [thetas, means, self._scales(group, params)]
        names = ("lr", "beta1", "beta2", "weight_decay", "damping")
        coefficients = tuple(group[name] for name in names)
        read = [first, self._gradients(params)]
        self._move(descend, group, params, moved, read, coefficients, noisy=False)

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        check_not_negative("rho", group["rho"])
        check_fraction("beta1", group["beta1"])
        check_fraction("beta2", group["beta2"])
        check_not_negative("damping", group["damping"])
        check_positive("initial_scale", group["initial_scale"])

    def _target(self, group: Group) -> str:
        return "Gaussian N(ω, T/(N s)) fitted by a relaxed Bayes objective"


def perturb(
    values: Sequence[Tensor], eps: Pair | None, coefficients: Sequence[Any]
) -> tuple[Tensor]:
    """ω + √(T/(N s))·ε from (ω, s) and (T/N,)."""
    omega, scale = values
    assert eps is not None
    return (omega + (coefficients[0] / scale).sqrt() * eps[0],)


def descend(
    values: Sequence[Tensor], eps: Pair | None, coefficients: Sequence[Any]
) -> tuple[Tensor, Tensor, Tensor]:
    """(ω, m, s) from (ω, m, s, g, g̃) and (lr, β₁, β₂, δ, γ)."""
    omega, momentum, scale, first, second = values
    lr, beta1, beta2, decay, damping = coefficients
    momentum = beta1 * momentum + (1 - beta1) * (second + decay * omega)
    new_scale = beta2 * scale + (1 - beta2) * (scale.sqrt() * first.abs() + damping + decay)
    return omega - lr * momentum / scale, momentum, new_scale
