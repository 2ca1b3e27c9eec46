"""Samplers: one file per algorithm, each a `torch.optim.Optimizer`; `registry` lists them.

Names are imported when they are first used, so that the registry can be read without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from entropy_mcmc.samplers import registry

if TYPE_CHECKING:
    from entropy_mcmc.samplers.base import Sampler as Sampler
    from entropy_mcmc.samplers.bsam import BSAM as BSAM
    from entropy_mcmc.samplers.entropy_mcmc import EntropyMCMC as EntropyMCMC
    from entropy_mcmc.samplers.entropy_sgd import EntropySGD as EntropySGD
    from entropy_mcmc.samplers.entropy_sgld import EntropySGLD as EntropySGLD
    from entropy_mcmc.samplers.psgld import PSGLD as PSGLD
    from entropy_mcmc.samplers.sam import SAM as SAM
    from entropy_mcmc.samplers.sghmc import SGHMC as SGHMC
    from entropy_mcmc.samplers.sgld import SGLD as SGLD

_HOMES = {**registry.homes(), "Sampler": "entropy_mcmc.samplers.base"}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'entropy_mcmc.samplers' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
