r"""IVON, improved variational online Newton (Shen et al., ICML 2024), from its equations.

With effective sample size N and weight decay :math:`\delta`, a step takes one gradient

.. math::
    \theta &= m + \epsilon/\sqrt{N(h+\delta)}, \qquad \hat g = \hat g(\theta), \qquad
    \hat h = N(h+\delta)(\theta-m)\,\hat g \\
    g &\leftarrow \beta_1 g + (1-\beta_1)\hat g \\
    h &\leftarrow \beta_2 h + (1-\beta_2)\hat h + \tfrac12(1-\beta_2)^2(h-\hat h)^2/(h+\delta) \\
    m &\leftarrow m - lr\,(h_0+\delta)\,[g/(1-\beta_1^t) + \delta m]/(h+\delta)

lr is multiplied by h₀ + δ, as in its authors' code, so that the first step is SGD's. The posterior
is N(m, 1/(N(h+δ))).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

BETA1 = 0.9
# Its authors' ResNet-20 on CIFAR-10 has β₂ = 0.99999 and 200,000 steps: (1 − β₂)·steps = 2.
CURVATURES = 2.0


def beta2_of(steps: int) -> float:
    """β₂ with which h takes in as much over a run as in its authors' runs, however short.

    >>> beta2_of(200_000), beta2_of(1000)
    (0.99999, 0.998)
    """
    return max(BETA1, 1 - CURVATURES / steps)


class IVON(Optimizer):
    """Learn the mean and the diagonal precision of a Gaussian.

    Args:
        params: parameters.
        lr: of the first step, for the mean loss.
        num_data: N, over the noise variance for half the squared error.
        initial_scale: h₀.
        weight_decay: δ, positive.
        beta2: β₂; β₁ is 0.9.
        seed: of the noise; training and prediction have streams of their own.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        *,
        num_data: float,
        initial_scale: float,
        weight_decay: float,
        beta2: float,
        seed: int,
    ) -> None:
        for name, value in (("initial_scale", initial_scale), ("weight_decay", weight_decay)):
            if value <= 0:
                raise ValueError(f"{name} must be positive, got {name}={value!r}; use SGD without")
        defaults = {"lr": lr, "num_data": num_data, "initial_scale": initial_scale}
        defaults |= {"weight_decay": weight_decay, "beta2": beta2}
        super().__init__(params, defaults)
        self._seed, self._steps = seed, 0
        self._training = torch.Generator().manual_seed(2 * seed)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Any:
        """One gradient, at a draw; returns the loss there."""
        if closure is None:
            raise ValueError("IVON takes its gradient at a draw: give step a closure")
        self._steps += 1
        means = self._draw(self._training)
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                self._update(group, p, means[p])
        return loss

    @contextmanager
    def sampled(self, draw: int = 0) -> Iterator[None]:
        """Show draw number `draw` of the Gaussian inside a `with` block."""
        seed = 2 * (self._seed + 1_000_003 * (draw + 1)) + 1
        means = self._draw(torch.Generator().manual_seed(seed))
        try:
            yield
        finally:
            with torch.no_grad():
                for p, mean in means.items():
                    p.copy_(mean)

    @torch.no_grad()
    def _draw(self, generator: torch.Generator) -> dict[Tensor, Tensor]:
        """Put a draw into the parameters; returns their means."""
        means = {}
        for group in self.param_groups:
            for p in group["params"]:
                means[p] = p.clone()
                noise = torch.randn(p.shape, generator=generator).to(p)
                p.add_(noise / self._precision(group, p).sqrt())
        return means

    def _precision(self, group: dict[str, Any], p: Tensor) -> Tensor:
        precision: Tensor = group["num_data"] * (self._state(group, p)["h"] + group["weight_decay"])
        return precision

    def _state(self, group: dict[str, Any], p: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[p]
        if not state:
            state["g"] = torch.zeros_like(p)
            state["h"] = torch.full_like(p, group["initial_scale"])
        return state

    def _update(self, group: dict[str, Any], p: Tensor, mean: Tensor) -> None:
        state, delta = self._state(group, p), group["weight_decay"]
        beta1, beta2 = BETA1, group["beta2"]
        assert p.grad is not None
        h, grad = state["h"], p.grad
        seen = self._precision(group, p) * (p - mean) * grad
        correction = 0.5 * (1 - beta2) ** 2 * (h - seen).square() / (h + delta)
        state["g"] = beta1 * state["g"] + (1 - beta1) * grad
        state["h"] = beta2 * h + (1 - beta2) * seen + correction
        slope = state["g"] / (1 - beta1**self._steps) + delta * mean
        first = group["initial_scale"] + delta
        p.copy_(mean - group["lr"] * first * slope / (state["h"] + delta))
