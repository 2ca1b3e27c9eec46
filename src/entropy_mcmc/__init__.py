"""Bayesian deep learning from flat basins: Entropy-MCMC and its peers, on PyTorch.

Names are imported when they are first used, so that `import entropy_mcmc` costs what
`import torch` costs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from entropy_mcmc import schedules
from entropy_mcmc.samplers import BSAM, SAM, SGHMC, SGLD, EntropyMCMC, EntropySGD, EntropySGLD

if TYPE_CHECKING:
    from entropy_mcmc import metrics, theory
    from entropy_mcmc.posterior import Posterior

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
    "metrics",
    "schedules",
    "theory",
]

_LAZY = {"Posterior": "entropy_mcmc.posterior"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in __all__:
        return import_module(f"entropy_mcmc.{name}")
    raise AttributeError(f"module 'entropy_mcmc' has no attribute {name!r}")
