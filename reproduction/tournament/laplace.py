"""Last-layer Laplace approximation with Kronecker factors, around the last network of SGD.

Logits of the last linear layer are W·φ. The Gauss-Newton Hessian of the mean loss over N rows is
close to A ⊗ B with A = mean φφᵀ (φ with a 1 for the bias) and B = mean of diag(p) − ppᵀ; the
posterior precision is N·A ⊗ B + I/variance. Logits are drawn in the common eigenbasis of A and B.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from tournament.data import Data
from tournament.settings import Settings

DRAWS, ROWS_AT_ONCE = 32, 1000


def last_layer(model: nn.Module) -> nn.Linear:
    """The last linear layer of the network."""
    return [module for module in model.modules() if isinstance(module, nn.Linear)][-1]


@torch.no_grad()
def features(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """What enters the last layer, with a 1 for its bias, and the outputs."""
    seen: list[Tensor] = []
    hook = last_layer(model).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    training = model.training
    model.eval()
    outputs = torch.cat([model(part) for part in x.split(ROWS_AT_ONCE)])
    model.train(training)
    hook.remove()
    phi = torch.cat(seen)
    return torch.cat([phi, phi.new_ones(len(phi), 1)], dim=1), outputs


def factors(phi: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """A and B of the Gauss-Newton Hessian of the cross entropy, mean over rows."""
    p = logits.softmax(dim=1)
    inputs = phi.T @ phi / len(phi)
    curvature = torch.diag(p.mean(dim=0)) - p.T @ p / len(p)
    return inputs, curvature


def spread(phi: Tensor, inputs: Tensor, curvature: Tensor, rows: int, variance: float) -> Tensor:
    """Root of the covariance of the logits of every row: (n, classes, classes)."""
    a, u = torch.linalg.eigh(inputs.double())
    b, v = torch.linalg.eigh(curvature.double())
    precision = rows * a.clamp(min=0)[:, None] * b.clamp(min=0)[None] + 1 / variance
    weights = (phi.double() @ u).square() @ (1 / precision)
    return v[None] * weights.sqrt()[:, None, :]


def outputs(model: nn.Module, split: Data, settings: Settings) -> dict[str, np.ndarray]:
    """Drawn logits of the asked rows, as the readout "laplace"; none for regression."""
    if split.train.y.is_floating_point() or settings.prior_variance is None:
        return {}
    phi, logits = features(model, split.train.x)
    asked, centre = features(model, split.asked())
    root = spread(asked, *factors(phi, logits), len(phi), settings.prior_variance)
    generator = torch.Generator().manual_seed(settings.seed)
    noise = torch.randn(DRAWS, *centre.shape, generator=generator, dtype=torch.float64)
    drawn = centre.double() + torch.einsum("nij,snj->sni", root, noise.to(root))
    return {"laplace": drawn.cpu().numpy().astype(np.float32)}
