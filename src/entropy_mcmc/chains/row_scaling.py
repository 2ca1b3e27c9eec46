"""Is a log likelihood a sum over rows? f(A) + f(B) is compared with f(A ∪ B), in two orders."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import vmap

from entropy_mcmc.chains.inputs import of_dtype
from entropy_mcmc.chains.log_density import LogDensity
from entropy_mcmc.errors import ConfigError

EACH = 16  # rows of each of two parts
TRIES = 4  # choices of rows
MARGIN = 20  # standard errors: rounding scatters around 0, what does not depend on rows does not
ROUNDING = {torch.float64: 1e-6, torch.float32: 1e-4}  # of the values; some may be in float32
GROSS = 0.1  # of the values: no rounding
# Another order leaves the value of each row as it is, and rounds only their sum in another way. A
# term that joins neighbouring rows changes by about itself; of 31 of them, one is lost in A and B.
ORDER = 0.005  # of the values


def check_scaling(density: LogDensity, states: Tensor, batch_size: int | None, seed: int) -> None:
    """Compare log likelihoods of some rows with those of two halves of them.

    Mini-batches need a sum over rows: a mean raises, and so does a prior among the likelihoods.
    All rows at once may depend on each other; only what is exactly a mean gives a warning.
    """
    if density.num_data < 2:
        return
    try:
        parts = two_parts(density, states, seed)
    except Exception:
        if batch_size is None:
            return  # a function of all rows at once
        raise
    _check_shapes(parts.shapes)
    if batch_size is None:
        _warn_of_a_mean(parts)
        return
    if parts.in_order:
        raise ConfigError(
            f"log_density must be a sum over rows for batch_size={batch_size}, got another value "
            f"for the same rows in another order, and mini-batches are rows in random order; give "
            f"what belongs together as one row: of a series, for example, data=(y[1:], y[:-1])"
        )
    if not parts.add_up:
        remedy = "give what does not depend on the rows, such as a prior, as log_prior"
        if parts.is_mean:
            remedy = "this is a mean: use .sum(), or return the log likelihood of each row"
        raise ConfigError(
            f"log_density must be a sum over rows for batch_size={batch_size}, got {parts}; "
            f"{remedy}"
        )


@dataclass(frozen=True)
class Parts:
    """Log likelihoods of two parts of the rows, and of both together, (choice of rows, θ).

    Attributes:
        apart: f(A) + f(B).
        together: f(A ∪ B).
        reordered: f(A ∪ B) of the same rows in another order.
        size: Σ|·| of all that `log_density` returned.
        rounding: Relative error of a value that is let pass.
        rows: Rows in each part.
        shapes: What `log_density` returned, for A and for A ∪ B.
    """

    apart: Tensor
    together: Tensor
    reordered: Tensor
    size: Tensor
    rounding: float
    rows: int
    shapes: tuple[torch.Size, torch.Size]

    @property
    def add_up(self) -> bool:
        """Whether f is a sum over rows: so at half of the θ or more, for rounding may deceive."""
        return self._zero(self.apart - self.together)

    @property
    def is_mean(self) -> bool:
        """Whether f is a mean over rows, and not 0."""
        return self._zero(self.apart / 2 - self.together) and not self.add_up

    @property
    def in_order(self) -> bool:
        """Whether f depends on the order of rows: so at more than half of the θ."""
        moved = (self.together - self.reordered).abs().mean(dim=0) > ORDER * self.size.mean(dim=0)
        return len(moved) > 0 and float(moved.double().mean()) > 0.5

    def _zero(self, difference: Tensor) -> bool:
        """Whether a difference is rounding: small, and scattered around 0 over choices of rows."""
        size = self.size.mean(dim=0)
        error = difference.std(dim=0) / math.sqrt(len(difference))
        constant = difference.mean(dim=0).abs() > MARGIN * error + self.rounding * size
        gross = difference.abs().mean(dim=0) > GROSS * size
        return float((constant | gross).double().mean()) <= 0.5 if len(size) else True

    def __str__(self) -> str:
        worst = int((self.apart - self.together).abs()[0].argmax())
        return (
            f"{self.apart[0, worst]:.6g} for two parts of {self.rows} rows, added, and "
            f"{self.together[0, worst]:.6g} for both together"
        )


def two_parts(density: LogDensity, states: Tensor, seed: int) -> Parts:
    """Values at `states` and further away, in float64 unless `log_density` cannot."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    each = min(EACH, density.num_data // 2)
    choices = [
        torch.randperm(density.num_data, generator=generator)[: 2 * each] for _ in range(TRIES)
    ]
    away = torch.randn(states.shape, generator=generator, dtype=states.dtype).to(states.device)
    states = torch.cat([states, states + away])
    double = replace(density, data=of_dtype(density.data, torch.float64))
    try:
        return _compared(double, states.double(), choices)
    except Exception:  # it closes over tensors of another dtype
        return _compared(density, states, choices)


def _compared(density: LogDensity, states: Tensor, choices: Sequence[Tensor]) -> Parts:
    half = len(choices[0]) // 2
    places = torch.arange(2 * half)
    # In the other order rows of A and B take turns, so that no two neighbours stay neighbours.
    turns = places.view(2, half).T.flatten()
    a, b, both, other = (
        [_values(density, states, rows[part]) for rows in choices]
        for part in (places[:half], places[half:], places, turns)
    )
    first, second, whole, reordered = (
        torch.stack([total for total, _, _ in each]) for each in (a, b, both, other)
    )
    size = torch.stack([size for each in (a, b, both) for _, size, _ in each])
    size = size.reshape(3, *whole.shape).sum(dim=0)
    fine = size.isfinite().all(dim=0)
    shapes = a[0][2], both[0][2]
    rounding = ROUNDING[states.dtype]
    apart, whole, reordered, size = (
        each[:, fine] for each in (first + second, whole, reordered, size)
    )
    return Parts(apart, whole, reordered, size, rounding, half, shapes)


@torch.no_grad()
def _values(density: LogDensity, states: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
    """Σ and Σ|·| of what `log_density` returns for these rows at each state, and its shape."""
    batch = [part[rows.to(part.device)] for part in density.data]
    shapes = []

    def one(state: Tensor) -> tuple[Tensor, Tensor]:
        value = density.function(density.constrained(state), *batch)
        shapes.append(value.shape)
        return value.sum(), value.abs().sum()

    total, size = vmap(one)(states)
    return total, size, shapes[0]


def _check_shapes(shapes: tuple[torch.Size, torch.Size]) -> None:
    """Refuse an output that grows with the square of the rows."""
    if shapes[0][1:] != shapes[1][1:]:
        raise ConfigError(
            f"log_density must return one number for each row, or their sum, got shape "
            f"{(*shapes[1],)} for {shapes[1][0]} rows; a shape (n, 1) was broadcast against (n,): "
            f"take the last dimension off with [:, 0]"
        )


def _warn_of_a_mean(parts: Parts) -> None:
    if parts.is_mean:
        warnings.warn(
            f"log_density looks like a mean over rows: it is {parts}. The draws then know as much "
            f"as one row tells; return the log likelihood of each row, or their sum",
            UserWarning,
            stacklevel=4,
        )
