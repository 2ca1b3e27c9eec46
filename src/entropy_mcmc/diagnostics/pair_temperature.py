r"""The temperature of θ itself, from gradients at pairs of samples.

For two independent draws of exp(−U/T), integration by parts gives

.. math:: \mathbb{E}\,(\theta-\theta')\cdot(\nabla U(\theta)-\nabla U(\theta'))/(2d) = T,

the configurational temperature with one draw as the centre of the other. On curvature h it reads
h·Var θ, so that it sees what the coupling thermometer cannot: a too large lr (T/(1−αh/2)) and
the whole heat of mini-batches. Draws with correlation ρ read T(1−ρ): a reading above T always means
heat, one below it may also mean that the draws are close in time.

The gradients are taken after the run, on mini-batches that do not depend on the samples: their
noise then has mean 0 in the product and shows in the error, and no full pass is needed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc.diagnostics.gradient_noise import Estimate
from entropy_mcmc.errors import ConfigError, StateError, check_count

RATE = 0.01  # false alarms of each verdict
TOLERATED = 1.05  # T times this is still right: lr is finite in every run
COPIES = 0.1  # share of T below which draws of a cycle are near copies
VAGUE = 0.5  # share of T above which the margin is too wide to call a reading right


@dataclass(frozen=True)
class PairTemperature:
    """A reading of θ's own temperature.

    Attributes:
        reading: The temperature, with its standard error (jackknife over draws).
        freedom: Degrees of freedom of that error.
        draws: Samples that were used.
        batches: Mini-batch gradients that were taken at each of them.
        within: Whether pairs are of the same cycle; else all pairs are used.
    """

    reading: Estimate
    freedom: int
    draws: int
    batches: int
    within: bool

    @property
    def cost(self) -> str:
        """What was computed for it."""
        return f"{self.draws} samples × {self.batches} mini-batch gradients"

    @property
    def margin(self) -> float:
        """Half width of the interval that misses with probability `RATE` on either side."""
        from scipy.special import stdtrit  # here, because it takes long to import

        return float(stdtrit(self.freedom, 1 - RATE)) * self.reading.error

    def verdict(self, temperature: float) -> str:
        """One of "hot", "near copies", "close" (decided below T), "vague" and "right"."""
        low, high = self.reading.value - self.margin, self.reading.value + self.margin
        if low > TOLERATED * temperature:
            return "hot"
        if high < COPIES * temperature:
            return "near copies"
        if high < temperature / TOLERATED:
            return "close"
        return "right" if self.margin <= VAGUE * temperature else "vague"  # NaN is not right

    def lr_divisor(self, temperature: float) -> float:
        """What to divide lr by for a heat of at most 5 %: lr·h/(2N) = 1 − T/reading is linear."""
        return (1 - temperature / self.reading.value) / (1 - 1 / TOLERATED)


def pair_temperature(
    theta: Tensor, gradients: Tensor, cycles: Sequence[Any], *, batches: int = 1
) -> PairTemperature:
    """The reading from weights and gradients of the full energy.

    Args:
        theta: Weights (draws, d).
        gradients: ∇U at each of them, or unbiased estimates that are independent of θ.
        cycles: The cycle of each draw. Pairs within cycles are used; all pairs where no cycle has
            two draws.
        batches: Mini-batches in each estimate, for the record.

    >>> g = torch.Generator().manual_seed(0)
    >>> draws = torch.randn(8, 5000, generator=g)
    >>> estimate = pair_temperature(draws, draws, [0] * 8)
    >>> estimate.verdict(1.0), abs(estimate.reading.value - 1) < estimate.margin
    ('right', True)
    """
    if len(theta) != len(cycles) or theta.shape != gradients.shape:
        raise ConfigError(
            f"theta, gradients and cycles must have one row for each draw, got shapes "
            f"{tuple(theta.shape)} and {tuple(gradients.shape)} and {len(cycles)} cycles"
        )
    within = len(set(cycles)) < len(cycles)
    labels = list(cycles) if within else [0] * len(cycles)
    groups = [[i for i, c in enumerate(labels) if c == kind] for kind in dict.fromkeys(labels)]
    groups = [group for group in groups if len(group) > 1]
    used = sum(map(len, groups))
    if used < 3:
        raise StateError(f"at least 3 draws in cycles of two or more are needed, got {used}")
    product = theta.double() @ gradients.double().T / theta.shape[1]
    own = product.diagonal()
    pairs = (own[:, None] + own - product - product.T) / 2
    value = _mean_over_pairs(pairs, groups)
    left_out = [
        _mean_over_pairs(pairs, [[i for i in group if i != gone] for group in groups])
        for gone in (i for group in groups for i in group)
    ]
    spread = sum((each - sum(left_out) / used) ** 2 for each in left_out)
    error = math.sqrt((used - 1) / used * spread)
    return PairTemperature(Estimate(value, error), used - len(groups), used, batches, within)


def _mean_over_pairs(pairs: Tensor, groups: Sequence[Sequence[int]]) -> float:
    total, count = 0.0, 0
    for group in groups:
        total += float(pairs[group][:, list(group)].sum())  # the diagonal is 0
        count += len(group) * (len(group) - 1)
    return total / count


def read_pair_temperature(
    posterior: Any,
    loss: Callable[[Any, Any], Tensor],
    batches: Iterable[tuple[Any, Any]],
    *,
    num_data: float,
    weight_decay: float | Sequence[float] = 0.0,
    per_sample: int = 8,
    most: int = 16,
    chain_of: Callable[[Any], Any] | None = None,
) -> PairTemperature:
    """θ's own temperature from a stored posterior; costs `most`·`per_sample` gradients.

    Args:
        posterior: A `Posterior` with samples of θ.
        loss: Mean loss (output, target) → scalar, as in training.
        batches: Mini-batches of training data, drawn independently of the samples.
        num_data: N.
        weight_decay: λ of the prior, one number or one for each trainable parameter.
        per_sample: Mini-batches at each sample.
        most: Samples at most; they are spread over the cycles.
        chain_of: Entry of `posterior.samples` → its chain, for a store of several chains.
    """
    check_count("per_sample", per_sample)
    picked = choose_samples(posterior.samples, most, chain_of)
    model = copy.deepcopy(posterior.model).train()
    params = [p for p in model.parameters() if p.requires_grad]
    decay = _decay(weight_decay, params)
    stream = iter(batches)
    rows, slopes = [], []
    for index, _ in picked:
        posterior.load(index, model)
        rows.append(_flat(params))
        noisy = [_gradient(model, params, loss, stream) for _ in range(per_sample)]
        slopes.append(num_data * (sum(noisy) / per_sample + decay * rows[-1]))
    cycles = [cycle for _, cycle in picked]
    return pair_temperature(torch.stack(rows), torch.stack(slopes), cycles, batches=per_sample)


def choose_samples(
    samples: Sequence[Any], most: int, chain_of: Callable[[Any], Any] | None = None
) -> list[tuple[int, Any]]:
    """(index, cycle) of at most `most` samples of θ: as many cycles as leave two draws in each."""
    cycles: dict[Any, list[int]] = {}
    for index, sample in enumerate(samples):
        if sample.role == "theta":
            chain = chain_of(sample) if chain_of else 0
            cycles.setdefault((chain, sample.cycle), []).append(index)
    alone = all(len(own) == 1 for own in cycles.values())
    keys = list(_spaced(list(cycles), most if alone else most // 2))
    each = max(2, most // max(len(keys), 1))
    return [(index, key) for key in keys for index in _spaced(cycles[key], each)]


def _spaced(items: list[Any], most: int) -> Iterator[Any]:
    count = min(most, len(items))
    for place in range(count):
        yield items[place * (len(items) - 1) // max(count - 1, 1)]


def _decay(weight_decay: float | Sequence[float], params: list[Any]) -> Tensor:
    """λ of every coordinate."""
    each = weight_decay if isinstance(weight_decay, Sequence) else [weight_decay] * len(params)
    pairs = zip(each, params, strict=True)
    return _flat([torch.full(p.shape, float(decay), dtype=torch.float64) for decay, p in pairs])


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([t.detach().double().flatten().cpu() for t in tensors])


def _gradient(model: nn.Module, params: list[Any], loss: Any, stream: Iterator[Any]) -> Tensor:
    batch = next(stream, None)
    if batch is None:
        raise ConfigError("batches must hold per_sample mini-batches for every sample")
    inputs, targets = batch
    return _flat(torch.autograd.grad(loss(model(inputs), targets), params))
