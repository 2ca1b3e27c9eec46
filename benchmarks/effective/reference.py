"""What is known of a target before samplers run: variances, curvatures, draws to start from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from effective import measure, others
from effective.linear import Quadratic
from effective.measure import Place
from effective.targets import Target

STARTS = 16  # draws that are kept on the disk, beside the results
SLOWEST, STIFFEST = 0.2, 2.0  # two modes: the crossing is slower than any curvature says


def reference(target: Target, file: Path, seed: int = 77) -> dict[str, Any]:
    """Variances, known or of a long NUTS run, and the extreme curvatures of the energy.

    Draws from which chains start are kept in `file`, where there are no exact ones.
    """
    error, variances = 0.0, target.variances
    if target.exact is None:
        draws, variances, error = nuts_reference(target, seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, draws.astype(np.float32))
    assert variances is not None
    hessian = hessian_at(target, starts_of(target, file)[-1])
    spectrum = torch.linalg.eigvalsh(hessian)
    stiffest = float(spectrum[-1])
    softest = float(spectrum[spectrum > 1e-3 * stiffest / target.dim].min())
    if target.name == "two modes":
        stiffest, softest = STIFFEST, SLOWEST
    return {
        "title": target.name,
        "variances": [float(v) for v in variances],
        "order": order_of(target, hessian),
        "variance_error": error,
        "stiffest": stiffest,
        "condition": max(stiffest / softest, 1.0),
    }


def starts_of(target: Target, file: Path) -> Any:
    """One draw of the target for each chain."""
    if target.exact is not None:
        return target.exact(target.chains).numpy()
    return np.load(file)[-target.chains :]


def hessian_at(target: Target, draw: Any) -> torch.Tensor:
    """Of the energy."""
    curvature = torch.func.jacrev(torch.func.grad(lambda t: -target.log_density(t)))
    return curvature(torch.as_tensor(draw)).double()


def order_of(target: Target, hessian: torch.Tensor) -> list[int] | None:
    """Numbers by the variance that the curvature at a draw gives; None for known variances."""
    if target.variances is not None:
        return None
    if len(target.observe(np.zeros((1, target.dim), dtype=np.float32))[0]) != target.dim:
        return list(range(20))  # predictions
    widths = torch.linalg.pinv(hessian).diagonal()
    return [int(i) for i in widths.argsort()]


def nuts_reference(target: Target, seed: int) -> tuple[Any, Any, float]:
    """Draws to start from, variances of what is observed, and the mean relative error of one."""
    full = replace(target, batch=None, observe=lambda t: t)
    jitter = 0.01 * torch.randn(4, target.dim, generator=torch.Generator().manual_seed(seed))
    place = Place(1.0, 1.0, target.reference, (target.first() + jitter).numpy(), seed)
    draws = others.run(full, "blackjax NUTS", 1.0, place).draws
    shown = target.observe(draws).astype(np.float64)
    flat = shown.reshape(-1, shown.shape[-1])
    ess = measure.all_ess((shown - flat.mean(0)) ** 2)
    each = STARTS // draws.shape[0]
    spaced = np.linspace(0, draws.shape[1] - 1, each).astype(int)
    thinned = draws[:, spaced].reshape(-1, target.dim)
    return thinned, flat.var(0), float(np.sqrt(2 / ess).mean())


def quadratic_of(target: Target, known: dict[str, Any], draw: Any) -> Quadratic:
    """The quadratic energy near a draw, from which first step sizes are taken.

    Exact for the Gaussians. For predictions of a network the coordinates are eigenvectors, and
    directions that the condition leaves out are left out. Mini-batches have the variance
    N²/B·Var of a row's gradient along each eigenvector, at the draw.
    """
    if target.variances is not None and target.name != "two modes":
        return Quadratic(1 / np.asarray(known["variances"]))
    soft = known["stiffest"] / known["condition"]
    if target.name == "two modes":
        return Quadratic(np.array([soft, known["stiffest"]]))
    curvatures, directions = torch.linalg.eigh(hessian_at(target, draw))
    if len(known["variances"]) != target.dim:
        return Quadratic(curvatures[curvatures >= 0.999 * soft].numpy())
    return Quadratic(
        curvatures.clamp(min=soft).numpy(),
        directions.numpy(),
        batch_variance(target, draw, directions),
        np.asarray(known["order"]),
    )


def batch_variance(target: Target, draw: Any, directions: torch.Tensor) -> Any:
    """Variance of a mini-batch's gradient of the energy along each direction."""
    if target.batch is None or target.loglik is None:
        return 0.0
    one = torch.func.grad(lambda t, *row: target.loglik(t, *(part[None] for part in row)))
    each = torch.func.vmap(one, in_dims=(None, *(0 for _ in target.data)))
    slopes = each(torch.as_tensor(draw), *target.data).double() @ directions
    return (target.num_data**2 / target.batch * slopes.var(0, correction=0)).numpy()
