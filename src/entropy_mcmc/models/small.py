"""Small networks for tabular data and small pictures: a few thousand parameters, fast on a laptop.

All three take one argument `outputs`, the number of columns that the network returns:

- classification: one logit per class, shape `(n, classes)`; use with `F.cross_entropy`.
- regression (`likelihood="regression"`): 2 columns, the mean and the **log** of the variance, used
  as `F.gaussian_nll_loss(out[:, 0], y, out[:, 1].exp(), full=True)`. One column is the mean alone,
  for `F.mse_loss` and a noise variance that is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor, nn

from entropy_mcmc.errors import check_choice, check_count
from entropy_mcmc.models.norm import NORMS, activation_layer, norm_layer

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "silu": nn.SiLU}


class LogisticRegression(nn.Module):
    """One linear layer: logits = W·x + b. Its posterior has one mode, a good first check.

    Args:
        in_features: Numbers per example; pictures are flattened (28 × 28 = 784).
        outputs: Number of classes.

    >>> sum(p.numel() for p in LogisticRegression(784, 10).parameters())
    7850
    """

    layers_after_flatten = "linear"  # what forward is, for `stacked_layers`

    def __init__(self, in_features: int = 784, outputs: int = 10) -> None:
        super().__init__()
        self.linear = nn.Linear(
            check_count("in_features", in_features), check_count("outputs", outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map `(n, …)` to logits `(n, outputs)`."""
        logits: Tensor = self.linear(x.flatten(1))
        return logits


class MLP(nn.Module):
    """A multilayer perceptron for classification or regression.

    Args:
        in_features: Numbers per example; pictures are flattened.
        outputs: Number of classes; for regression 2 (mean and log variance) or 1 (mean).
        hidden: Width of every hidden layer; `()` is a linear model.
        activation: `"relu"`, `"tanh"` or `"silu"` (smooth, for Hessians).

    >>> import torch
    >>> MLP(8, 2, hidden=(50,))(torch.zeros(5, 8)).shape  # regression: mean, log variance
    torch.Size([5, 2])
    """

    layers_after_flatten = "layers"

    def __init__(
        self,
        in_features: int = 784,
        outputs: int = 10,
        hidden: Sequence[int] = (100,),
        activation: str = "relu",
    ) -> None:
        super().__init__()
        check_choice("activation", activation, tuple(ACTIVATIONS))
        widths = [
            check_count("in_features", in_features),
            *(check_count("hidden", width) for width in hidden),
            check_count("outputs", outputs),
        ]
        layers: list[nn.Module] = []
        for width, next_width in itertools.pairwise(widths):
            layers += [nn.Linear(width, next_width), ACTIVATIONS[activation]()]
        self.layers = nn.Sequential(*layers[:-1])  # no activation after the output

    def forward(self, x: Tensor) -> Tensor:
        """Map `(n, …)` to `(n, outputs)`."""
        out: Tensor = self.layers(x.flatten(1))
        return out


class SmallCNN(nn.Module):
    """Two 3×3 convolutions, each halving the picture by max-pooling, and a linear layer.

    Args:
        outputs: Number of classes.
        in_channels: 1 for grey pictures, 3 for colour.
        image_size: Height and width of the (square) pictures, at least 4.
        width: Channels of the first convolution; the second has twice as many.
        norm: `"none"`, `"bn"` (batch norm) or `"frn"` (see `FilterResponseNorm2d`).

    >>> sum(p.numel() for p in SmallCNN(image_size=8).parameters())  # scikit-learn's digits
    6090
    """

    def __init__(
        self,
        outputs: int = 10,
        in_channels: int = 1,
        image_size: int = 28,
        width: int = 16,
        norm: str = "none",
    ) -> None:
        super().__init__()
        side = check_count("image_size", image_size, least=4) // 4
        channels = check_count("width", width)
        self.features = nn.Sequential(
            *_conv_block(check_count("in_channels", in_channels), channels, norm),
            *_conv_block(channels, 2 * channels, norm),
        )
        self.head = nn.Linear(2 * channels * side * side, check_count("outputs", outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures `(n, in_channels, image_size, image_size)` to logits `(n, outputs)`."""
        logits: Tensor = self.head(self.features(x).flatten(1))
        return logits


def _conv_block(inputs: int, channels: int, kind: str) -> list[nn.Module]:
    check_choice("norm", kind, ("none", *NORMS))
    # A norm has its own shift, so the convolution's bias would be a direction without effect.
    convolution = nn.Conv2d(inputs, channels, 3, padding=1, bias=kind == "none")
    if kind == "none":
        return [convolution, nn.ReLU(), nn.MaxPool2d(2)]
    normalised = norm_layer(kind, channels)
    return [convolution, normalised, activation_layer(kind, channels), nn.MaxPool2d(2)]
