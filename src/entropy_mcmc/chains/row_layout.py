"""How the parameters of one chain lie in its row of the matrix of all chains."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from entropy_mcmc import noise
from entropy_mcmc.errors import ConfigError

Tree = Tensor | dict[str, Tensor]


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the parameters of one chain; no names means a single bare tensor."""

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    def tree(self, flat: Tensor) -> Tree:
        """Split the last dimension of `flat` into the parameters."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes], dim=-1)
        lead = flat.shape[:-1]
        values = [p.reshape((*lead, *s)) for p, s in zip(parts, self.shapes, strict=True)]
        return dict(zip(self.names, values, strict=True)) if self.names else values[0]

    def labels(self) -> list[str]:
        """Names of all numbers of a row: "b" of a scalar, "w[0,1]" of an element.

        >>> Layout(("b", "w"), (torch.Size([]), torch.Size([2]))).labels()
        ['b', 'w[0]', 'w[1]']
        """
        pairs = zip(self.names or ("theta",), self.shapes, strict=True)
        return [label for name, shape in pairs for label in _labels(name, shape)]

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


def _labels(name: str, shape: torch.Size) -> list[str]:
    if not shape:
        return [name]
    places = itertools.product(*map(range, shape))
    return [f"{name}[{','.join(map(str, place))}]" for place in places]
