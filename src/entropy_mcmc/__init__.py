"""Bayesian deep learning from flat basins: Entropy-MCMC and its peers, on PyTorch."""

__version__ = "0.1.0.dev0"
