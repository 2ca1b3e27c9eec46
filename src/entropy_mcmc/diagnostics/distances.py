"""Distance of samples within and between cycles, in weights and in predictions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.errors import ConfigError

SAME = 0.01  # of the probability, on average over rows


@dataclass(frozen=True)
class Contrast:
    """Root mean square distance, or mean disagreement, of pairs of samples.

    `within` and `between` are None where there is no such pair.
    """

    within: float | None
    between: float | None

    def __str__(self) -> str:
        return f"{_shown(self.within)} within a cycle, {_shown(self.between)} between cycles"


class _Pairs:
    """Sum of squared distances over all pairs of a stream of vectors, from two sums.

    Σ_{i<j}‖x_i−x_j‖² = n·Σ‖x_i‖² − ‖Σx_i‖²; the caller shifts the vectors against cancellation.
    """

    def __init__(self) -> None:
        self.count = 0
        self.squares = 0.0
        self.total: list[Tensor] | None = None

    def add(self, vector: list[Tensor]) -> None:
        self.count += 1
        self.squares += sum(float(v.square().sum()) for v in vector)
        if self.total is None:
            self.total = [v.clone() for v in vector]
        else:
            torch._foreach_add_(self.total, vector)

    def distances(self) -> tuple[float, int]:
        """Sum over pairs, and their number."""
        total = 0.0 if self.total is None else sum(float(v.square().sum()) for v in self.total)
        return max(self.count * self.squares - total, 0.0), self.count * (self.count - 1) // 2


@torch.no_grad()
def weight_distances(samples: Iterable[tuple[Any, Sequence[Tensor]]]) -> Contrast:
    """Root mean square Euclidean distance of pairs of samples, read once as a stream.

    Args:
        samples: (cycle, tensors) of each sample; samples of a cycle come one after another, so
            that two sums of the weights' size are all that is kept.

    >>> points = [(0, [torch.tensor([0.0])]), (0, [torch.tensor([2.0])]), (1, [torch.ones(1)])]
    >>> weight_distances(points)
    Contrast(within=2.0, between=1.0)
    """
    every, current = _Pairs(), _Pairs()
    within, within_pairs = 0.0, 0
    origin: list[Tensor] | None = None
    seen: list[Any] = []
    for cycle, tensors in samples:
        vector = [t.detach().double() for t in tensors]
        origin = vector if origin is None else origin
        vector = [v - o for v, o in zip(vector, origin, strict=True)]
        if seen and cycle != seen[-1]:
            if cycle in seen:
                raise ConfigError(
                    f"samples of a cycle must come one after another, got cycle {cycle!r} again "
                    f"after cycle {seen[-1]!r}; group the samples by cycle"
                )
            within, within_pairs = _plus((within, within_pairs), current.distances())
            current = _Pairs()
        if not seen or cycle != seen[-1]:
            seen.append(cycle)
        current.add(vector)
        every.add(vector)
    within, within_pairs = _plus((within, within_pairs), current.distances())
    total, pairs = every.distances()
    return Contrast(
        _root_mean(within, within_pairs), _root_mean(max(total - within, 0.0), pairs - within_pairs)
    )


def prediction_distances(predictions: Tensor, cycles: Sequence[Any]) -> Contrast:
    """How far the predictions of two samples are apart, on average over pairs.

    Args:
        predictions: (samples, rows, classes): share of rows whose most probable class differs.
            (samples, rows): root mean square difference of means.
        cycles: The cycle of each sample.
    """
    if len(predictions) != len(cycles):
        raise ConfigError(
            f"cycles must have one entry for each of {len(predictions)} samples, got {len(cycles)}"
        )
    classes = predictions.argmax(2) if predictions.ndim == 3 else None
    sums, counts = {True: 0.0, False: 0.0}, {True: 0, False: 0}
    for i in range(len(cycles)):
        for j in range(i):
            same = cycles[i] == cycles[j]
            counts[same] += 1
            if classes is not None:
                sums[same] += float((classes[i] != classes[j]).double().mean())
            else:
                gap = predictions[i].double() - predictions[j].double()
                sums[same] += float(gap.square().mean())
    mean = {same: sums[same] / counts[same] if counts[same] else None for same in counts}
    if classes is None:
        mean = {same: None if m is None else math.sqrt(m) for same, m in mean.items()}
    return Contrast(mean[True], mean[False])


@torch.no_grad()
def relative_movement(samples: Iterable[tuple[Any, Sequence[Tensor]]]) -> dict[Any, float]:
    """Root mean square distance of a chain's samples from each other, over that of the origin.

    Args:
        samples: (chain, tensors) of each sample; chains with one sample are left out.

    >>> points = [(0, [torch.tensor([3.0])]), (0, [torch.tensor([3.0])])]
    >>> relative_movement(points)
    {0: 0.0}
    """
    pairs: dict[Any, _Pairs] = {}
    sizes: dict[Any, float] = {}
    origins: dict[Any, list[Tensor]] = {}
    for chain, tensors in samples:
        vector = [t.detach().double() for t in tensors]
        origin = origins.setdefault(chain, vector)
        sizes[chain] = sizes.get(chain, 0.0) + sum(float(v.square().sum()) for v in vector)
        moved = [v - o for v, o in zip(vector, origin, strict=True)]
        pairs.setdefault(chain, _Pairs()).add(moved)
    movement = {}
    for chain, own in pairs.items():
        total, count = own.distances()
        size = sizes[chain] / own.count
        if count:
            movement[chain] = math.sqrt(total / count / size) if size else 0.0
    return movement


def moved_probability(predictions: Tensor, cycles: Sequence[Any]) -> float | None:
    """Probability that moves between two samples of a cycle, on average over pairs and rows.

    ½·Σ_class |p−p′|, for (samples, rows, classes). For means (samples, rows): the root mean square
    difference over that of the means between rows. None where no cycle has two samples.
    """
    pairs = [(i, j) for i in range(len(cycles)) for j in range(i) if cycles[i] == cycles[j]]
    if not pairs:
        return None
    values = predictions.double()
    if values.ndim == 3:
        gaps = [float((values[i] - values[j]).abs().sum(1).mean()) / 2 for i, j in pairs]
        return sum(gaps) / len(gaps)
    squares = [float((values[i] - values[j]).square().mean()) for i, j in pairs]
    scale = float(values.mean(0).std(correction=0))
    return math.sqrt(sum(squares) / len(squares)) / scale if scale else None


def constant_samples(predictions: Tensor) -> list[int]:
    """Numbers of the samples that predict the same for all rows; none for means.

    Same: ½·Σ_class |p − p̄| is below 0.01 on average over rows, p̄ their mean.

    >>> constant_samples(torch.tensor([[[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.5, 0.5]]]))
    [1]
    """
    if predictions.ndim != 3 or predictions.shape[1] < 2:
        return []
    values = predictions.double()
    spread = (values - values.mean(1, keepdim=True)).abs().sum(2).mean(1) / 2
    return [i for i, each in enumerate(spread.tolist()) if each < SAME]


def _plus(a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
    return a[0] + b[0], a[1] + b[1]


def _root_mean(total: float, pairs: int) -> float | None:
    return math.sqrt(total / pairs) if pairs else None


def _shown(value: float | None) -> str:
    return "no pair" if value is None else f"{value:.4g}"
