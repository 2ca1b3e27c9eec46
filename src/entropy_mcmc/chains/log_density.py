"""A log density of named parameters as the energy of chains in scaled, unconstrained coordinates.

Parameters θ = transform(s·z): z is what the chains move, s the diagonal preconditioner. With
log p(θ) = log prior + Σ log likelihood of a row, the energy of z is
U(z) = −log p(θ(z)) − Σ log |dθ/d(s·z)|, so that θ has the density p. Mini-batches of B rows
estimate the sum by N/B times theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from entropy_mcmc.chains.in_parts import InParts
from entropy_mcmc.chains.inputs import of_dtype, starting_states
from entropy_mcmc.chains.row_layout import Layout
from entropy_mcmc.chains.transforms import Identity
from entropy_mcmc.errors import ConfigError

Slopes = Callable[[Tensor], Tensor]  # ∇U of states (row, element)


@dataclass
class Count:
    """Gradients taken beside the steps of the chains, in rows of data (1 each, without data)."""

    rows: int = 0


@dataclass(frozen=True)
class LogDensity:
    """What is sampled: functions, transforms by name, data, and the layout of the parameters."""

    function: Callable[..., Tensor]
    prior: Callable[..., Tensor] | None
    transforms: Mapping[str, Identity]
    data: tuple[Tensor, ...]
    layout: Layout
    names: tuple[str, ...] = field(default=())
    count: Count = field(default_factory=Count)

    @property
    def num_data(self) -> int:
        """N, by which the energy is divided: rows of the data, or 1."""
        return len(self.data[0]) if self.data else 1

    def constrained(self, flat: Tensor) -> dict[str, Tensor]:
        """Named θ of unconstrained rows (…, element)."""
        return {n: self.transform(n).forward(v) for n, v in self._named(flat).items()}

    def mean_loss(self, scale: Tensor) -> Callable[..., Tensor]:
        """The energy of one chain's z over N, a function of (z, *rows): what `run` takes."""

        def loss(z: Any, *rows: Tensor) -> Tensor:
            flat = z * scale
            theta, unconstrained = self.constrained(flat), self._named(flat)
            total = self._log_prior(theta)
            for name, value in unconstrained.items():
                total = total + self.transform(name).log_det(value).sum()
            if not self.data:
                return -(total + self.function(theta).sum())
            size = self.num_data / len(rows[0])
            return -(total + size * self.function(theta, *rows).sum()) / self.num_data

        return loss

    def slopes(self, scale: Tensor, rows: tuple[Tensor, ...] | None = None) -> Slopes:
        """∇U in z of states (row, element), from all data or from some rows of it."""
        return self._gradients(self._energy(scale, rows), self.data if rows is None else rows)

    def energies(
        self, scale: Tensor, rows: tuple[Tensor, ...] | None = None
    ) -> Callable[[Tensor], Tensor]:
        """U in z of states (row, element), from all data or from some rows of it."""
        return InParts(self._energy(scale, rows))

    def _energy(self, scale: Tensor, rows: tuple[Tensor, ...] | None) -> Callable[[Tensor], Tensor]:
        loss, data = self.mean_loss(scale), self.data if rows is None else rows
        return lambda z: self.num_data * loss(z, *data)

    def own_slopes(self) -> Slopes:
        """∇ of log p(θ) in unconstrained coordinates, from all data, without the Jacobian."""
        return self._gradients(self.of_row, self.data)

    def _gradients(self, function: Callable[[Tensor], Tensor], data: tuple[Tensor, ...]) -> Slopes:
        parts, size = InParts(grad(function)), len(data[0]) if data else 1

        def counted(states: Tensor) -> Tensor:
            self.count.rows += len(states) * size
            return parts(states)

        return counted

    def of_row(self, flat: Tensor) -> Tensor:
        """Log p(θ) of one unconstrained row, from all data, without the Jacobian."""
        theta = self.constrained(flat)
        return self._log_prior(theta) + self.function(theta, *self.data).sum()

    @torch.no_grad()
    def at(self, flat: Tensor) -> Tensor:
        """Log p(θ) of unconstrained rows (row, element), from all data."""
        return InParts(self.of_row)(flat)

    def transform(self, name: str) -> Identity:
        """The transform of a parameter; the identity where none was given."""
        return self.transforms.get(name, Identity())

    def _log_prior(self, theta: dict[str, Tensor]) -> Tensor:
        if self.prior is None:
            return next(iter(theta.values())).new_zeros(())
        return self.prior(theta).sum()

    def _named(self, flat: Tensor) -> dict[str, Tensor]:
        tree = self.layout.tree(flat)
        return tree if isinstance(tree, dict) else {self.names[0]: tree}


def build(
    function: Callable[..., Tensor],
    prior: Callable[..., Tensor] | None,
    init: Any,
    chains: int | None,
    transforms: Mapping[str, Identity],
    data: tuple[Tensor, ...],
) -> tuple[LogDensity, Tensor]:
    """The log density, and the unconstrained states (chain, element) that `init` means."""
    if not isinstance(init, Mapping) or not init:
        raise ConfigError(
            f"init must be a dict of named parameters, numbers or tensors, got {init!r:.80}"
        )
    check_transforms(transforms, init)
    layout, flat = starting_states(function, init, chains)
    data = of_dtype(data, flat.dtype)
    density = LogDensity(function, prior, dict(transforms), data, layout, layout.names)
    tree = layout.tree(flat)
    assert isinstance(tree, dict)
    rows = []
    for name, value in tree.items():
        transform = density.transform(name)
        if not transform.allows(value):
            raise ConfigError(
                f"init[{name!r}] must be inside the range of its transform {transform}, got "
                f"{value[0].tolist()!r:.80}"
            )
        rows.append(transform.inverse(value).reshape(len(flat), -1))
    return density, torch.cat(rows, dim=1)


def check_transforms(transforms: Mapping[str, Any], init: Mapping[str, Any]) -> None:
    """Refuse transforms of unknown parameters, and what is no transform."""
    for name, given in transforms.items():
        if name not in init:
            raise ConfigError(
                f"transforms must be of parameters in init, got {name!r}; init has "
                f"{', '.join(init)}"
            )
        if not isinstance(given, Identity):
            shown = getattr(given, "__name__", repr(given))
            raise ConfigError(
                f"transforms[{name!r}] must be positive(), above(a) or between(a, b) of "
                f"entropy_mcmc.chains.transforms, with parentheses, got {shown}"
            )
