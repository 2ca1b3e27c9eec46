r"""Hamiltonian Monte Carlo on the smallest UCI tables: a reference for the samplers.

Full batches and Metropolis tests, so that the weights have exactly the posterior

.. math:: p(w \mid s) \propto \exp\{-\tfrac1{2s}\sum(y-f_w(x))^2 - \|w\|^2/(2v)\},

given the noise variance s, which is drawn in turn from its own:
:math:`s \mid w \sim \mathrm{InvGamma}(N/2, \sum(y-f)^2/2)`, flat in log s before the data. v is the
one that EMCMC's search chose for the split. Predictions get their noise as those of all methods do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.diagnostics import mixing
from entropy_mcmc.sklearn.networks import Architecture, backward, forward
from entropy_mcmc_reproduction import regression
from entropy_mcmc_reproduction.jobs import Place, result_of
from entropy_mcmc_reproduction.regression_data import Splits, read
from entropy_mcmc_reproduction.regression_scores import judge

ACCEPTED = 0.8  # part of the proposals, at which the step size aims during burn-in
FIRST_STEP = 1e-3
JITTER = 0.2  # step sizes vary by as much, so that no direction swings back to its start

# Weights (networks, numbers) → energy (networks,) and its gradient.
Energy = Callable[[Tensor], tuple[Tensor, Tensor]]


def compute(settings: dict[str, Any], place: Place) -> dict[str, Any]:
    """Noise from rows held out of each split's training part, then scores of its test rows."""
    known = result_of(place, settings["prior_of"])
    variances = torch.tensor(
        [known["trials"][pick]["prior_variance"] for pick in known["chosen"]], dtype=torch.float64
    )
    splits = Splits.of(*read(settings["table"], place.data, settings["splits"]))
    held = splits.validation(settings["validation_part"])
    first = sample(held, variances, settings, seed=1)
    shape, noise = regression.noise_of(settings["noise"], first.means, held)
    last = sample(splits, variances, settings, seed=0)
    return {
        **judge(last.means, splits, noise, shape),
        "rows": splits.rows,
        "test_rows": splits.judged_inputs.shape[1],
        "gradients": settings["iterations"] * settings["leapfrogs"] * settings["chains"],
        "accepted": last.accepted,
        "r_hat": last.r_hat,
        "noise": noise.typical().tolist(),
    }


@dataclass(frozen=True)
class Sampled:
    """Outputs (networks, splits, rows), the part of accepted proposals, and R-hat of the outputs.

    R-hat is the median over splits of the largest over rows.
    """

    means: Tensor
    accepted: float
    r_hat: float


def sample(splits: Splits, variances: Tensor, settings: Mapping[str, Any], seed: int) -> Sampled:
    """Chains of all splits as one stack."""
    chains = settings["chains"]
    owner = torch.arange(len(splits)).repeat_interleave(chains)
    generator = torch.Generator().manual_seed(seed)
    form = Architecture((splits.inputs.shape[2], settings["hidden"], 1), "relu")
    stack = Posterior(form, splits, owner, variances[owner])
    flat = form.draw(torch.ones(len(owner)), generator).double()
    step = torch.full((len(owner),), FIRST_STEP, dtype=torch.float64)
    kept, accepted = [], []
    for iteration in range(settings["iterations"]):
        stack.draw_noise(flat, generator)
        flat, chance = hmc_step(stack.energy, flat, step, settings["leapfrogs"], generator)
        if iteration < settings["burn_in"]:
            step = step * torch.exp((chance - ACCEPTED) / (iteration + 5) ** 0.6)
            continue
        accepted.append(chance.mean())
        if (iteration - settings["burn_in"]) % settings["thin"] == 0:
            kept.append(stack.outputs(flat, splits.judged_inputs[owner].double()))
    # (draws, splits, chains, rows)
    outputs = torch.stack(kept).view(len(kept), len(splits), chains, -1)
    each = [largest_r_hat(outputs[:, i].transpose(0, 1)) for i in range(len(splits))]
    means = outputs.transpose(1, 2).flatten(0, 1).float()
    return Sampled(means, float(torch.stack(accepted).mean()), float(torch.tensor(each).median()))


def largest_r_hat(outputs: Tensor) -> float:
    """Of outputs (chains, draws, rows), the largest over rows; NaN for too few draws."""
    rhat = mixing(list(outputs.numpy())).rhat
    return math.nan if rhat is None else rhat[0]


def hmc_step(
    energy: Energy, start: Tensor, step: Tensor, leapfrogs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """One proposal of every chain and its Metropolis test; returns weights and acceptance."""
    jitter = 1 + JITTER * (2 * _uniform(len(start), generator) - 1)
    size = (step * jitter)[:, None]
    momentum = torch.randn(start.shape, generator=generator, dtype=start.dtype)
    before, slope = energy(start)
    before = before + momentum.square().sum(1) / 2
    theta = start.clone()
    for _ in range(leapfrogs):
        momentum = momentum - size / 2 * slope
        theta = theta + size * momentum
        after, slope = energy(theta)
        momentum = momentum - size / 2 * slope
    after = after + momentum.square().sum(1) / 2
    chance = torch.exp(before - after).clamp(max=1).nan_to_num(nan=0.0)
    taken = _uniform(len(start), generator) < chance
    return torch.where(taken[:, None], theta, start), chance


def _uniform(count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(count, generator=generator, dtype=torch.float64)


class Posterior:
    """Energy of the weights of every network given its noise variance, and that variance."""

    def __init__(
        self, form: Architecture, splits: Splits, owner: Tensor, variances: Tensor
    ) -> None:
        self.form, self.variances = form, variances
        self.x, self.y = splits.inputs[owner].double(), splits.targets[owner].double()[:, None]
        self.noise = torch.full((len(owner),), 1.0, dtype=torch.float64)

    def draw_noise(self, flat: Tensor, generator: torch.Generator) -> None:
        """Draw s given the weights: half the squared errors over a gamma variable."""
        squares = (self.outputs(flat, self.x) - self.y[:, 0]).square().sum(1)
        shape = torch.full_like(squares, self.y.shape[2] / 2)
        self.noise = squares / 2 / torch._standard_gamma(shape, generator=generator)

    def outputs(self, flat: Tensor, x: Tensor) -> Tensor:
        """Outputs (networks, rows)."""
        return forward(self.form, self.form.layers(flat), x)[0][:, 0]

    def energy(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Energy of every network and its gradient."""
        layers, slope = self.form.layers(flat), torch.empty_like(flat)
        outputs, trace = forward(self.form, layers, self.x)
        errors = outputs - self.y
        scaled = errors / self.noise[:, None, None]
        squares = (errors * scaled).sum(dim=(1, 2))
        backward(self.form, layers, self.x, trace, scaled, self.form.layers(slope))
        slope += flat / self.variances[:, None]
        return squares / 2 + flat.square().sum(1) / (2 * self.variances), slope
