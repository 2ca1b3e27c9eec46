"""A loss where the model belongs is refused by every measure."""

import pytest
import torch
from torch import nn

from entropy_mcmc import flatness
from entropy_mcmc.errors import ConfigError

MEASURES = {
    "learning coefficient": flatness.local_learning_coefficient,
    "products": lambda *given: flatness.hessian_products(*given, torch.ones(1, 3)),
    "eigenvalues": flatness.top_eigenvalues,
    "trace": flatness.hessian_trace,
    "density": flatness.spectral_density,
    "fisher": flatness.fisher_diagonal,
    "sharpness": flatness.sam_sharpness,
    "lines": lambda *given: flatness.interpolate_random(*given, (0.0, 1.0)),
    "line between": lambda *given: flatness.interpolate_between(*given, {}, {}),
    "surface": lambda *given: flatness.loss_surface(*given, [{}, {}, {}]),
    "entropy": lambda *given: flatness.local_entropy(*given, num_data=9, eta=1e-4),
    "compare": lambda *given: flatness.compare(*given, {"mine": {}}),
}


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_the_loss_before_the_model(measure):
    model, data = nn.Linear(2, 1), (torch.zeros(9, 2), torch.zeros(9, 1))
    with pytest.raises(ConfigError, match=r"got function; the order is \(model, loss, data\)"):
        measure(nn.functional.mse_loss, model, data)
    with pytest.raises(ConfigError, match="requires_grad=True, got none in MSELoss"):
        measure(nn.MSELoss(), model, data)
