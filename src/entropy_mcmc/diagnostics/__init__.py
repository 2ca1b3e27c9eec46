"""Is the chain at its temperature, and has it mixed?

`Thermometer` follows a sampler and reads its temperature from ‖θ−θ_a‖²; `read_pair_temperature`
reads that of θ from gradients at the samples; `diagnose` looks at predictions as well and gives a
table with advice.
"""

from entropy_mcmc.diagnostics.agreement import (
    Agreement,
    agreements,
    exchangeable,
    pooled_rhat,
    rhat_limit,
)
from entropy_mcmc.diagnostics.chain_diagnosis import ChainDiagnosis, diagnose_chains
from entropy_mcmc.diagnostics.configurational import configurational_temperature
from entropy_mcmc.diagnostics.diagnosis import Diagnosis, RoleDiagnosis, diagnose
from entropy_mcmc.diagnostics.distances import (
    Contrast,
    moved_probability,
    prediction_distances,
    relative_movement,
    weight_distances,
)
from entropy_mcmc.diagnostics.effective_networks import EffectiveNetworks, effective_networks
from entropy_mcmc.diagnostics.ess_rhat import Mixing, mixing
from entropy_mcmc.diagnostics.gradient_noise import Estimate, gradient_variance
from entropy_mcmc.diagnostics.pair_temperature import (
    PairTemperature,
    pair_temperature,
    read_pair_temperature,
)
from entropy_mcmc.diagnostics.temperature_verdict import (
    Verdict,
    average,
    independent,
    judge,
    power,
    separate,
)
from entropy_mcmc.diagnostics.thermometer import Thermometer
from entropy_mcmc.diagnostics.thermometer_reading import Reading, mean_error
from entropy_mcmc.diagnostics.verdicts import Advice

__all__ = [
    "Advice",
    "Agreement",
    "ChainDiagnosis",
    "Contrast",
    "Diagnosis",
    "EffectiveNetworks",
    "Estimate",
    "Mixing",
    "PairTemperature",
    "Reading",
    "RoleDiagnosis",
    "Thermometer",
    "Verdict",
    "agreements",
    "average",
    "configurational_temperature",
    "diagnose",
    "diagnose_chains",
    "effective_networks",
    "exchangeable",
    "gradient_variance",
    "independent",
    "judge",
    "mean_error",
    "mixing",
    "moved_probability",
    "pair_temperature",
    "pooled_rhat",
    "power",
    "prediction_distances",
    "read_pair_temperature",
    "relative_movement",
    "rhat_limit",
    "separate",
    "weight_distances",
]
