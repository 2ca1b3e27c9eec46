"""Replicas of small models, stacked: one call of the rule moves all of them and their guide.

Rows are chains times replicas; each row has a copy of the guide, which is the same for the y rows
of a chain. The rule is that of `replicas.py`: every variable moves alone, with the gradient of the
joint energy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.samplers.base import Group
from entropy_mcmc.samplers.rule import Eps, Update
from entropy_mcmc.samplers.sghmc import alone_update
from entropy_mcmc.units import tie


class Star(NamedTuple):
    """Coefficients of a step: that of one variable alone, 1/(ηN), and the number y of replicas."""

    alone: Update
    tie: float
    replicas: int


def stacked_update(group: dict[str, Any], coupled: type, moving: type) -> Update:
    """The step of all replicas of a group, and of their guide, as rows (chain·replica, element).

    `coupled` is what is kept of θ and θ_a, `moving` what is kept of them with momentum.
    """
    if group["exchange_every"] > 1:
        raise ConfigError(
            f"exchange_every must be 1 for stacked replicas, whose guide costs nothing to move, "
            f"got exchange_every={group['exchange_every']}"
        )
    alone = alone_update(group)
    c = Star(alone, tie(group["num_data"], group["eta"]), group["replicas"])
    variables = moving if alone.starts else coupled
    return Update(star, variables, c, 2 * alone.normals, alone.pairs)


def refuse_replicas(group: Group) -> None:
    """Refuse a group of several replicas, which one rule for (θ, θ_a) cannot move."""
    if group["replicas"] > 1:
        raise ConfigError(
            f"replicas must be 1 here, got replicas={group['replicas']}; use the optimizer "
            "EntropyMCMC, or chains.run"
        )


def star(v: Any, grad: Tensor, eps: Eps, c: Star) -> Any:
    """Every replica and the guide from the old values."""
    alone, y = c.alone, c.replicas
    gap = v.theta - v.guide
    theta = alone.variables(v.theta, *((v.velocity,) if alone.starts else ()))
    guide = alone.variables(v.guide, *((v.guide_velocity,) if alone.starts else ()))
    moved = alone.rule(theta, grad + c.tie * gap, eps, alone.coefficients)
    pulled = -c.tie * _summed(gap, y)
    free = alone.coefficients._replace(decay=0.0)
    followed = alone.rule(guide, pulled, _of_guide(eps, y), free)
    velocities = (moved.velocity, followed.velocity) if alone.starts else ()
    return type(v)(moved.theta, followed.theta, *velocities)


def _summed(rows: Tensor, y: int) -> Tensor:
    """The sum over the replicas of each chain, in each of their rows."""
    total = rows.reshape(-1, y, rows.shape[-1]).sum(1, keepdim=True)
    return total.expand(-1, y, -1).reshape(rows.shape)


def _of_guide(eps: Any, y: int) -> Eps:
    """The second normals of each chain's first row: those of its guide."""
    if eps is None:
        return None
    if isinstance(eps[0], tuple):
        return tuple(_of_guide(pair, y) for pair in eps)  # type: ignore[return-value]
    rows = eps[1]
    first = rows.reshape(-1, y, rows.shape[-1])[:, :1]
    shared = first.expand(-1, y, -1).reshape(rows.shape)
    return shared, shared
