"""Published negative log-likelihoods of the UCI regressions, each with its source.

All have one hidden layer of 50 units (protein 100). Those of 2017 have the standard splits; SGHMC's
splits are not known to be the same.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A column of a published table: NLL by table of ours."""

    label: str
    source: str
    nll: dict[str, float]


_TABLE_1 = "Lakshminarayanan, Pritzel and Blundell, NeurIPS 2017, Table 1"
_ORDER = (
    "boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine-red", "yacht",
)  # fmt: skip


def _column(label: str, *values: float) -> Published:
    return Published(label, _TABLE_1, dict(zip(_ORDER, values, strict=True)))


_SGHMC = (
    "Springenberg, Klein, Falkner and Hutter, NeurIPS 2016, scale-adapted; as quoted by later "
    "papers, in two decimals"
)

ENSEMBLES = _column("Deep ensemble (5)", 2.41, 3.06, 1.38, -1.20, -5.63, 2.79, 2.83, 0.94, 1.18)
PUBLISHED = (
    ENSEMBLES,
    _column("MC-dropout", 2.46, 3.04, 1.99, -0.95, -3.80, 2.80, 2.89, 0.93, 1.55),
    _column("PBP", 2.57, 3.16, 2.04, -0.90, -3.73, 2.84, 2.97, 0.97, 1.63),
    Published(
        "SGHMC (2016)", _SGHMC, {"boston": 2.54, "concrete": 3.38, "wine-red": 1.04, "yacht": 1.11}
    ),
)
