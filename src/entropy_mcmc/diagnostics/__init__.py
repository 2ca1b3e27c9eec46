"""Is the chain at its temperature, and has it mixed?

`Thermometer` follows a sampler and reads its temperature from ‖θ−θ_a‖²; `diagnose` looks at the
collected samples as well and gives a table with advice.
"""

from entropy_mcmc.diagnostics.advice import Advice
from entropy_mcmc.diagnostics.configurational import configurational_temperature
from entropy_mcmc.diagnostics.cycles import (
    Contrast,
    prediction_distances,
    same_law,
    weight_distances,
)
from entropy_mcmc.diagnostics.diagnosis import Diagnosis, RoleDiagnosis, diagnose
from entropy_mcmc.diagnostics.function_space import Mixing, mixing
from entropy_mcmc.diagnostics.heat import (
    Estimate,
    Verdict,
    average,
    gradient_variance,
    independent,
    judge,
    power,
    separate,
)
from entropy_mcmc.diagnostics.thermometer import Reading, Thermometer, mean_error

__all__ = [
    "Advice",
    "Contrast",
    "Diagnosis",
    "Estimate",
    "Mixing",
    "Reading",
    "RoleDiagnosis",
    "Thermometer",
    "Verdict",
    "average",
    "configurational_temperature",
    "diagnose",
    "gradient_variance",
    "independent",
    "judge",
    "mean_error",
    "mixing",
    "power",
    "prediction_distances",
    "same_law",
    "separate",
    "weight_distances",
]
