r"""The local learning coefficient of a trained network (Lau, Furman, Wang, Murfet & Wei, 2023).

.. math:: \hat\lambda(w^*) = n\beta\,\bigl(\mathbb{E}[L(w)] - L(w^*)\bigr), \qquad
          w \sim \exp\{-n\beta L(w) - \tfrac\gamma2\|(w-w^*)/s\|^2\}, \quad \beta = 1/\log n

It counts the directions of the weights that the loss pins down, half for each: d/2 for a regular
model, less where weights can move together without changing the loss. λ itself does not change
when the network is written in other weights. This estimate of it does, through γ, unless the scale
s is changed along.

On a quadratic loss of curvatures h_i the chain of step α gives, with a_i = nβh_i,

.. math:: \tfrac12 \sum_i \frac{a_i}{a_i+\gamma}\cdot\frac{1}{1-\alpha(a_i+\gamma)/2}.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from entropy_mcmc.errors import ConfigError, check_choice, check_count, check_positive
from entropy_mcmc.flatness.curvatures import (
    CURVATURE_ROWS,
    by_differences,
    by_hessian,
    counted_directions,
    curvatures,
)
from entropy_mcmc.flatness.given_data import Data
from entropy_mcmc.flatness.input_checks import checked
from entropy_mcmc.flatness.learning_estimate import LearningCoefficient, summarise
from entropy_mcmc.flatness.localisation_effect import localisation_effect
from entropy_mcmc.flatness.localised import (
    MiniBatches,
    Plan,
    Target,
    partition,
    run_chains,
    start_losses,
)
from entropy_mcmc.flatness.model_and_batches import (
    Loss,
    check_measured,
    device_of,
    generator,
    parameters,
    restoring,
    vector,
)
from entropy_mcmc.flatness.stacked_chains import run_stack
from entropy_mcmc.noise import draw_seed

Scale = str | Mapping[str, Tensor | float]
AUTO_STEP = 0.1  # α times the largest curvature of the energy: 5 % too much along that direction


@dataclass(frozen=True)
class LocalSampling:
    """How the neighbourhood of a network is sampled; see `local_learning_coefficient`."""

    localisation: float = 100.0
    scale: Scale | None = None
    lr: float | str = "auto"
    temperature: float | None = None
    num_data: int | None = None
    chains: int = 4
    steps: int = 2000
    burn_in: int | None = None
    batch_size: int | None = 256
    seed: int | None = 0
    stacked: bool = False

    def __post_init__(self) -> None:
        if self.seed is None:  # kept, so that all networks of a table get the same
            object.__setattr__(self, "seed", draw_seed())
        check_positive("localisation", self.localisation)
        check_count("chains", self.chains)
        check_count("steps", self.steps, least=2)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size)
        if check_count("burn_in", self.warm_up, least=0) >= self.steps:
            raise ConfigError(
                f"burn_in must be less than steps={self.steps}, got burn_in={self.burn_in}"
            )

    @property
    def warm_up(self) -> int:
        """Steps before the first draw."""
        return self.steps // 2 if self.burn_in is None else self.burn_in


def local_learning_coefficient(
    model: nn.Module,
    loss: Loss,
    data: Data,
    *,
    localisation: float = 100.0,
    scale: Scale | None = None,
    lr: float | str = "auto",
    temperature: float | None = None,
    num_data: int | None = None,
    chains: int = 4,
    steps: int = 2000,
    burn_in: int | None = None,
    batch_size: int | None = 256,
    seed: int | None = 0,
    stacked: bool = False,
) -> LearningCoefficient:
    """Estimate the local learning coefficient at the model's parameters.

    Every chain starts at the trained weights and makes SGLD steps in evaluation mode; every step
    after the burn-in gives a draw. What speaks against the estimate is in its `warnings`, and is
    also given as a `UserWarning`: a chain diverged, the value is negative, the chains disagree,
    left the basin or are too hot, or the burn-in is too short. The model is left as it was.

    Args:
        model: A trained network.
        loss: Mean loss over a batch: a negative log likelihood, for λ to mean what theory says.
        data: Training data: (x, y) as tensors or NumPy arrays, a `TensorDataset` of both, or an
            iterable of batches such as a `DataLoader`, which are held in memory.
        localisation: γ, a convention. A direction of curvature nβh well above γ counts ½, one well
            below 0; with lr="auto" the result's `effect` says how the value moves with γ.
        scale: Units of the weights in the localisation and in the step. None: 1. "rms": the root
            mean square of each tensor; rescaling whole layers of a ReLU network then changes
            nothing, rescaling single neurons does. "weight": the size of each weight; rescaling
            neurons then changes nothing, either, and a weight of 0 stays 0. Or a value per
            parameter name (1 for the others).
        lr: Learning rate on the mean loss, in the scaled weights; "auto" sets the step α to a
            tenth of the inverse of the largest curvature, nβh + γ, at the trained weights.
        temperature: T = 1/β; log n by default.
        num_data: n; the number of rows by default.
        chains: Number of chains.
        steps: Steps of each chain.
        burn_in: Steps before the first draw; half of them by default.
        batch_size: Rows per step; None takes all. An iterable keeps its own batches.
        seed: Of the noise and the batches; None draws one from torch's default generator.
        stacked: Whether all chains are moved at once, as one stack of networks: the same numbers
            but for rounding, and faster for a small feed-forward network (linear layers,
            activations, batch norm, dropout); another one is refused.

    >>> model, x = nn.Linear(2, 1, bias=False), torch.eye(2).repeat(50, 1)
    >>> def loss(output, target):
    ...     return (output - target).square().mean() / 2
    >>> data = x, model(x).detach()
    >>> result = local_learning_coefficient(model, loss, data, localisation=2, steps=800, chains=2)
    >>> 0.6 < result.value < 1.2  # two regular parameters, less what the localisation holds
    True
    """
    sampling = LocalSampling(
        localisation=localisation,
        scale=scale,
        lr=lr,
        temperature=temperature,
        num_data=num_data,
        chains=chains,
        steps=steps,
        burn_in=burn_in,
        batch_size=batch_size,
        seed=seed,
        stacked=stacked,
    )
    result = estimate(model, loss, data, sampling)
    if result.warnings:
        text = "; ".join(result.warnings)
        warnings.warn(f"the learning coefficient is not trustworthy: {text}", stacklevel=2)
    return result


def estimate(
    model: nn.Module, loss: Loss, data: Data, sampling: LocalSampling
) -> LearningCoefficient:
    """`local_learning_coefficient` without the `UserWarning`, for tables of many networks."""
    run = run_stack if sampling.stacked else run_chains
    with restoring(model):
        source = checked(model, loss, data)
        parts = partition(source, sampling.batch_size, device_of(model), sampling.seed)
        starts = start_losses(model, loss, parts)
        check_measured("the loss", sum(starts), source)
        target = _target(model, loss, parts, sampling)
        plan = Plan(parts, starts, target, sampling.warm_up)
        traces = run(model, loss, plan, _seeds(sampling))
    mean = sum(s * rows for s, rows in zip(starts, parts.sizes, strict=True)) / parts.rows
    return summarise(traces, plan, mean, vector(model).numel())


def _seeds(sampling: LocalSampling) -> list[int]:
    drawn = torch.randint(2**62, (sampling.chains,), generator=generator(sampling.seed))
    return [int(seed) for seed in drawn]


def _target(model: nn.Module, loss: Loss, parts: MiniBatches, sampling: LocalSampling) -> Target:
    rows = parts.rows if sampling.num_data is None else sampling.num_data
    n = check_count("num_data", rows, least=2)
    heat = math.log(n) if sampling.temperature is None else sampling.temperature
    target = Target(
        num_data=n,
        temperature=check_positive("temperature", heat),
        localisation=sampling.localisation,
        scale=_scales(model, sampling.scale),
        steps=sampling.steps,
    )
    few, weight, gamma = parts.first(CURVATURE_ROWS), target.inverse, target.localisation
    if not isinstance(sampling.lr, str):  # then the loss need not have a second derivative
        check_positive("lr", sampling.lr)
        differences = by_differences(model, loss, few, target.scale, 1 / math.sqrt(gamma))
        found = curvatures(differences, vector(model), sampling.seed)
        return replace(target, lr=sampling.lr, directions=counted_directions(found, weight, gamma))
    check_choice("lr", sampling.lr, ("auto",))
    found = curvatures(by_hessian(model, loss, few, target.scale), vector(model), sampling.seed)
    largest = weight * max(0.0, float(found.values[-1])) + gamma
    return replace(
        target,
        lr=AUTO_STEP * weight / largest,
        effect=localisation_effect(weight * found.values, found.counts, gamma),
        directions=counted_directions(found, weight, gamma),
    )


def _scales(model: nn.Module, scale: Scale | None) -> list[Tensor]:
    """One positive tensor per parameter, of its shape or of none."""
    named = parameters(model)
    if scale is None:
        return [torch.ones(()) for _ in named]
    if isinstance(scale, str):
        check_choice("scale", scale, ("rms", "weight"))
        if scale == "weight":
            return _sizes(named.values())
        return [_root_mean_square(p, vector(model)) for p in named.values()]
    unknown = sorted(set(scale) - set(named))
    if unknown:
        raise ConfigError(
            f"scale must name trainable parameters, got {unknown[:3]}; there are {list(named)[:5]}"
        )
    values = [torch.as_tensor(scale.get(name, 1.0)).detach() for name in named]
    for (name, p), s in zip(named.items(), values, strict=True):
        if s.shape not in (p.shape, torch.Size()) or not bool((s.isfinite() & (s > 0)).all()):
            raise ConfigError(
                f"scale of {name!r} must be positive and finite, a number or of shape "
                f"{tuple(p.shape)}, got shape {tuple(s.shape)} and least value {float(s.min())}"
            )
    return values


def _sizes(weights: Iterable[Tensor]) -> list[Tensor]:
    """|w| of each weight: whatever multiplies a weight multiplies its scale, too."""
    sizes = [p.detach().abs() for p in weights]
    if not any(bool(size.any()) for size in sizes):
        raise ConfigError(
            "scale='weight' holds weights of 0 where they are, and all weights are 0; use "
            "scale=None or 'rms'"
        )
    return sizes


def _root_mean_square(p: Tensor, whole: Tensor) -> Tensor:
    """RMS of a tensor, or, where it is all zero, of the whole network."""
    for values in (p.detach(), whole, torch.ones(())):
        size = values.square().mean().sqrt()
        if float(size) > 0:
            break
    return size
