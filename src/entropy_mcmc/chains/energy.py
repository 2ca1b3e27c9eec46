"""The mean loss of one chain with its data, and its gradients for all chains at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from entropy_mcmc.chains.row_layout import Layout
from entropy_mcmc.errors import ConfigError

REMEMBERED = 16  # modules turned into functions: the same function need not be compiled again


@dataclass(frozen=True)
class Energy:
    """A mean loss of the parameters of one chain, the data it is of, and the size of a batch."""

    mean_loss: Callable[..., Tensor]
    layout: Layout
    data: tuple[Tensor, ...]
    batch_rows: int  # drawn per chain and step; 0 takes all data
    shared: bool = False  # whether all chains take the same rows

    def gradients(self, theta: Tensor, rows: Tensor, data: Sequence[Tensor]) -> Tensor:
        """Gradients of all chains, (chain, element); `rows` is (chain, row), shared (1, row)."""
        if self.batch_rows == 0 or self.shared:
            batch = [part[rows[0]] for part in data] if self.batch_rows else data
            slopes: Tensor = vmap(grad(lambda t: self.mean_loss(self.layout.tree(t), *batch)))(
                theta
            )
        else:
            slopes = vmap(grad(self._on_rows), in_dims=(0, 0, None))(theta, rows, tuple(data))
        return slopes

    def _on_rows(self, theta: Tensor, rows: Tensor, data: tuple[Tensor, ...]) -> Tensor:
        return self.mean_loss(self.layout.tree(theta), *(part[rows] for part in data))


@functools.lru_cache(maxsize=REMEMBERED)
def as_function(energy: Any, loss: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
    """`energy(theta, *batch)` of a function as it is, or of a module and its loss."""
    if not isinstance(energy, nn.Module):
        function: Callable[..., Tensor] = energy
        return function
    if loss is None:
        raise ConfigError("a module needs loss=, for example torch.nn.functional.cross_entropy")

    def mean_loss(theta: Any, x: Tensor, *targets: Tensor) -> Tensor:
        return loss(functional_call(energy, theta, (x,)), *targets)

    return mean_loss
