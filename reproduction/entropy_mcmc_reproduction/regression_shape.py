r"""How the noise of a regression varies from row to row, learned from held-out errors.

.. math:: \log s(x) = \log s + w\cdot\varphi(x), \qquad w \sim N(0, \tau^2 I),

with features φ of the mean prediction and of the inputs, standardised over the held-out rows. w has
the highest posterior density under Student-t errors of the mean prediction. τ is the one of the
highest density of errors in five folds of the held-out rows; 0, that is no shape, unless it gains
more than one standard error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

KINDS = ("mean", "inputs", "squares")
SPREADS = (0.03, 0.1, 0.3)  # τ, beside 0
FOLDS = 5
MOST = 3.0  # standard deviations of a feature, and logarithms of ρ, beyond which it is cut
FIRST_TAIL = 6.0  # degrees of freedom, with a prior worth little: log-normal of width 1


def features(kind: str, means: Tensor, inputs: Tensor) -> Tensor:
    """φ of every row: (runs, rows, features), from outputs (networks, runs, rows)."""
    mean = means.double().mean(0)[..., None].clamp(-MOST, MOST)
    x = inputs.double().clamp(-MOST, MOST)
    parts = [mean, mean.square()]
    if kind != "mean":
        parts.append(x)
    if kind == "squares":
        parts.append(x.square())
    return torch.cat(parts, dim=2)


@dataclass(frozen=True)
class Shape:
    """ρ(x) = s(x)/s of each run.

    Attributes:
        kind: One of `KINDS`.
        centre, scale: Of the features, (runs, features).
        weights: w, (runs, features).
        spreads: τ, (runs,).
    """

    kind: str
    centre: Tensor
    scale: Tensor
    weights: Tensor
    spreads: Tensor

    @classmethod
    def given(cls, kind: str, means: Tensor, inputs: Tensor, targets: Tensor) -> Shape:
        """From outputs (networks, runs, rows), inputs and targets of held-out rows."""
        phi = features(kind, means, inputs)
        centre, scale = phi.mean(1), phi.std(1).clamp(min=1e-6)
        phi = standardised(phi, centre, scale)
        squares = (targets.double() - means.double().mean(0)).square()
        chosen = [chosen_fit(p, s) for p, s in zip(phi, squares, strict=True)]
        spreads = torch.tensor([spread for spread, _ in chosen], dtype=torch.float64)
        return cls(kind, centre, scale, torch.stack([w for _, w in chosen]), spreads)

    @classmethod
    def flat(cls, kind: str, means: Tensor, inputs: Tensor) -> Shape:
        """ρ = 1 everywhere."""
        phi = features(kind, means[:, :, :1], inputs[:, :1])
        none = torch.zeros_like(phi[:, 0])
        return cls(kind, none, none + 1, none, none[:, 0])

    @classmethod
    def together(cls, parts: Sequence[Shape]) -> Shape:
        """Runs of several, one after the other."""
        names = ("centre", "scale", "weights", "spreads")
        joined = [torch.cat([getattr(part, name) for part in parts]) for name in names]
        return cls(parts[0].kind, *joined)

    def of(self, runs: list[int]) -> Shape:
        """Some of the runs."""
        parts = (self.centre, self.scale, self.weights, self.spreads)
        return Shape(self.kind, *(part[runs] for part in parts))

    def relative(self, means: Tensor, inputs: Tensor) -> Tensor:
        """ρ of every row: (runs, rows)."""
        phi = standardised(features(self.kind, means, inputs), self.centre, self.scale)
        slopes = torch.einsum("rnf,rf->rn", phi, self.weights)
        return slopes.nan_to_num(nan=0.0).clamp(-MOST, MOST).exp()  # NaN: the run diverged


def standardised(phi: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    """Features with mean 0 and variance 1 over the held-out rows, cut far outside of them."""
    return ((phi - centre[:, None]) / scale[:, None]).clamp(-MOST, MOST)


def chosen_fit(phi: Tensor, squares: Tensor) -> tuple[float, Tensor]:
    """τ by folds and w of one run, from features (rows, features) and squared errors."""
    if not bool(torch.isfinite(squares).all()):
        return 0.0, phi.new_zeros(phi.shape[1])
    without = in_folds(phi, squares, 0.0)
    best, most = 0.0, 0.0
    for spread in SPREADS:
        gain = in_folds(phi, squares, spread) - without
        if gain.mean() > max(most, float(gain.std()) / math.sqrt(len(gain))):
            best, most = spread, float(gain.mean())
    return best, fit(phi, squares, best)[0]


def in_folds(phi: Tensor, squares: Tensor, spread: float) -> Tensor:
    """Log-density of every row's error, from the rows of the other folds."""
    fold, density = torch.arange(len(phi)) % FOLDS, torch.empty_like(squares)
    for k in range(FOLDS):
        held = fold == k
        weights, level, tail = fit(phi[~held], squares[~held], spread)
        density[held] = log_density(squares[held], level + phi[held] @ weights, tail)
    return density


def log_density(squares: Tensor, log_scale: Tensor, log_tail: Tensor) -> Tensor:
    """Log-density of Student-t errors of scale² exp(log_scale) and exp(log_tail) degrees."""
    nu = log_tail.exp()
    constant = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - 0.5 * torch.log(math.pi * nu)
    return (
        constant - 0.5 * log_scale - 0.5 * (nu + 1) * torch.log1p(squares / (nu * log_scale.exp()))
    )


def fit(phi: Tensor, squares: Tensor, spread: float) -> tuple[Tensor, Tensor, Tensor]:
    """w, log s and log ν of the highest posterior density; w = 0 at τ = 0."""
    weights = phi.new_zeros(phi.shape[1], requires_grad=spread > 0)
    level = squares.mean().clamp(min=1e-12).log().detach().clone().requires_grad_()
    tail = torch.tensor(math.log(FIRST_TAIL), dtype=phi.dtype, requires_grad=True)
    open_ones = [level, tail, *([weights] if spread > 0 else [])]
    optimizer = torch.optim.LBFGS(open_ones, max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = -log_density(squares, level + phi @ weights, tail).sum()
        loss = loss + (tail - math.log(FIRST_TAIL)).square() / 2
        if spread > 0:
            loss = loss + weights.square().sum() / (2 * spread**2)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach(), level.detach(), tail.detach()
