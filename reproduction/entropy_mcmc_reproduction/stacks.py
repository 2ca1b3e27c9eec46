"""Many small regressions at once: the standard splits of a table as one stack of networks.

Parameters and data have a leading dimension of networks; the loss is the sum of theirs, so that
gradients, batches and noise of different networks never meet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entropy_mcmc import units
from entropy_mcmc.data import order
from entropy_mcmc.samplers import SGHMC, SGLD, EntropyMCMC, Sampler
from entropy_mcmc.schedules import Cyclical

CLIP = 1.0  # of each network's gradient: the curvature grows as the learned noise shrinks


@dataclass(frozen=True)
class Splits:
    """Standardised training rows (split, row, …), and rows to judge in the same units.

    `units` is the standard deviation of each split's training targets.
    """

    inputs: Tensor
    targets: Tensor
    judged_inputs: Tensor
    judged_targets: Tensor
    units: Tensor

    @classmethod
    def of(cls, values: NDArray[np.float64], test: NDArray[np.bool_]) -> Splits:
        """From a table whose last column is the target, and flags (split, row) of test rows."""
        parts = [(values[~flags], values[flags]) for flags in test]
        scales = [_scale(train) for train, _ in parts]
        made = [
            [torch.from_numpy((part - mean) / std).float() for part in pair]
            for pair, (mean, std) in zip(parts, scales, strict=True)
        ]
        train, judged = (torch.stack(list(side)) for side in zip(*made, strict=True))
        units = torch.tensor([float(std[-1]) for _, std in scales])
        return cls(train[..., :-1], train[..., -1], judged[..., :-1], judged[..., -1], units)

    def validation(self, part: float) -> Splits:
        """The last rows of each split's training part, in random order, become the judged ones."""
        rows = order(0, 0, self.inputs.shape[1])
        cut = len(rows) - round(part * len(rows))
        kept, held = rows[:cut], rows[cut:]
        return replace(
            self,
            inputs=self.inputs[:, kept],
            targets=self.targets[:, kept],
            judged_inputs=self.inputs[:, held],
            judged_targets=self.targets[:, held],
        )

    def only(self, chosen: list[int]) -> Splits:
        """Some of the splits."""
        return Splits(*(value[chosen] for value in vars(self).values()))

    def __len__(self) -> int:
        return len(self.inputs)


def _scale(train: NDArray[np.float64]) -> tuple[Any, Any]:
    std = train.std(0)
    return train.mean(0), np.where(std > 0, std, 1.0)


class Networks:
    """One hidden layer of ReLUs and a learned noise variance, for every split and member."""

    def __init__(self, splits: Splits, hidden: int, members: int, seed: int) -> None:
        self.splits, self.members = splits, members
        self.owner = torch.arange(len(splits)).repeat_interleave(members)
        self.draws = torch.Generator().manual_seed(seed)
        features, count = splits.inputs.shape[2], len(self.owner)
        self.shapes = [(features, hidden), (1, hidden), (hidden, 1), (1, 1), (1, 1)]
        spreads = [1 / math.sqrt(features), 0.1, 1 / math.sqrt(hidden), 0.0, 0.0]
        parts = [
            spread * torch.randn(count, math.prod(shape), generator=self.draws)
            for shape, spread in zip(self.shapes, spreads, strict=True)
        ]
        # One tensor for all layers: small steps cost by the tensor, not by the number.
        self.theta = nn.Parameter(torch.cat(parts, 1))

    def layers(self) -> list[Tensor]:
        """Weights, shift, weights, bias and log noise variance, as views of θ."""
        parts = torch.split(self.theta, [math.prod(s) for s in self.shapes], 1)
        return [p.view(-1, *s) for p, s in zip(parts, self.shapes, strict=True)]

    def mean(self, layers: list[Tensor], inputs: Tensor) -> Tensor:
        """Means (network, row) of inputs (network, row, feature), in standardised units."""
        first, shift, second, bias, _ = layers
        hidden = torch.baddbmm(shift, inputs, first).relu()
        return torch.baddbmm(bias, hidden, second).squeeze(2)

    def backward(self, batch_size: int) -> None:
        """Gradients of each network on a batch of its own, clipped."""
        size = (len(self.owner), batch_size)
        rows = torch.randint(self.splits.inputs.shape[1], size, generator=self.draws)
        at, layers = (self.owner[:, None], rows), self.layers()
        gaps = self.mean(layers, self.splits.inputs[at]) - self.splits.targets[at]
        log_noise = layers[-1].flatten()
        loss = 0.5 * (log_noise + gaps.square().mean(1) * (-log_noise).exp()).sum()
        (slope,) = torch.autograd.grad(loss, self.theta)
        norm = torch.linalg.vector_norm(slope, dim=1, keepdim=True)
        self.theta.grad = slope * (CLIP / norm.clamp_min(CLIP))

    @torch.no_grad()
    def predict(self) -> tuple[Tensor, Tensor]:
        """Means (member, split, row) and noise variances (member, split) on the judged rows."""
        layers = self.layers()
        means = self.mean(layers, self.splits.judged_inputs[self.owner]).double()
        noise = layers[-1].flatten().double().exp()
        shape = len(self.splits), self.members
        return means.view(*shape, -1).transpose(0, 1), noise.view(shape).T


