"""The steps of a sampler for chains at a constant learning rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from entropy_mcmc.samplers import Sampler, registry
from entropy_mcmc.samplers.rule import Update


def samplers() -> dict[str, type[Sampler]]:
    """The samplers that chains can run, by name: those that take one gradient per step.

    >>> "sgld" in samplers(), "sam" in samplers()
    (True, False)
    """
    kinds = {name: registry.load(name) for name in registry.SAMPLERS}
    return {name: kind for name, kind in kinds.items() if not kind.needs_closure}


SAMPLERS = samplers()


@dataclass(frozen=True)
class Method:
    """Steps of a sampler: `first`, and from step number `settles` on `settled`."""

    first: Update
    settled: Update
    settles: int
    seed: int

    @property
    def normals(self) -> int:
        """Standard normals per element and step: 0, 1 or 2."""
        return self.settled.normals

    def early(self, start: int, count: int) -> int:
        """How many of the steps start … start+count−1 come before `settles`."""
        return min(max(self.settles - start, 0), count)


def method_of(sampler: str, settings: dict[str, Any]) -> Method:
    """The steps of a sampler, after the checks of its optimizer."""
    kind = SAMPLERS[sampler]
    group = kind.settings(**settings)
    settles = kind.settles_after(group)
    settled = kind.update({**group, "step": settles})
    return Method(kind.update(group), settled, settles, group["seed"])


def first_state(sampler: str, settings: dict[str, Any], flat: Tensor) -> Any:
    """θ of all chains and what the sampler keeps beside it, by name, before the first step."""
    group = SAMPLERS[sampler].settings(**settings)
    return SAMPLERS[sampler].update(group).begin(flat, group)
