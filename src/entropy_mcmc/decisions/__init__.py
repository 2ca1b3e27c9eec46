"""From probabilities to decisions: a scale that calibrates them, a rule that says when to abstain.

Both are fitted on validation rows, work on probabilities from anywhere (a posterior, an exported
module), and are kept as a few numbers of JSON.
"""

from entropy_mcmc.decisions.abstention import Abstention
from entropy_mcmc.decisions.temperature_scaling import TemperatureScaling

__all__ = ["Abstention", "TemperatureScaling"]
