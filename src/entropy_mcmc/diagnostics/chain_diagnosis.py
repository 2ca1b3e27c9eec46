"""The diagnosis of runs for chains of a small model: of its parameters instead of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from entropy_mcmc.diagnostics import chain_verdicts, verdicts
from entropy_mcmc.diagnostics.agreement import agreements
from entropy_mcmc.diagnostics.diagnosis import Diagnosis, RoleDiagnosis, _wrapped
from entropy_mcmc.diagnostics.distances import prediction_distances, weight_distances
from entropy_mcmc.diagnostics.ess_rhat import mixing
from entropy_mcmc.diagnostics.pair_temperature import pair_temperature

COMPARED = "root mean square difference of parameters"
MOST = 50  # draws of each chain that are compared as independent ones


@dataclass(frozen=True)
class ChainDiagnosis(Diagnosis):
    """What `diagnose_chains` found; `print` it for a table."""

    def __str__(self) -> str:
        rows = []
        if self.theta_temperature is not None:
            rows.append(("temperature", f"{self.theta_temperature.reading} measured, 1 set"))
        for role in self.roles:
            brief = role.mixing.brief("chains").replace("predictions", "parameters")
            rows.append((role.role, brief))
        rows += [(f"[{item.severity}]", item.sentence) for item in self.advice]
        return "\n".join(["Diagnosis", *(_wrapped(*row) for row in rows)])


def diagnose_chains(
    draws: Tensor, looked_at: Tensor, slopes: Tensor, names: Sequence[str] = ()
) -> ChainDiagnosis:
    """Have chains mixed, do they agree, and are they at temperature 1?

    Args:
        draws: (chain, draw, element), unconstrained.
        looked_at: Some of them, (chain, draw, element).
        slopes: ∇U there.
        names: Of the elements, for the advice.
    """
    mixed = mixing([chain.double().numpy() for chain in draws])
    apart = spaced_apart(draws, mixed.ess[0] if mixed.ess else draws.shape[1])
    labels = [(0, c, 0) for c in range(len(apart)) for _ in range(apart.shape[1])]
    rows = apart.flatten(0, 1).double()
    scaled = rows / spread(rows)
    role = RoleDiagnosis(
        "parameters",
        mixed,
        weight_distances(zip(labels, [[row] for row in rows], strict=True)),
        prediction_distances(scaled, labels),
        COMPARED,
        agreements(scaled, labels),
    )
    cycles = [c for c in range(len(looked_at)) for _ in range(looked_at.shape[1])]
    scale = spread(draws.flatten(0, 1))
    pair = None
    if looked_at.shape[1] > 1 and len(cycles) > 2:
        pair = pair_temperature(
            (looked_at / scale).flatten(0, 1), (slopes * scale).flatten(0, 1), cycles
        )
    found = chain_verdicts.worst(draws, names)
    advice = chain_verdicts.on_worst(found) + chain_verdicts.on_agreement(role, found)
    advice += chain_verdicts.on_temperature(pair)
    advice += chain_verdicts.on_efficiency(found, mixed.ess[1] if mixed.ess else draws.shape[1])
    advice += chain_verdicts.on_notes(role)
    advice.sort(key=lambda item: -verdicts.SEVERITIES.index(item.severity))
    return ChainDiagnosis(1.0, None, None, (role,), tuple(advice), pair)


def spread(rows: Tensor) -> Tensor:
    """Standard deviation of each element, by which it can be divided; of a single draw 1."""
    return rows.std(dim=0).clamp_min(1e-30) if len(rows) > 1 else torch.ones_like(rows[0])


def spaced_apart(draws: Tensor, ess: float) -> Tensor:
    """Draws so far apart that they count as independent: as many as the ESS of a chain."""
    number = int(min(MOST, max(4.0, ess / len(draws)), draws.shape[1]))
    places = torch.linspace(0, draws.shape[1] - 1, number).long()
    return draws[:, places]
