r"""Stacked multilayer perceptrons: the weights of C networks are the rows of one matrix (C, P).

Each layer computes :math:`h \leftarrow W h\cdot gain/\sqrt{fan\_in} + b`, so that weights of
variance 1 keep activations near 1 whatever the width: one prior variance, and one learning rate,
then serve all data. Values lie as (C, units, rows): then a softmax over few classes, and every sum
over rows, runs along contiguous memory. Gradients are written by hand: of a step of networks this
small autograd takes more than half.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

Layers = list[tuple[Tensor, Tensor]]  # weights (C, out, in) and biases (C, out, 1) of each
Trace = list[tuple[Tensor, Tensor]]  # of each hidden layer, its input z and its value h
Bend = Callable[[Tensor], Tensor]
Slope = Callable[[Tensor, Tensor, Tensor], Tensor]

aten = torch.ops.aten

# Each with the gain that keeps the second moment of a hidden unit near 1 for z ~ N(0, 1), and the
# product of a gradient with its slope, from its input z and its value h. Values take the place of
# inputs that no slope needs, products that of the gradient.
ACTIVATIONS: dict[str, tuple[Bend, float, Slope]] = {
    "relu": (
        torch.relu_,
        math.sqrt(2),
        lambda g, _, h: aten.threshold_backward.grad_input(g, h, 0, grad_input=g),
    ),
    "silu": (F.silu, 1.6, lambda g, z, _: aten.silu_backward.grad_input(g, z, grad_input=g)),
    "tanh": (torch.tanh_, 1.6, lambda g, _, h: aten.tanh_backward.grad_input(g, h, grad_input=g)),
}


@dataclass(frozen=True)
class Architecture:
    """Sizes of all layers, the first of them that of the input, and the activation."""

    sizes: tuple[int, ...]
    activation: str

    @property
    def weights(self) -> int:
        """Numbers in one network, P."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(self.sizes))

    def layers(self, flat: Tensor) -> Layers:
        """Weights (C, out, in) and biases (C, out, 1) of each layer, views of `flat` (C, P).

        >>> [tuple(w.shape) for w, _ in Architecture((3, 5, 1), "relu").layers(torch.ones(2, 26))]
        [(2, 5, 3), (2, 1, 5)]
        """
        views, start = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            middle, end = start + fan_in * fan_out, start + (fan_in + 1) * fan_out
            weight = flat[:, start:middle].view(len(flat), fan_out, fan_in)
            views.append((weight, flat[:, middle:end].unsqueeze(-1)))
            start = end
        return views

    def draw(self, scales: Tensor, generator: torch.Generator) -> Tensor:
        """Weights from N(0, scale²) and zero biases: a network for each scale, (C, P).

        The last layer is zero: every chain starts from the mean of the prior's predictions, not
        from a random function that it would first have to forget.
        """
        flat = torch.zeros(len(scales), self.weights)
        for weight, _ in self.layers(flat)[:-1]:
            weight.copy_(torch.randn(weight.shape, generator=generator) * scales[:, None, None])
        return flat

    def gain(self, layer: int) -> float:
        """Factor of the product of a layer: keeps its output near 1."""
        gain = ACTIVATIONS[self.activation][1] if layer else 1.0
        return gain / math.sqrt(self.sizes[layer])


def forward(form: Architecture, layers: Layers, x: Tensor) -> tuple[Tensor, Trace]:
    """Outputs (C, out, rows) for inputs x (C or 1, rows, in), and the hidden values.

    A network whose weights are zero is its last bias:

    >>> form = Architecture((3, 1), "relu")
    >>> weights = torch.tensor([[0.0, 0.0, 0.0, 7.0]])
    >>> forward(form, form.layers(weights), torch.ones(1, 2, 3))[0].tolist()
    [[[7.0, 7.0]]]
    """
    hidden = x.mT
    bend = ACTIVATIONS[form.activation][0]
    trace: Trace = []
    for i, (weight, bias) in enumerate(layers):
        if len(hidden) == 1 < len(weight):  # rows that all networks share: one product, no copies
            product = weight.reshape(-1, weight.shape[2]) @ hidden[0]
            z = (form.gain(i) * product).view(len(weight), -1, product.shape[1]).add_(bias)
        else:
            z = torch.baddbmm(bias, weight, hidden, alpha=form.gain(i))
        if i == len(layers) - 1:
            return z, trace
        hidden = bend(z)
        trace.append((z, hidden))
    raise AssertionError("a network has at least one layer")


def backward(
    form: Architecture, layers: Layers, x: Tensor, trace: Trace, slope: Tensor, grads: Layers
) -> None:
    """Write into `grads` the gradient of a loss whose slope by the outputs is `slope`."""
    bend_slope: Slope = ACTIVATIONS[form.activation][2]
    for i in range(len(layers) - 1, -1, -1):
        below = trace[i - 1][1].mT if i else x.expand(len(slope), -1, -1)
        product(grads[i][0], slope, below, form.gain(i), whole=i > 0)
        torch.sum(slope, dim=2, keepdim=True, out=grads[i][1])
        if i:
            z, hidden = trace[i - 1]
            weight = layers[i][0].mT
            pushed = torch.baddbmm(hidden, weight, slope, beta=0, alpha=form.gain(i))
            slope = bend_slope(pushed, z, hidden)


def product(into: Tensor, left: Tensor, right: Tensor, gain: float, *, whole: bool) -> None:
    """Write gain·left·right of each network into a part of its row of gradients.

    Such parts are not contiguous, for which torch multiplies one network after the other. As a
    whole, in memory of their own, products are faster; on inputs of few columns their last bits
    are others.
    """
    if whole:
        into.copy_(torch.baddbmm(into, left, right, beta=0, alpha=gain))
    else:
        into.baddbmm_(left, right, beta=0, alpha=gain)
