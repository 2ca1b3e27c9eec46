r"""Diagonal Fisher spectrum, the paper's stand-in for the Hessian's eigenvalues (its Fig. 4).

.. math:: \lambda_j \approx \mathbb{E}[(\nabla_j \ell - \mathbb{E}\nabla_j \ell)^2]

over the samples, with the gradient of each sample's own loss. The prior's gradient is the same
for every sample and drops out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from entropy_mcmc.errors import ConfigError, check_count
from entropy_mcmc.flatness.given_data import Data
from entropy_mcmc.flatness.input_checks import checked_data
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    batches,
    check_measured,
    device_of,
    evaluating,
    parameters,
    unflatten,
)

_GRADIENT_BYTES = 2**28


@dataclass(frozen=True)
class FisherDiagonal:
    """Mean and variance of the per-sample gradient, one number per parameter (flat, float64)."""

    mean: Tensor
    variance: Tensor
    count: int

    def named(self, model: nn.Module) -> dict[str, Tensor]:
        """The variances in the shapes of the parameters."""
        return unflatten(model, self.variance)


def fisher_diagonal(
    model: nn.Module, loss: Loss, data: Data, *, chunk: int | None = None
) -> FisherDiagonal:
    """Exact E[(∇−E∇)²] per parameter; memory does not grow with the data.

    `chunk` samples are differentiated at once: `chunk`·d numbers are held. By default as many
    as fit in 256 MB, at most 32 (more is slower: convolutions leave the cache). `loss` is the
    mean over a batch, batch norm is in evaluation mode.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> data = torch.ones(2, 1), torch.tensor([[0.0], [2.0]])
    >>> round(fisher_diagonal(model, nn.functional.mse_loss, data).variance.item(), 4)
    4.0
    """
    size = _chunk(model) if chunk is None else check_count("chunk", chunk)
    # Every row is a batch of its own, of which the sum is the mean: `check_mean` has no say.
    source, gradients = checked_data(model, data), _per_sample_gradients(model, loss)
    merged: FisherDiagonal | None = None
    with evaluating(model):
        for x, y in batches(source, device_of(model), size):
            part = _moments(gradients(x, y))
            merged = part if merged is None else _merge(merged, part)
    if merged is None:
        raise ConfigError("data must hold at least one sample, got none")
    check_measured("the Fisher diagonal", merged.mean, source)
    return merged


def _per_sample_gradients(model: nn.Module, loss: Loss) -> Callable[[Tensor, Tensor], Tensor]:
    trained = {name: p.detach() for name, p in parameters(model).items()}
    rest = {
        name: t.detach()
        for name, t in (*model.named_parameters(), *model.named_buffers())
        if name not in trained
    }

    def sample_loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        output = torch.func.functional_call(model, {**params, **rest}, (x.unsqueeze(0),))
        return loss(output, y.unsqueeze(0))

    mapped = torch.func.vmap(torch.func.grad(sample_loss), in_dims=(None, 0, 0))

    def gradients(x: Tensor, y: Tensor) -> Tensor:
        named = mapped(trained, x, y)
        return torch.cat([g.flatten(1) for g in named.values()], dim=1)

    return gradients


def _moments(gradients: Tensor) -> FisherDiagonal:
    # Apple's GPUs have no float64.
    exact = torch.float32 if gradients.device.type == "mps" else torch.float64
    mean = gradients.mean(0, dtype=exact)
    squares = (gradients - mean.to(gradients)).square().mean(0, dtype=exact)
    # The mean was rounded before the subtraction: E(g−r)² = Var + (mean−r)².
    rounding = (mean - mean.to(gradients).to(exact)).square()
    return FisherDiagonal(mean, (squares - rounding).clamp_min(0), len(gradients))


def _merge(a: FisherDiagonal, b: FisherDiagonal) -> FisherDiagonal:
    """Chan's update: no difference of large squares, so no cancellation."""
    count = a.count + b.count
    share = b.count / count
    gap = b.mean - a.mean
    variance = a.variance + (b.variance - a.variance) * share + gap**2 * share * (1 - share)
    return FisherDiagonal(a.mean + gap * share, variance, count)


def _chunk(model: nn.Module) -> int:
    per_sample = sum(p.numel() * p.element_size() for p in parameters(model).values())
    return max(1, min(32, _GRADIENT_BYTES // per_sample))
