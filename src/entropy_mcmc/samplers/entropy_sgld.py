r"""Entropy-SGLD (Dziugaite & Roy, 2018): sample θ from exp F(θ; η), the local entropy.

The inner chain of Entropy-SGD, then an outer step with noise:

.. math:: \theta \leftarrow \theta - lr\,(\theta - mean)/(\eta N) + \sqrt{2\,lr\,T/N}\,\epsilon

Its target is the posterior convolved with N(0, ηT·I): the law of Entropy-MCMC's guide.
"""

from __future__ import annotations

from entropy_mcmc.samplers.base import Group
from entropy_mcmc.samplers.entropy_sgd import EntropySGD
from entropy_mcmc.samplers.explain import describe_posterior


class EntropySGLD(EntropySGD):
    """Sample from the smoothed posterior with L gradients per step; arguments of `EntropySGD`."""

    outer_noise = True

    def _target(self, group: Group) -> str:
        return f"{describe_posterior(group)}, convolved with N(0, ηT I), as L and a allow"
