"""Keeping samples, loading them and predicting with their average."""

from entropy_mcmc.posterior.batchnorm import refresh_batchnorm
from entropy_mcmc.posterior.posterior import Posterior
from entropy_mcmc.posterior.predictive import RegressionPrediction

__all__ = ["Posterior", "RegressionPrediction", "refresh_batchnorm"]
