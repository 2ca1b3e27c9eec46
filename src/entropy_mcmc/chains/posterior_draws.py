"""`PosteriorDraws`: named draws of a small model, with their log density and how they were made."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entropy_mcmc.chains.draws import data_tree
from entropy_mcmc.chains.row_layout import Layout
from entropy_mcmc.chains.warm_up import Tuning
from entropy_mcmc.diagnostics.chain_diagnosis import ChainDiagnosis, diagnose_chains
from entropy_mcmc.errors import ConfigError


@dataclass(frozen=True)
class PosteriorDraws:
    """Draws of named parameters as (chain, draw, …).

    Attributes:
        parameters: Draws by name, inside their ranges.
        log_density: Log density of each draw from all data, (chain, draw).
        tuning: Preconditioner, step size and momentum, frozen after warm-up.
        gradients: All that were taken, for each chain: steps, warm-up, checks and diagnosis. One is
            the gradient of a step: of a mini-batch, or of all rows where there are none.
        unconstrained: Draws before their transforms, (chain, draw, element).
        slopes: Gradients of the energy at `slopes_at` of them, for the diagnosis.
        slopes_at: Numbers of the draws, the same for every chain.
    """

    parameters: dict[str, Tensor]
    log_density: Tensor
    tuning: Tuning
    gradients: int
    unconstrained: Tensor
    slopes: Tensor
    slopes_at: tuple[int, ...]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.parameters:
            known = ", ".join(self.parameters)
            raise ConfigError(f"no parameter {name!r} was sampled; there are {known}")
        return self.parameters[name]

    def diagnose(self) -> ChainDiagnosis:
        """The diagnosis of runs, of parameters instead of predictions."""
        at = list(self.slopes_at)
        looked_at = self.unconstrained[:, at]
        return diagnose_chains(self.unconstrained, looked_at, self.slopes, self.labels())

    def labels(self) -> list[str]:
        """Names of all numbers: "b" of a scalar, "w[0,1]" of an element."""
        shapes = tuple(value.shape[2:] for value in self.parameters.values())
        return Layout(tuple(self.parameters), shapes).labels()

    def summary(self) -> str:
        """A table of mean, standard deviation, ESS and R-hat of every number."""
        stats: Any = import_module("arviz_stats.base").array_stats
        rows = [f"{'':<16}{'mean':>10}{'sd':>10}{'ESS':>8}{'R-hat':>8}"]
        parts = [v.reshape(*v.shape[:2], -1) for v in self.parameters.values()]
        flat = torch.cat(parts, dim=2).double().cpu().numpy()
        for label, one in zip(self.labels(), np.moveaxis(flat, 2, 0), strict=True):
            with np.errstate(all="ignore"):
                ess = float(stats.ess(one, chain_axis=0, draw_axis=1, method="bulk"))
                rhat = float(stats.rhat(one, chain_axis=0, draw_axis=1))
            numbers = f"{one.mean():>10.4g}{one.std():>10.4g}{ess:>8.0f}{rhat:>8.3f}"
            rows.append(f"{label:<16}{numbers}")
        return "\n".join(rows)

    def to_arviz(self) -> Any:
        """An xarray DataTree with the groups `posterior` and `sample_stats` (lp)."""
        return data_tree(posterior=self.parameters, sample_stats={"lp": self.log_density})