Draws = list[tuple[Tensor, Tensor]]


def sample(
    method: str, numbers: dict[str, float], splits: Splits, settings: dict[str, Any], seed: int
) -> Draws:
    """Predictions of every kept network, after `steps` gradients for each split."""
    members = settings["members"] if method == "ensemble" else 1
    networks = Networks(splits, settings["hidden"], members, seed)
    steps, size = settings["steps"] // members, settings["batch_size"]
    if method in ("sgd", "ensemble"):
        return _phase(networks, _sgd(networks, numbers["lr"], seed), steps, size, 1, 1)
    warm = steps // 2
    _phase(networks, _sgd(networks, numbers["warm_lr"], seed), warm, size, 1, 1)
    wanted = settings["samples"] // settings["cycles"]
    sampler = _langevin(method, networks, numbers, seed)
    each = wanted // 2 if method == "emcmc" else wanted
    return _phase(networks, sampler, steps - warm, size, settings["cycles"], each)


def _phase(
    networks: Networks, sampler: Sampler, steps: int, size: int, cycles: int, each: int
) -> Draws:
    schedule = Cyclical(sampler, steps, cycles, 0.8, each)
    kept = []
    for _ in range(steps):
        networks.backward(size)
        sampler.step()
        if schedule.step():
            kept.append(networks.predict())
            if isinstance(sampler, EntropyMCMC):
                with sampler.guide():
                    kept.append(networks.predict())
    return kept


def _common(networks: Networks, seed: int) -> dict[str, Any]:
    count = networks.splits.inputs.shape[1]
    # The prior of every weight is N(0, 1).
    return {"num_data": count, "prior_variance": 1.0, "seed": seed, "fused": False}


def _sgd(networks: Networks, lr: float, seed: int) -> Sampler:
    return SGHMC([networks.theta], lr, temperature=0.0, **_common(networks, seed))


def _langevin(method: str, networks: Networks, numbers: dict[str, float], seed: int) -> Sampler:
    common = {**_common(networks, seed), "temperature": numbers["temperature"]}
    if method == "sgld":
        return SGLD([networks.theta], numbers["lr"], **common)
    eta = units.eta_of_horizon(numbers["horizon"], numbers["lr"], common["num_data"])
    return EntropyMCMC([networks.theta], numbers["lr"], eta=eta, **common)


def judge(draws: Draws, splits: Splits) -> dict[str, list[float]]:
    """Log-likelihood, RMSE and 95 % coverage of each split, in the units of the target."""
    means = torch.cat([m for m, _ in draws])
    noise = torch.cat([n for _, n in draws])[..., None]
    targets, units = splits.judged_targets.double(), splits.units.double()
    gaps = targets - means
    logs = -0.5 * (gaps.square() / noise + noise.log() + math.log(2 * math.pi))
    likelihood = (logs.logsumexp(0) - math.log(len(means))).mean(1) - units.log()
    rmse = (targets - means.mean(0)).square().mean(1).sqrt() * units
    level = torch.special.ndtr(gaps / noise.sqrt()).mean(0)
    covered = ((level >= 0.025) & (level <= 0.975)).double().mean(1)
    found = {"log_likelihood": likelihood, "rmse": rmse, "coverage": covered}
    return {name: [float(v) for v in values] for name, values in found.items()}
