"""Stacks of chains: one tensor for each variable of a sampler's rule, moved by one call of it.

Rules are elementwise, so that a call on the stacked states of C chains is one step of each.
`move` is that call, for all of them. `Method` is a sampler at a constant learning rate, for the
chains of `run`; `Stack` holds small networks, layer by layer, for loops that change it
(`stacked_modules.py`). The scikit-learn estimators take their noise from a generator, and call
`move` with coefficients of each chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.samplers import Sampler, registry
from entropy_mcmc.samplers.rule import Eps, Update


def samplers() -> dict[str, type[Sampler]]:
    """The samplers that a stack can run, by name: those that take one gradient per step.

    >>> "sgld" in samplers(), "sam" in samplers()
    (True, False)
    """
    kinds = {name: registry.load(name) for name in registry.SAMPLERS}
    return {name: kind for name, kind in kinds.items() if not kind.needs_closure}


@dataclass(frozen=True)
class Method:
    """Steps of a sampler at a constant lr: `first`, and from step `settles` on `settled`."""

    kind: type[Sampler]
    first: Update
    settled: Update
    settles: int
    group: dict[str, Any]

    @classmethod
    def of(cls, kind: type[Sampler], settings: dict[str, Any]) -> Method:
        """The method of a sampler's settings, after the checks of the optimizer."""
        group = kind.settings(**settings)
        settles = kind.settles_after(group)
        settled = kind.stacked_update({**group, "step": settles})
        return cls(kind, kind.stacked_update(group), settled, settles, group)

    @property
    def normals(self) -> int:
        """Standard normals per element and step: 0, 1 or 2."""
        return self.settled.normals

    @property
    def pairs(self) -> int:
        """1, or 2 for a rule that takes the normals of the step before, too."""
        return self.settled.pairs

    @property
    def replicas(self) -> int:
        """Rows that belong to one chain: its replicas."""
        return int(self.group.get("replicas", 1))

    @property
    def guide_draw(self) -> Update | None:
        """The draw of a guide given θ, of a sampler that does not move it."""
        return self.kind.guide_draw(self.group)

    def begin(self, theta: Tensor) -> Any:
        """The variables of all chains before the first step, by name."""
        return self.first.begin(theta, self.group)

    def before_settling(self, start: int, count: int) -> int:
        """How many of the steps start … start+count−1 come before `settles`."""
        return min(max(self.settles - start, 0), count)


def move(update: Update, values: Any, grad: Tensor, eps: Eps, **own: Any) -> Any:
    """Variables after a step; `own` replaces coefficients, by name, with those of each chain."""
    c = update.coefficients._replace(**own) if own else update.coefficients
    return update.rule(update.variables(*values), grad, eps, c)


class Stack:
    """C networks of one architecture: `layers` with a leading dimension C, and their gradients.

    The layers are views of one flat tensor for each variable: the rule is then one call, not one
    for each layer. `layers` and their `.grad` are for autograd; `step` moves them.
    """

    def __init__(self, start: Sequence[Tensor], kind: type[Sampler], **settings: Any) -> None:
        """Networks that begin at `start`, moved by a sampler with these settings."""
        self._kind, self.group = kind, kind.settings(**settings)
        self._shapes = [layer.shape for layer in start]
        self.flat = torch.cat([layer.reshape(-1) for layer in start])
        self.grad = torch.zeros_like(self.flat)
        self.layers = views(self.flat, self._shapes)
        for layer, grad in zip(self.layers, views(self.grad, self._shapes), strict=True):
            layer.requires_grad_()
            layer.grad = grad
        self._variables = kind.update(self.group).begin(self.flat, self.group)
        chains = torch.arange(len(start[0]))
        self._chain_of = torch.cat([chains.repeat_interleave(layer[0].numel()) for layer in start])

    def __len__(self) -> int:
        return int(self._shapes[0][0])

    def update(self, lr: float) -> Update:
        """The next step at this lr, whose coefficients `step` may replace."""
        self.group["lr"] = lr
        return self._kind.update(self.group)

    @torch.no_grad()
    def step(self, update: Update, eps: Eps, **own: Tensor) -> None:
        """Move all chains; `own` are coefficients, by name, with one number for each chain."""
        spread = {name: self.spread(each) for name, each in own.items()}
        moved = move(update, self._variables, self.grad, eps, **spread)
        self.flat.copy_(moved.theta)
        self._variables = moved._replace(theta=self.flat)
        self.group["step"] += 1
        if "last_lr" in self.group:
            self.group["last_lr"] = self.group["lr"]

    def spread(self, each: Tensor) -> Tensor:
        """A number for each chain, repeated for each of its weights; for equal chains, one."""
        each = each.expand(len(self))
        return each[0] if bool((each == each[0]).all()) else each[self._chain_of]

    @property
    def guide_draw(self) -> Update | None:
        """The draw of a guide given θ, of a sampler that does not move it."""
        return self._kind.guide_draw(self.group)

    def copy(self, variable: str) -> list[Tensor]:
        """The layers of a variable, "theta" or "guide" for example, as they are now."""
        return self.shaped(getattr(self._variables, variable).clone())

    def shaped(self, flat: Tensor) -> list[Tensor]:
        """The layers of a flat tensor."""
        return views(flat, self._shapes)


def views(flat: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Consecutive parts of `flat`, in these shapes."""
    parts = torch.split(flat, [shape.numel() for shape in shapes])
    return [part.detach().view(shape) for part, shape in zip(parts, shapes, strict=True)]
