"""Is the basin flat? Measures from (model, loss, data).

`data` is (x, y), tensors or NumPy arrays, a `TensorDataset` of both, or an iterable of batches
that can be run through more than once, such as a `DataLoader`; `loss(output, target)` is a mean
over the batch. Batch norm is in evaluation mode, everything random takes a seed, and the model is
left as it was.
"""

from entropy_mcmc.flatness.compare import Comparison, Row, Settings, compare
from entropy_mcmc.flatness.entropy import LocalEntropy, local_entropy
from entropy_mcmc.flatness.figures import (
    BEYOND,
    between_figure,
    density_figure,
    fisher_figure,
    fisher_histogram,
    interpolation_figure,
    save_figures,
    surface_figure,
)
from entropy_mcmc.flatness.fisher import FisherDiagonal, fisher_diagonal
from entropy_mcmc.flatness.hessian import (
    SpectralDensity,
    TraceEstimate,
    hessian_products,
    hessian_trace,
    lanczos,
    spectral_density,
    top_eigenvalues,
)
from entropy_mcmc.flatness.interpolation import (
    Interpolation,
    interpolate_between,
    interpolate_random,
    random_direction,
)
from entropy_mcmc.flatness.known_coefficients import (
    Coefficient,
    linear_network_coefficient,
    normal_crossing_coefficient,
)
from entropy_mcmc.flatness.learning_coefficient import LocalSampling, local_learning_coefficient
from entropy_mcmc.flatness.learning_estimate import LearningCoefficient
from entropy_mcmc.flatness.localisation_effect import LocalisationEffect
from entropy_mcmc.flatness.model_and_batches import classification_error, subset
from entropy_mcmc.flatness.sharpness import Sharpness, sam_sharpness
from entropy_mcmc.flatness.surface import Surface, loss_surface

__all__ = [
    "BEYOND",
    "Coefficient",
    "Comparison",
    "FisherDiagonal",
    "Interpolation",
    "LearningCoefficient",
    "LocalEntropy",
    "LocalSampling",
    "LocalisationEffect",
    "Row",
    "Settings",
    "Sharpness",
    "SpectralDensity",
    "Surface",
    "TraceEstimate",
    "between_figure",
    "classification_error",
    "compare",
    "density_figure",
    "fisher_diagonal",
    "fisher_figure",
    "fisher_histogram",
    "hessian_products",
    "hessian_trace",
    "interpolate_between",
    "interpolate_random",
    "interpolation_figure",
    "lanczos",
    "linear_network_coefficient",
    "local_entropy",
    "local_learning_coefficient",
    "loss_surface",
    "normal_crossing_coefficient",
    "random_direction",
    "sam_sharpness",
    "save_figures",
    "spectral_density",
    "subset",
    "surface_figure",
    "top_eigenvalues",
]
