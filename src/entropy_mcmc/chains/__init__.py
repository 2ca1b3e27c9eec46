"""Many independent chains of a small model at once, several steps per compiled call.

`sample` draws the named parameters of a small Bayesian model from their posterior, with all
settings adapted; `run` is what it is made of.

`run` moves all chains of a functional energy or of a small `nn.Module` together (`torch.func`,
vmap), with the update rules of `samplers` and the noise of `noise`.

Noise addresses: parameter i of chain c, in a model of P parameter tensors, has the parameter index
c·P + i. So two chains never share numbers (chains · P ≤ 2^22, checked), and chain 0 is the chain of
the optimizer of the same seed. Mini-batches are drawn with replacement, each chain its own, from
stream 255 at (chain, position in the batch).
"""

from entropy_mcmc.chains import transforms
from entropy_mcmc.chains.bayesian import sample
from entropy_mcmc.chains.draws import Chains
from entropy_mcmc.chains.posterior_draws import PosteriorDraws
from entropy_mcmc.chains.sampling import run

__all__ = ["Chains", "PosteriorDraws", "run", "sample", "transforms"]
