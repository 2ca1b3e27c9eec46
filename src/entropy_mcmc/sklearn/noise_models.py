r"""Noise of the regressor: constant or dependent on the row, Gaussian or Student's t.

Held-out errors of the pilot run decide. A small network learns the logarithm g of the squared
held-out error of a row relative to the mean; the noise variance of a row is then
:math:`s\,e^{g(x)}`, with the level s that the chains learn while rows weigh :math:`e^{-g(x)}`.
Each half of the errors is judged by the network of the other half. A model with more freedom must
beat the simplest by `CAUTION` standard errors of the paired difference of log-densities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from entropy_mcmc.sklearn.chain_plan import Network, Plan
from entropy_mcmc.sklearn.estimator_chains import Draws, Table, run
from entropy_mcmc.sklearn.likelihood import weighted
from entropy_mcmc.sklearn.networks import Architecture, forward

LEAST_ROWS = 60  # held-out errors below which the noise is taken as constant and Gaussian
DEGREES = (math.inf, 10.0, 4.0)  # of freedom of Student's t; infinite is the Gaussian
LEVELS = torch.logspace(-1.2, 0.8, 41)  # factors of the pilot's noise variance
NETWORK: Network = ((20,), "tanh")
PRIOR = 0.3
TEMPERATURE = 0.1
STEPS = 300
CHAINS = 2  # for each half of the errors
LARGEST = 20.0  # of a squared error over its variance, in the slope: outliers pull no harder
CAUTION = 1.0
MOST_WEIGHT = 5.0  # of a row, relative to the mean


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """Degrees of freedom, level relative to the learned noise variance, and the shape of g.

    `expected` is what the chains will learn, relative to the noise variance of the pilot.
    """

    degrees: float = math.inf
    level: float = 1.0
    expected: float = 1.0
    form: Architecture | None = None
    flat: Tensor | None = None

    @property
    def name(self) -> str:
        """What it is, in words."""
        family = "Gaussian" if math.isinf(self.degrees) else f"Student's t({self.degrees:g})"
        return f"{family}, {'constant' if self.form is None else 'depends on x'}"

    def factors(self, x: Tensor) -> Tensor:
        """Squared scale of the noise of each row, relative to the learned variance: (rows,)."""
        if self.form is None or self.flat is None:
            return torch.full((len(x),), self.level, dtype=x.dtype)
        return self.level * shape(self.form, self.flat.to(x.dtype), x)


def reweighted(table: Table, model: NoiseModel) -> tuple[Table, NoiseModel]:
    """The table whose rows weigh as the noise allows, and the model with the level that fits.

    A row of noise variance a·f has the weight 1/f, bounded: it multiplies the curvature. The chains
    then learn the mean of weight·a·f, from which the level follows.
    """
    if model.form is None:
        return table, model
    factors = replace(model, level=1.0).factors(table.x)
    weights = 1 / factors
    weights = weights.clamp(max=MOST_WEIGHT * float(weights.mean()))
    weights = weights / weights.mean()
    mean = float((weights * factors).mean())
    scaled = replace(model, level=model.level / mean, expected=model.expected * mean)
    own = weights if table.weights is None else table.weights * weights
    count = table.num_data or float(len(table))
    return Table(table.x, table.y, own, count), scaled


class LogVariance:
    """Gaussian NLL of errors whose log-variance is the output; targets are squared errors."""

    def __init__(self) -> None:
        self.heats = torch.ones(())

    def slopes(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Half of 1 − r²·exp(−g), over the number of rows."""
        ratio = (targets.mT * (-outputs).exp()).clamp(max=LARGEST)
        return weighted(0.5 * (1 - ratio), weights)


