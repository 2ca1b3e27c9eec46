r"""Normalisation for convolutional networks: batch norm, or Filter Response Normalization.

Batch norm mixes the examples of a batch and keeps running statistics, so that every posterior
sample needs its own refreshed statistics before it may predict. Filter Response Normalization
(Singh & Krishnan, CVPR 2020) normalises each channel of each example by itself: there is nothing
to refresh, and the likelihood of one example does not depend on the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from entropy_mcmc.errors import check_choice, check_count, check_positive

NORMS = ("bn", "frn")
LEARNED_EPS_START = 1e-4  # the published start of the learned part of epsilon


class ThresholdedLinearUnit2d(nn.Module):
    r"""The activation that goes with FRN: $z = \max(y, \tau)$ with one learned τ per channel.

    τ starts at 0, where it is a ReLU. FRN does not centre its input, so a fixed threshold at 0
    could leave a channel dead or linear; τ learns where to cut.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.tau = nn.Parameter(torch.zeros(1, check_count("channels", channels), 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the elementwise maximum of `x`, shape `(n, channels, height, width)`, and τ."""
        return torch.maximum(x, self.tau)


class FilterResponseNorm2d(nn.Module):
    r"""Filter Response Normalization, with its thresholded linear unit: replaces batch norm + ReLU.

    For one channel of one example with activations $x_1 … x_P$ over the P pixels:

    $$ \nu^2 = \tfrac1P \sum_p x_p^2, \qquad
       y_p = \gamma\, x_p / \sqrt{\nu^2 + \epsilon} + \beta, \qquad z_p = \max(y_p, \tau) $$

    γ starts at 1, β and τ at 0; each is one number per channel. Training and evaluation compute
    the same thing.

    Args:
        channels: Number of channels of the input `(n, channels, height, width)`.
        eps: The fixed part of ε, 1e-6 as published.
        learned_eps: Add |ε_l| with ε_l learned from 1e-4, as published for 1×1 feature maps, where
            a tiny ε turns the layer into a sign function.
        threshold: `False` leaves out max(·, τ), for a layer that is followed by an addition.

    >>> x = torch.tensor([3.0, -4.0]).reshape(1, 1, 1, 2)
    >>> z = FilterResponseNorm2d(1)(x).flatten()
    >>> [round(value, 4) for value in z.tolist()]  # 3 / sqrt(12.5), and the negative one is cut
    [0.8485, 0.0]
    """

    def __init__(
        self, channels: int, eps: float = 1e-6, *, learned_eps: bool = False, threshold: bool = True
    ) -> None:
        super().__init__()
        shape = (1, check_count("channels", channels), 1, 1)
        self.eps = check_positive("eps", eps)
        self.gamma = nn.Parameter(torch.ones(shape))
        self.beta = nn.Parameter(torch.zeros(shape))
        start = torch.full(shape, LEARNED_EPS_START)
        self.extra_eps = nn.Parameter(start) if learned_eps else None
        self.tlu = ThresholdedLinearUnit2d(channels) if threshold else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` of shape `(n, channels, height, width)`; the shape stays."""
        eps = self.eps if self.extra_eps is None else self.eps + self.extra_eps.abs()
        nu_squared = x.square().mean(dim=(2, 3), keepdim=True)
        normalised = self.gamma * x * torch.rsqrt(nu_squared + eps) + self.beta
        activated: Tensor = self.tlu(normalised)
        return activated

    def extra_repr(self) -> str:
        """What `print(model)` shows inside the brackets."""
        return f"{self.gamma.shape[1]}, eps={self.eps:g}"


def norm_layer(kind: str, channels: int) -> nn.Module:
    """A normalisation without activation: `"bn"` or `"frn"`."""
    check_choice("norm", kind, NORMS)
    if kind == "bn":
        return nn.BatchNorm2d(channels)
    return FilterResponseNorm2d(channels, threshold=False)


def activation_layer(kind: str, channels: int) -> nn.Module:
    """The activation that belongs to a normalisation: ReLU for `"bn"`, τ-thresholds for `"frn"`."""
    check_choice("norm", kind, NORMS)
    return nn.ReLU() if kind == "bn" else ThresholdedLinearUnit2d(channels)
