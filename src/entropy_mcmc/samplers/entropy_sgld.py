r"""Entropy-SGLD (Dziugaite & Roy, 2018): sample θ from exp F(θ; η), the local entropy.

The inner chain of Entropy-SGD, then an outer step with noise:

.. math:: \theta \leftarrow \theta - lr\,(\theta - mean)/(\eta N) + \sqrt{2\,lr\,T/N}\,\epsilon

Its target is the posterior convolved with N(0, ηT·I): the distribution of Entropy-MCMC's guide.
"""

from __future__ import annotations

from typing import ClassVar

from entropy_mcmc.samplers.base import Group
from entropy_mcmc.samplers.entropy_sgd import EntropySGD
from entropy_mcmc.units import posterior_in_words


class EntropySGLD(EntropySGD):
    """Sample from the smoothed posterior with L gradients per step; arguments of `EntropySGD`."""

    outer_noise = True
    result = "samples"
    samples_posterior = False
    run_defaults: ClassVar = {**EntropySGD.run_defaults, "temperature": 1e-2}

    @staticmethod
    def target(group: Group) -> str:
        """The posterior of θ, tempered and smoothed."""
        return f"{posterior_in_words(group)}, convolved with N(0, ηT I), as L and a allow"
