r"""The predictive average, $p(y|x) \approx \frac{1}{|S|}\sum_{\theta\in S} p(y|x,\theta)$.

Probabilities are averaged, never logits, and as a stream: one sample at a time is in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.posterior.forward import Piece


@dataclass(frozen=True)
class RegressionPrediction:
    """Mean and variance of the predictive mixture, one entry per row.

    Attributes:
        mean: Mean over samples of the samples' means.
        aleatoric: Mean over samples of the noise variance.
        epistemic: Variance over samples of the means (divided by the number of samples).
    """

    mean: Tensor
    aleatoric: Tensor
    epistemic: Tensor

    @property
    def variance(self) -> Tensor:
        """Variance of the mixture: aleatoric + epistemic."""
        return self.aleatoric + self.epistemic


def probabilities(logits: Tensor) -> Tensor:
    """Class probabilities of logits, in float32 at least; a single logit is that of class 1.

    >>> probabilities(torch.zeros(1, 4))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    >>> probabilities(torch.zeros(1))
    tensor([[0.5000, 0.5000]])
    """
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    if logits.ndim == 0:
        raise ConfigError("the model returned a scalar; logits need a row per input")
    if logits.ndim == 1 or logits.shape[1] == 1:
        logit = logits.reshape(-1)
        return torch.stack([torch.sigmoid(-logit), torch.sigmoid(logit)], dim=1)
    return torch.softmax(logits, dim=1)


class Probabilities:
    """`probabilities`, with a look at the first result: is it one of logits?

    The first result is never one of `vmap`, where values cannot be looked at.
    """

    def __init__(self) -> None:
        self._looked = False

    def __call__(self, logits: Tensor) -> Tensor:
        """Class probabilities of logits."""
        if not self._looked:
            self._looked = True
            _warn_of_probabilities(logits)
        return probabilities(logits)


def _warn_of_probabilities(result: Tensor) -> None:
    """Log-probabilities are logits too; probabilities are not: their softmax is near uniform."""
    several = result.ndim == 2 and result.shape[1] > 1 and len(result) > 0
    if several and bool((result >= 0).all()) and bool(((result.sum(1) - 1).abs() < 1e-3).all()):
        warnings.warn(
            "the network returns probabilities (each row sums to 1), and a posterior takes logits: "
            "softmax would be applied twice; leave the softmax out of the network, or pass "
            "output=torch.log",
            UserWarning,
            stacklevel=2,
        )


def moments(result: Tensor) -> Tensor:
    """Mean, and variance where the network gives its logarithm: (n,), or (n, 2).

    >>> moments(torch.tensor([[3.0, 0.0]]))
    tensor([[3., 1.]])
    """
    if result.dtype in (torch.bfloat16, torch.float16):
        result = result.float()
    if result.ndim == 1 or (result.ndim == 2 and result.shape[1] == 1):
        return result.reshape(-1)
    if result.ndim == 2 and result.shape[1] == 2:
        return torch.stack([result[:, 0], result[:, 1].exp()], dim=1)
    raise ConfigError(
        f"regression needs a network output of shape (n, 2), mean and log-variance, or (n,) or "
        f"(n, 1), the mean; got {tuple(result.shape)}; pass output= to choose"
    )


def mean_of(stream: Iterable[Piece], device: torch.device) -> Tensor:
    """Mean over samples; the sum is kept per batch, so no second result is built per sample."""
    sums: list[Tensor] = []
    count = 0
    for index, values in stream:
        count += len(values) if index == 0 else 0
        total = values.sum(0).to(device)
        if index == len(sums):
            sums.append(total)
        else:
            sums[index] += total
    return torch.cat(sums) / count


def stack_of(stream: Iterable[Piece], device: torch.device) -> Tensor:
    """Every sample's values: shape (samples, rows, …)."""
    groups: list[list[Tensor]] = []
    for index, values in stream:
        if index == 0:
            groups.append([])
        groups[-1].append(values.to(device))
    return torch.cat([torch.cat(group, dim=1) for group in groups])


def mixture_of(
    stream: Iterable[Piece], device: torch.device, noise_variance: float | None
) -> RegressionPrediction:
    """Mean and both variances, in float64 and shifted by the first sample against cancellation."""
    shifts: list[Tensor] = []
    sums: list[Tensor] = []
    count = 0
    dtype = torch.float32
    for index, values in stream:
        dtype = values.dtype
        count += len(values) if index == 0 else 0
        mean, noise = _split(values.to(device, torch.float64), noise_variance)
        if index == len(shifts):
            shifts.append(mean[0].clone())
            sums.append(torch.zeros(3, *mean[0].shape, dtype=torch.float64, device=device))
        away = mean - shifts[index]
        sums[index] += torch.stack([away.sum(0), away.square().sum(0), noise.sum(0)])
    first, second, noise = torch.cat(sums, dim=1) / count
    spread = (second - first.square()).clamp_min(0)
    return RegressionPrediction(
        (torch.cat(shifts) + first).to(dtype), noise.to(dtype), spread.to(dtype)
    )


def _split(values: Tensor, noise_variance: float | None) -> tuple[Tensor, Tensor]:
    if values.ndim == 3:
        if noise_variance is not None:
            raise ConfigError(
                f"noise_variance={noise_variance} is for networks that return a mean only; "
                "this one returns its own log-variance: leave noise_variance out"
            )
        return values[..., 0], values[..., 1]
    if noise_variance is None:
        raise ConfigError(
            "the network returns a mean only, so the noise is not known; "
            "pass noise_variance (0 for none)"
        )
    return values, torch.full_like(values, noise_variance)
