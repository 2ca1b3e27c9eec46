"""What a rule is: a pure function from variables, gradient and noise to new variables.

    rule(v, grad, eps, c) -> v

`v` is a NamedTuple of what the chain keeps for each parameter, θ first; `c` one of coefficients;
`eps` a pair of standard normals, or None when the noise is off. All are elementwise, so that the
same source runs on one tensor, on a stack of chains, and compiled. A rule that reads more than the
gradient takes it between `v` and `eps`. One that averages noise takes two pairs: that of the move
before and a new one; the generator is a pure function of the step, so the first is not kept but
computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

Pair = tuple[Tensor, Tensor]
Pairs = tuple[Pair, Pair]
Eps = Pair | Pairs | None


def starts(at: float | str) -> Any:
    """Value of a variable before the first step: a number, "theta", or a hyper-parameter's name.

    It is written as the default of a field: `guide: Tensor = starts("theta")`.
    """
    return at


class Form(NamedTuple):
    """A rule with the NamedTuples that it takes: all of a step but its values."""

    rule: Callable[..., Any]
    variables: Any
    coefficients: Any
    pairs: int = 1

    def apply(self, values: Sequence[Tensor], eps: Eps, c: Iterable[Any]) -> Any:
        """New variables from their old values followed by what the rule only reads."""
        moved = len(self.variables._fields)
        v = self.variables(*values[:moved])
        return self.rule(v, *values[moved:], eps, self.coefficients(*c))


def number(at: float | str, group: Mapping[str, Any]) -> float:
    """The number at which a variable starts: itself, or a hyper-parameter's."""
    return float(group[at]) if isinstance(at, str) else at


@dataclass(frozen=True)
class Update:
    """One step of a parameter group.

    Attributes:
        rule: The pure function.
        variables: The NamedTuple class of what it moves; fields beside θ say how they start.
        coefficients: Its coefficients in this step, a NamedTuple.
        normals: Standard normals per element that it uses: 0 (no noise), 1 or 2.
        pairs: 1, or 2 for a rule that takes the normals of the step before, too.
    """

    rule: Callable[..., Any]
    variables: Any
    coefficients: Any
    normals: int
    pairs: int = 1

    @property
    def form(self) -> Form:
        """The step without its values, which is what is compiled."""
        return Form(self.rule, self.variables, type(self.coefficients), self.pairs)

    @property
    def starts(self) -> Mapping[str, float | str]:
        """The variables beside θ, and their values before the first step."""
        starts: Mapping[str, float | str] = self.variables._field_defaults
        return starts

    def begin(self, theta: Tensor, group: Mapping[str, Any]) -> Any:
        """The variables before the first step, for a tensor of θ and the entries of a group."""
        others = {
            name: theta.clone() if at == "theta" else torch.full_like(theta, number(at, group))
            for name, at in self.starts.items()
        }
        return self.variables(theta, **others)

    def __call__(self, values: Sequence[Tensor], eps: Eps) -> Any:
        """New variables from their old values followed by what the rule only reads."""
        return self.form.apply(values, eps, self.coefficients)
