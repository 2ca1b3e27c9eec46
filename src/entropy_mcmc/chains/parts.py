"""What chains are made of: their layout in one matrix, their gradients, their draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from entropy_mcmc import noise
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.samplers.engine import Rule

Tree = Tensor | dict[str, Tensor]


@dataclass(frozen=True)
class Chains:
    """Draws as (chain, draw, …): a tensor, or a dict of them when the chain has several.

    `guide` is None for samplers without one.
    """

    theta: Tree
    guide: Tree | None

    def to_arviz(self) -> Any:
        """An xarray DataTree with the group `posterior`, as arviz and arviz-stats read it.

        θ keeps its names ("theta" if it has none), θ_a gets the prefix "guide_" (or is "guide").
        """
        try:
            from arviz_base import from_dict
        except ImportError as error:
            raise ConfigError(
                "to_arviz needs arviz-base, which is not installed; "
                "pip install 'entropy-mcmc[arviz]'"
            ) from error
        guides = {} if self.guide is None else _named(self.guide, "guide")
        variables = _named(self.theta, "theta") | guides
        return from_dict({"posterior": {k: v.cpu().numpy() for k, v in variables.items()}})


@dataclass(frozen=True)
class Layout:
    """How the parameters of one chain lie in its row; no names means a single bare tensor."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    def tree(self, flat: Tensor) -> Tree:
        """Split the last dimension of `flat` into the parameters."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes], dim=-1)
        lead = flat.shape[:-1]
        values = [p.reshape((*lead, *s)) for p, s in zip(parts, self.shapes, strict=True)]
        return dict(zip(self.names, values, strict=True)) if self.names else values[0]

    def counters(self, chains: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Noise counters of all elements: (1, elements) and (chains, elements)."""
        number = len(self.shapes)
        if chains * number > noise.PARAMETER_LIMIT:
            raise ConfigError(
                f"chains times parameter tensors must be at most 2**22, got {chains} · {number}; "
                f"run fewer chains, with another seed for the rest"
            )
        sizes = [shape.numel() for shape in self.shapes]
        x0 = torch.cat([torch.arange(n, dtype=torch.int32) for n in sizes])
        own = torch.arange(number).repeat_interleave(torch.tensor(sizes))
        x1 = (torch.arange(chains)[:, None] * number + own) * 2**10
        return x0[None].to(device), x1.to(torch.int32).to(device)


@dataclass(frozen=True)
class Problem:
    """The mean loss of one chain, and where its batches come from."""

    energy: Callable[..., Tensor]
    layout: Layout
    data: tuple[Tensor, ...]
    rows: int  # drawn per step; 0 takes all data

    def gradients(self, theta: Tensor, rows: Tensor, data: Sequence[Tensor]) -> Tensor:
        """Gradients of all chains, (chain, element); `rows` is (chain, row)."""
        if self.rows == 0:
            slopes: Tensor = vmap(grad(lambda t: self.energy(self.layout.tree(t), *data)))(theta)
        else:
            slopes = vmap(grad(self._on_rows), in_dims=(0, 0, None))(theta, rows, tuple(data))
        return slopes

    def _on_rows(self, theta: Tensor, rows: Tensor, data: tuple[Tensor, ...]) -> Tensor:
        return self.energy(self.layout.tree(theta), *(part[rows] for part in data))


@dataclass(frozen=True)
class Method:
    """An update rule with its coefficients, and how many normals per element it takes."""

    rule: Rule
    coefficients: tuple[float, ...]
    normals: int  # 0, 1 or 2
    seed: int


def _named(tree: Tree, name: str) -> dict[str, Tensor]:
    if isinstance(tree, Tensor):
        return {name: tree}
    return tree if name == "theta" else {f"{name}_{key}": value for key, value in tree.items()}