def fit_noise(
    plan: Plan, table: Table, rows: Tensor, errors: Tensor, noise: float, kinds: tuple[str, ...]
) -> tuple[NoiseModel, dict[str, float]]:
    """The noise model that held-out errors (networks, rows) ask for, and the scores of all.

    `kinds` are those that may be chosen: "constant" or "dependent", then "gaussian" or "student".
    """
    degrees = [d for d in DEGREES if ("gaussian" if math.isinf(d) else "student") in kinds]
    if len(rows) < LEAST_ROWS:
        return NoiseModel(degrees[0]), {}
    models: dict[NoiseModel, Tensor] = {}
    if "constant" in kinds:
        models |= families(NoiseModel(), errors, noise * torch.ones(len(rows)), degrees)
    if "dependent" in kinds:
        own = Table(table.x[rows], (errors.mean(dim=0).square() / noise)[:, None])
        cross, whole = shapes(plan, own)
        form = plan.using(NETWORK).architecture
        models |= families(NoiseModel(form=form, flat=whole), errors, noise * cross, degrees)
    return pick(models), {m.name: -float(logs.mean()) for m, logs in models.items()}


def families(
    model: NoiseModel, errors: Tensor, variances: Tensor, degrees: Sequence[float]
) -> dict[NoiseModel, Tensor]:
    """The model with other degrees of freedom, each with its log-densities of the rows.

    The level of Student's t is relative to that of the Gaussian, which the chains learn.
    """
    gaussian = best_level(errors, variances, math.inf)[0]
    judged = {}
    for d in degrees:
        level, logs = best_level(errors, variances, d)
        judged[replace(model, degrees=d, level=level / gaussian, expected=gaussian)] = logs
    return judged


def pick(models: dict[NoiseModel, Tensor]) -> NoiseModel:
    """The best, unless the first, which is the simplest, is within `CAUTION` standard errors."""
    first = next(iter(models))
    best = max(models, key=lambda m: float(models[m].mean()))
    gain = models[best] - models[first]
    error = float(gain.std()) / math.sqrt(len(gain))
    return best if float(gain.mean()) > CAUTION * error else first


def shapes(plan: Plan, errors: Table) -> tuple[Tensor, Tensor]:
    """Variance factors of all rows, each from the other half, and networks of all rows."""
    count = len(errors)
    halves = torch.randperm(count, generator=torch.Generator().manual_seed(plan.seed))
    first, second = halves[: count // 2], halves[count // 2 : 2 * (count // 2)]
    small = replace(
        plan.using(NETWORK),
        chains=2 * CHAINS,
        steps=STEPS,
        samples=4,
        lr=0.5,
        momentum=0.95,
        temperature=TEMPERATURE,
        prior_variance=PRIOR,
        burn_in=0.5,
        roles="theta",
    )
    rows = torch.stack([first, second]).repeat_interleave(CHAINS, 0)
    crossed = run(small, errors, LogVariance(), rows=rows)
    factors = torch.ones(count)
    for half, chains in ((second, slice(0, CHAINS)), (first, slice(CHAINS, None))):
        own = crossed.flat[:, chains].flatten(0, 1)
        factors[half] = shape(small.architecture, own, errors.x[half])
    whole: Draws = run(replace(small, chains=CHAINS), errors, LogVariance())
    return factors, whole.flat.flatten(0, 1)


def shape(form: Architecture, flat: Tensor, x: Tensor) -> Tensor:
    """exp(g), averaged in the logarithm over networks; bounded, for rows far from all others."""
    g = forward(form, form.layers(flat), x[None])[0].squeeze(1).mean(dim=0)
    return g.clamp(-6, 6).exp()


def best_level(errors: Tensor, variances: Tensor, degrees: float) -> tuple[float, Tensor]:
    """The factor of all variances at which the errors are most probable, and their logs there."""
    logs = [mixture_log_density(errors, variances * level, degrees) for level in LEVELS]
    best = int(torch.stack([each.mean() for each in logs]).argmax())
    return float(LEVELS[best]), logs[best]


def mixture_log_density(errors: Tensor, squared_scales: Tensor, degrees: float) -> Tensor:
    """Log-density of each row under equal mixtures of its errors (networks, rows): (rows,)."""
    logs = log_density(errors.square() / squared_scales, degrees) - 0.5 * squared_scales.log()
    return logs.logsumexp(dim=0) - math.log(len(errors))


def log_density(squares: Tensor, degrees: float) -> Tensor:
    """Log-density of a standard normal, or Student's t, at points of these squares."""
    if math.isinf(degrees):
        return -0.5 * (squares + math.log(2 * math.pi))
    half = (degrees + 1) / 2
    norm = math.lgamma(half) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
    return norm - half * (squares / degrees).log1p()
