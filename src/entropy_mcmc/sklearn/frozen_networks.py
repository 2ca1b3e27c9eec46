r"""Stacked networks that only predict: factors folded into the weights, one buffer for all rows.

With :math:`\tanh z = 2\sigma(2z) - 1`, a network of tanh is one of sigmoids, which cost a third:
the layer below doubles its weights and biases, the layer above doubles its weights and takes their
sum from its biases. Predictions differ from those of `networks.forward` by rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from entropy_mcmc.sklearn.networks import Architecture, Layers

INPLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "silu": lambda z: F.silu(z, inplace=True),
    "tanh": torch.sigmoid_,
}


class FrozenNetworks:
    """Outputs of C networks for blocks of `rows` rows; fewer are filled up with zeros.

    Products of one shape treat each row alike, so that a prediction does not depend on the rows
    beside it although it is made in single precision.
    """

    def __init__(self, form: Architecture, flat: Tensor, rows: int) -> None:
        """Networks with the weights `flat`, (C, P)."""
        self._layers = folded(form, flat)
        self._bend = INPLACE[form.activation]
        self._buffers = [torch.empty(len(flat), size, rows) for size in form.sizes[1:]]
        self._rows = rows

    def outputs(self, x: Tensor) -> Tensor:
        """Outputs (C, out, rows) for inputs x (rows, in), valid until the next call."""
        full = F.pad(x, (0, 0, 0, self._rows - len(x))).T
        (weight, bias), *above = self._layers
        first, *others = self._buffers
        networks, units, fan_in = weight.shape
        flat = first.view(networks * units, -1)  # all networks see the same rows: one product
        torch.addmm(bias.reshape(-1, 1), weight.reshape(-1, fan_in), full, out=flat)
        hidden = first
        for (weight, bias), buffer in zip(above, others, strict=True):
            hidden = torch.baddbmm(bias, weight, self._bend(hidden), out=buffer)
        return hidden[..., : len(x)]


def folded(form: Architecture, flat: Tensor) -> Layers:
    """Weights times the gains of their layers, and the factors of tanh as a sigmoid."""
    layers = []
    last = len(form.sizes) - 2
    for i, (weight, bias) in enumerate(form.layers(flat.double())):
        weight = form.gain(i) * weight
        if form.activation == "tanh" and i > 0:
            weight, bias = 2 * weight, bias - weight.sum(dim=2, keepdim=True)
        if form.activation == "tanh" and i < last:
            weight, bias = 2 * weight, 2 * bias
        layers.append((weight.float(), bias.float()))
    return layers
