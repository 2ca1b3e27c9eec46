"""What hyper-parameters mean: step sizes, stability, averaging and the implied target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from entropy_mcmc.units import Scales, least_eta, scales

if TYPE_CHECKING:
    from entropy_mcmc.samplers.base import Sampler


@dataclass(frozen=True)
class GroupExplanation:
    """One parameter group; sizes are root mean squares per coordinate and step."""

    size: int
    rule: str
    lr: float
    step_size: float | None
    drift: float | None
    coupling: float | None
    noise: float
    margin: float | None
    horizon: float | None
    target: str
    eta: float | None = None
    eta_reason: str = ""
    replicas: int = 1

    def rows(self) -> list[tuple[str, str]]:
        """Label and value of each line of the table."""
        turns = "steps" if self.replicas == 1 else "rounds"
        rows = [
            ("parameters", f"{self.size:,}"),
            ("rule", self.rule),
            ("lr (mean loss)", f"{self.lr:.4g}"),
            ("α = lr/N (energy)", _number(self.step_size)),
            ("drift per step", _number(self.drift, "no gradient yet")),
            ("coupling per step", _number(self.coupling, "no guide")),
            ("noise per step", _number(self.noise)),
            ("stability: lr/(ηN) of its limit", _number(self.margin, "no coupling")),
            (f"guide averages over, {turns}", _number(self.horizon, "no guide")),
        ]
        if self.eta is not None:
            reason = f" (auto: {self.eta_reason})" if self.eta_reason else ""
            rows.append(("η", f"{self.eta:.4g}{reason}"))
        return [*rows, ("target", self.target)]


@dataclass(frozen=True)
class Explanation:
    """Explanation of a sampler; `print` it for a table."""

    sampler: str
    step: int
    groups: tuple[GroupExplanation, ...]

    def __str__(self) -> str:
        lines = [f"{self.sampler} after {self.step} steps"]
        for number, group in enumerate(self.groups):
            if len(self.groups) > 1:
                lines.append(f" group {number}")
            lines += [f"  {label:<33} {value}" for label, value in group.rows()]
        return "\n".join(lines)


def explain(sampler: Sampler, eta_reasons: Mapping[int, str]) -> Explanation:
    """Explain every group of `sampler` at its current state; reasons are of groups by number."""
    groups = tuple(
        _explain_group(sampler, group, eta_reasons.get(number, ""))
        for number, group in enumerate(sampler.param_groups)
    )
    return Explanation(type(sampler).__name__, sampler.param_groups[0]["step"], groups)


@torch.no_grad()
def _explain_group(sampler: Sampler, group: dict[str, Any], reason: str) -> GroupExplanation:
    params = group["params"]
    with_grad = [p for p in params if p.grad is not None]
    drift = [p.grad.double() + group["weight_decay"] * p.double() for p in with_grad]
    gaps = [
        sampler.state[p]["guide"].double() - sampler._theta(p).double()
        for p in params
        if "guide" in sampler.state.get(p, {})
    ]
    scale = scales(group) if {"num_data", "temperature"} <= set(group) else None
    guide_update = group.get("guide_update", "euler")
    coupled = scale is not None and "eta" in group and guide_update != "collapsed"
    euler = coupled and guide_update == "euler"
    return GroupExplanation(
        size=sum(p.numel() for p in params),
        rule=_rule(group),
        lr=group["lr"],
        step_size=scale.alpha if scale else None,
        drift=group["lr"] * _rms(drift) if drift else None,
        coupling=scale.coupling * _rms(gaps) if scale and gaps else None,
        noise=scale.noise if scale else 0.0,
        margin=least_eta(group) / group["eta"] if euler else None,
        horizon=_horizon(scale, group) if scale and coupled else None,
        target=sampler.target(group),
        eta=group.get("eta"),
        eta_reason=reason,
        replicas=group.get("replicas", 1),
    )


def _horizon(scale: Scales, group: dict[str, Any]) -> float | None:
    """Steps over which the guide averages; it follows y replicas y times as fast."""
    pull = scale.coupling * group.get("replicas", 1)
    return 1 / pull if pull else None


def _rule(group: dict[str, Any]) -> str:
    """The integrator and how the guide follows, as far as the sampler has a choice."""
    integrator, guide = group.get("integrator", ""), group.get("guide_update", "")
    return ", guide ".join(part for part in (integrator, guide) if part) or "the sampler's own"


def _rms(tensors: list[Tensor]) -> float:
    size = sum(t.numel() for t in tensors)
    return math.sqrt(sum(float(t.square().sum()) for t in tensors) / max(size, 1))


def _number(value: float | None, missing: str = "not defined") -> str:
    return missing if value is None else f"{value:.4g}"
