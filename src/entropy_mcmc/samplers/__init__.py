"""Samplers: one file per algorithm, each a `torch.optim.Optimizer`."""

from entropy_mcmc.samplers.base import Sampler
from entropy_mcmc.samplers.bsam import BSAM
from entropy_mcmc.samplers.entropy_mcmc import EntropyMCMC
from entropy_mcmc.samplers.entropy_sgd import EntropySGD
from entropy_mcmc.samplers.entropy_sgld import EntropySGLD
from entropy_mcmc.samplers.sam import SAM
from entropy_mcmc.samplers.sghmc import SGHMC
from entropy_mcmc.samplers.sgld import SGLD

__all__ = ["BSAM", "SAM", "SGHMC", "SGLD", "EntropyMCMC", "EntropySGD", "EntropySGLD", "Sampler"]
