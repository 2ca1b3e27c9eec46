"""Many networks from one training run: Entropy-MCMC and its peers, on PyTorch.

Names are imported when they are first used: `import entropy_mcmc` and `emcmc --help` do not even
load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from entropy_mcmc.samplers import registry

if TYPE_CHECKING:
    from entropy_mcmc import (
        chains,
        decisions,
        diagnostics,
        flatness,
        metrics,
        recipes,
        schedules,
        theory,
    )
    from entropy_mcmc.posterior import Posterior as Posterior
    from entropy_mcmc.run.python_api import sample as sample
    from entropy_mcmc.samplers import BSAM as BSAM
    from entropy_mcmc.samplers import PSGLD as PSGLD
    from entropy_mcmc.samplers import SAM as SAM
    from entropy_mcmc.samplers import SGHMC as SGHMC
    from entropy_mcmc.samplers import SGLD as SGLD
    from entropy_mcmc.samplers import EntropyMCMC as EntropyMCMC
    from entropy_mcmc.samplers import EntropySGD as EntropySGD
    from entropy_mcmc.samplers import EntropySGLD as EntropySGLD
    from entropy_mcmc.tuning.python_api import tune as tune

__version__ = "0.1.0.dev0"

_HOMES = {
    **registry.homes(),
    "Posterior": "entropy_mcmc.posterior",
    "sample": "entropy_mcmc.run.python_api",
    "tune": "entropy_mcmc.tuning.python_api",
}
__all__ = [
    *_HOMES,
    "chains",
    "decisions",
    "diagnostics",
    "flatness",
    "metrics",
    "recipes",
    "schedules",
    "theory",
]


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
