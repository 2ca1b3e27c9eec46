r"""Stacked multilayer perceptrons: a layer of C networks is one tensor (C, in, out).

Each layer computes :math:`h \leftarrow h\,W\cdot gain/\sqrt{fan\_in} + b`, so that weights of
variance 1 keep activations near 1 whatever the width: one prior variance, and one learning rate,
then serve all data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

# Each with the gain that keeps the second moment of a hidden unit near 1 for z ~ N(0, 1).
ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "relu": (F.relu, math.sqrt(2)),
    "silu": (F.silu, 1.6),
    "tanh": (torch.tanh, 1.6),
}


def draw_networks(sizes: Sequence[int], scales: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Weights from N(0, scale²) and zero biases: a network of these layer sizes for each scale.

    The last layer is zero: every chain starts from the mean of the prior's predictions, not from
    a random function that it would first have to forget.

    >>> [tuple(p.shape) for p in draw_networks((3, 5, 1), torch.ones(2), torch.Generator())]
    [(2, 3, 5), (2, 1, 5), (2, 5, 1), (2, 1, 1)]
    """
    params = []
    for fan_in, fan_out in pairwise(sizes):
        weight = torch.randn(len(scales), fan_in, fan_out, generator=generator)
        params.append(weight * scales[:, None, None])
        params.append(torch.zeros(len(scales), 1, fan_out))
    params[-2].zero_()
    return params


def forward(params: Sequence[Tensor], x: Tensor, activation: str) -> Tensor:
    """Outputs (C, rows, out) for inputs (rows, in), or (C, rows, in) when each chain has its own.

    A network whose weight is zero is a constant:

    >>> layer = [torch.zeros(2, 3, 1), torch.tensor([1.0, 2.0]).view(2, 1, 1)]
    >>> forward(layer, torch.ones(4, 3), "relu")[:, 0, 0].tolist()
    [1.0, 2.0]
    """
    hidden = x if x.dim() == 3 else x.expand(params[0].shape[0], *x.shape)
    last = len(params) // 2 - 1
    bend, gain = ACTIVATIONS[activation]
    for i, (weight, bias) in enumerate(zip(params[::2], params[1::2], strict=True)):
        scale = (gain if i else 1.0) / math.sqrt(weight.shape[1])
        hidden = torch.baddbmm(bias, hidden, weight * scale)
        if i < last:
            hidden = bend(hidden)
    return hidden
