"""Bayesian deep learning from flat basins: Entropy-MCMC and its peers, on PyTorch.

Names are imported when they are first used: `import entropy_mcmc` and `emcmc --help` do not even
load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entropy_mcmc import chains, diagnostics, flatness, metrics, recipes, schedules, theory
    from entropy_mcmc.posterior import Posterior
    from entropy_mcmc.run.api import sample
    from entropy_mcmc.samplers import (
        BSAM,
        SAM,
        SGHMC,
        SGLD,
        EntropyMCMC,
        EntropySGD,
        EntropySGLD,
    )

__version__ = "0.1.0.dev0"

__all__ = [
    "BSAM",
    "SAM",
    "SGHMC",
    "SGLD",
    "EntropyMCMC",
    "EntropySGD",
    "EntropySGLD",
    "Posterior",
    "chains",
    "diagnostics",
    "flatness",
    "metrics",
    "recipes",
    "sample",
    "schedules",
    "theory",
]

_SAMPLERS = ("BSAM", "SAM", "SGHMC", "SGLD", "EntropyMCMC", "EntropySGD", "EntropySGLD")
_HOMES = {
    **dict.fromkeys(_SAMPLERS, "entropy_mcmc.samplers"),
    "Posterior": "entropy_mcmc.posterior",
    "sample": "entropy_mcmc.run.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in __all__:
        value = import_module(f"entropy_mcmc.{name}")
    else:
        raise AttributeError(f"module 'entropy_mcmc' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
