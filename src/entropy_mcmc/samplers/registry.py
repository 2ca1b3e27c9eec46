"""The samplers: one line each.

From here come the exports of the package, the methods of `emcmc sample` and the options that they
take, the samplers of `chains.run`, and the names in reports. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module, util
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from entropy_mcmc.samplers.base import Sampler
    from entropy_mcmc.samplers.hyper_parameters import HyperParameter

PACKAGE = "entropy_mcmc.samplers"


class Entry(NamedTuple):
    """Where a sampler is: its module in this package, its class, and its name in print."""

    module: str
    sampler: str
    label: str


SAMPLERS: dict[str, Entry] = {
    "emcmc": Entry("entropy_mcmc", "EntropyMCMC", "Entropy-MCMC"),
    "sgld": Entry("sgld", "SGLD", "SGLD"),
    "psgld": Entry("psgld", "PSGLD", "Preconditioned SGLD"),
    "sghmc": Entry("sghmc", "SGHMC", "SGHMC"),
    "entropy-sgd": Entry("entropy_sgd", "EntropySGD", "Entropy-SGD (one network)"),
    "entropy-sgld": Entry("entropy_sgld", "EntropySGLD", "Entropy-SGLD"),
    "sam": Entry("sam", "SAM", "SAM (one network)"),
    "bsam": Entry("bsam", "BSAM", "bSAM"),
}


def load(name: str) -> type[Sampler]:
    """The sampler class of a name; this imports torch."""
    entry = SAMPLERS[name]
    sampler: type[Sampler] = getattr(import_module(f"{PACKAGE}.{entry.module}"), entry.sampler)
    return sampler


def homes() -> dict[str, str]:
    """Module of each sampler class, by the class's name.

    >>> homes()["SGLD"]
    'entropy_mcmc.samplers.sgld'
    """
    return {entry.sampler: f"{PACKAGE}.{entry.module}" for entry in SAMPLERS.values()}


@cache
def declared() -> Mapping[str, HyperParameter]:
    """Hyper-parameters of all samplers by name, read from the sources without importing torch."""
    from entropy_mcmc.samplers.hyper_parameters import hyper_parameters, signature_only

    merged: dict[str, HyperParameter] = {}
    for entry in SAMPLERS.values():
        spec = util.find_spec(f"{PACKAGE}.{entry.module}")
        assert spec is not None
        loader: Any = spec.loader
        source = signature_only(loader.get_source(spec.name), entry.sampler)
        if "__init__" in vars(source):
            merged = {**hyper_parameters(source), **merged}
    return merged
