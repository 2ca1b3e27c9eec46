"""`eta="auto"`: η from lr, N and the guide's horizon; a schedule that knows its cycles refines it.

Before the first step a sampler takes the horizon of `units.UNKNOWN_HORIZON` steps. `Cyclical`
tells it the length of a cycle, and where the noise begins; η is then that of
`units.auto_horizon`, and stays. The nested samplers need no schedule: their well is as wide as
their inner chain is long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from entropy_mcmc import units
from entropy_mcmc.errors import check_positive

AUTO = "auto"


class Choice(NamedTuple):
    """η and why."""

    eta: float
    reason: str


def first_choice(group: Mapping[str, Any]) -> Choice:
    """η of a group before its schedule is known."""
    num_data = check_positive("num_data", group["num_data"], remedy=units.NUM_DATA_REMEDY)
    if "inner_steps" in group:
        lr = _rate("inner_lr", group)
        steps = units.nested_horizon(group["inner_steps"])
        reason = f"{steps:g} inner steps wide, {group['inner_steps']} of which are made"
    else:
        lr, steps = _rate("lr", group), units.UNKNOWN_HORIZON
        reason = f"the guide averages over {steps:g} {_turns(group)}; Cyclical fits it to a cycle"
    return Choice(_wide_enough(group, units.eta_of_horizon(steps, lr, num_data)), reason)


def planned_choice(group: Mapping[str, Any], cycle_steps: int, burn_in: float) -> Choice | None:
    """η of a group whose cycles are known; None where it is settled already.

    A step of replicas is a round.
    """
    if "inner_steps" in group or group["step"] or not group["lr"]:
        return None
    noise_from = burn_in if group["temperature"] else None
    steps = units.auto_horizon(cycle_steps, noise_from, group.get("momentum", 0.0))
    share = f"{steps / cycle_steps:.0%} of a cycle"
    reason = f"the guide averages over {steps:.3g} {_turns(group)}, {share}"
    planned = units.eta_of_horizon(steps, group["lr"], group["num_data"])
    eta = _wide_enough(group, planned)
    if eta > _speed(group) * planned:
        reason = f"{units.MARGIN:g} times the η at which a guide that moves so seldom diverges"
    return Choice(eta, reason)


def _wide_enough(group: Mapping[str, Any], eta: float) -> float:
    """η of all replicas from that of one; not near the limit of a guide that moves seldom."""
    return units.wide_enough(_speed(group) * eta, group)


def _speed(group: Mapping[str, Any]) -> int:
    """How many times as fast as one network its replicas move the guide."""
    speed: int = group.get("replicas", 1)
    return speed


def _turns(group: Mapping[str, Any]) -> str:
    """What the guide's horizon is counted in."""
    return "steps" if _speed(group) == 1 else "rounds"


def _rate(name: str, group: Mapping[str, Any]) -> float:
    remedy = f'eta="auto" follows from {name}; give eta as a number, or a positive {name}'
    return check_positive(name, group[name], remedy=remedy)
