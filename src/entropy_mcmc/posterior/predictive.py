r"""The predictive average, $p(y|x) \approx \frac{1}{|S|}\sum_{\theta\in S} p(y|x,\theta)$.

Probabilities are averaged, never logits, and as a stream: one sample at a time is in memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from entropy_mcmc.errors import ConfigError, StateError
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


def require_likelihood(likelihood: str, wanted: str, method: str, instead: str) -> None:
    """Raise unless a method is for this likelihood."""
    if likelihood != wanted:
        raise StateError(
            f"{method} is for likelihood={wanted!r}, this posterior has {likelihood!r}; "
            f"use {instead}"
        )


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
    several = result.ndim == 2 and result.shape[1] > 1 and result.shape[0] > 0
    if not several or float(result[0].min()) < 0:  # as nearly all logits show at once
        return
    if bool((result >= 0).all()) and bool(((result.sum(1) - 1).abs() < 1e-3).all()):
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


class Mean:
    """The mean over samples, as a stream; sums are kept per batch, so that nothing is built twice.

    Args:
        device: Where the sums are.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.count = 0
        self._sums: list[Tensor] = []

    def add(self, index: int, values: Tensor) -> None:
        """Take the values (k, rows, …) of k samples on batch `index`."""
        self.count += values.shape[0] if index == 0 else 0
        total = values.sum(0).to(self.device)
        if index == len(self._sums):
            self._sums.append(total)
        else:
            self._sums[index] += total

    def result(self) -> Tensor:
        """The mean: shape (rows, …)."""
        return torch.cat(self._sums) / self.count


class Mixture:
    """Mean and variances of a regression, in float64 and shifted by the first sample.

    Args:
        device: Where the sums are.
        noise_variance: The noise of a network that returns a mean only.
    """

    def __init__(self, device: torch.device, noise_variance: float | None = None) -> None:
        self.device = device
        self.count = 0
        self._noise_variance = noise_variance
        self._dtype = torch.float32
        self._shifts: list[Tensor] = []
        self._sums: list[Tensor] = []

    def add(self, index: int, values: Tensor) -> None:
        """Take the moments of k samples on batch `index`."""
        self._dtype = values.dtype
        self.count += len(values) if index == 0 else 0
        mean, noise = _split(values.to(self.device, torch.float64), self._noise_variance)
        if index == len(self._shifts):
            self._shifts.append(mean[0].clone())
            self._sums.append(torch.zeros(3, *mean[0].shape).to(mean))
        away = mean - self._shifts[index]  # against cancellation
        self._sums[index] += torch.stack([away.sum(0), away.square().sum(0), noise.sum(0)])

    def result(self) -> RegressionPrediction:
        """The mixture over samples."""
        first, second, noise = torch.cat(self._sums, dim=1) / self.count
        spread = (second - first.square()).clamp_min(0)
        mean = torch.cat(self._shifts) + first
        return RegressionPrediction(*(part.to(self._dtype) for part in (mean, noise, spread)))


def mean_of(stream: Iterable[Piece], device: torch.device) -> Tensor:
    """Mean over samples."""
    total = Mean(device)
    for piece in stream:
        total.add(piece.index, piece.values)
    return total.result()


def mixture_of(
    stream: Iterable[Piece], device: torch.device, noise_variance: float | None
) -> RegressionPrediction:
    """Mean and both variances."""
    total = Mixture(device, noise_variance)
    for piece in stream:
        total.add(piece.index, piece.values)
    return total.result()


def stack_of(stream: Iterable[Piece], device: torch.device) -> Tensor:
    """Every sample's values: shape (samples, rows, …)."""
    groups: list[list[Tensor]] = []
    for piece in stream:
        if piece.index == 0:
            groups.append([])
        groups[-1].append(piece.values.to(device))
    return torch.cat([torch.cat(group, dim=1) for group in groups])


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
