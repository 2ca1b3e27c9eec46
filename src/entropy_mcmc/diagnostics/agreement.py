"""Do chains, cycles, or the two halves of a chain predict alike?

Two tests of "all draws come from one distribution", each at half of the stated rate: R-hat, pooled
over all predictions, against its limit for this number of groups and draws; and a permutation test,
which supposes nothing about the distribution but is blind with very few draws.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from entropy_mcmc.diagnostics.ess_rhat import LEAST

RATE = 0.01  # false alarms of one verdict on independent draws
APART = 1.2  # R-hat below which a difference is small, however certain
BLIND = 2.0  # limit of R-hat above which there are too few draws to tell
LABELLINGS = 5000  # up to this many the permutation test goes through all of them
CHUNK = 2**24  # numbers that it holds at a time


@dataclass(frozen=True)
class Agreement:
    """What two tests say of groups of draws.

    Attributes:
        groups: "chains", "replicas", "cycles" or "halves" of the one chain.
        count: Number of groups.
        draws: Draws in the smallest of them.
        rhat: R-hat of Gelman and Rubin, variances summed over all predictions.
        limit: R-hat above which the groups are said to differ.
        p: p-value of the permutation test.
        verdict: "differ", "slightly" (certain but small), "alike", or "too few" draws to tell.
    """

    groups: str
    count: int
    draws: int
    rhat: float
    limit: float
    p: float
    verdict: str

    def __str__(self) -> str:
        p = f"p = {self.p:.2g}" if self.p >= 0.0015 else "p ≤ 0.001"
        return f"R-hat {self.rhat:.3g} of {self.count} {self.groups} (limit {self.limit:.3g}), {p}"


def agreement(predictions: Tensor, labels: Sequence[Any], groups: str) -> Agreement | None:
    """Test whether groups of draws predict alike; None where there is nothing to compare.

    Args:
        predictions: (draws, …), in order.
        labels: The group of each draw.
        groups: What the groups are called.
    """
    p = exchangeable(predictions, labels)
    if p is None:
        return None
    sizes = [labels.count(kind) for kind in dict.fromkeys(labels)]
    rhat = pooled_rhat(predictions, labels)
    limit = max(rhat_limit(len(sizes), len(labels), RATE / 2), 1.05)
    verdict = "too few" if limit > BLIND else "alike"
    if p <= RATE / 2:
        verdict = "differ" if rhat > APART else "slightly"
    if rhat > limit:
        verdict = "differ"
    return Agreement(groups, len(sizes), min(sizes), rhat, limit, p, verdict)


def pooled_rhat(predictions: Tensor, labels: Sequence[Any]) -> float:
    """R-hat of groups of draws, with variances summed over all predictions.

    √((F + n − 1)/n): F is the mean square between groups over that within them, n the mean number
    of draws in a group.
    """
    values = predictions.double().cpu().flatten(1)
    numbers, sizes = _numbered(labels)
    means = torch.zeros(len(sizes), values.shape[1], dtype=torch.float64)
    means.index_add_(0, numbers, values)
    means /= sizes[:, None]
    between = float((sizes[:, None] * (means - values.mean(0)).square()).sum())
    within = float((values - means[numbers]).square().sum())
    if between <= 1e-24 * float(values.square().sum()):
        return 1.0
    if within == 0:
        return math.inf
    ratio = between / (len(sizes) - 1) / (within / (len(values) - len(sizes)))
    length = len(values) / len(sizes)
    return math.sqrt((ratio + length - 1) / length)


def rhat_limit(groups: int, draws: int, rate: float) -> float:
    """R-hat that independent Gaussian draws, `draws` in all, exceed with probability `rate`.

    F then has groups−1 and draws−groups degrees of freedom. For one prediction, or many that move
    together, this is exact; many that do not scatter less.

    >>> [round(rhat_limit(2, draws, 0.005), 2) for draws in (8, 20, 40, 400)]
    [2.33, 1.39, 1.18, 1.02]
    """
    from scipy.special import fdtri  # here, because it takes long to import

    ratio, length = float(fdtri(groups - 1, draws - groups, 1 - rate)), draws / groups
    return math.sqrt((ratio + length - 1) / length)


def _numbered(labels: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Number of each draw's group, and sizes of the groups."""
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(labels))}
    numbers = torch.tensor([kinds[label] for label in labels])
    return numbers, torch.bincount(numbers)


def labellings(sizes: Sequence[int]) -> int:
    """Number of ways to label draws with groups of these sizes.

    >>> labellings([2, 2])
    6
    """
    return math.factorial(sum(sizes)) // math.prod(math.factorial(size) for size in sizes)


def agreements(predictions: Tensor, labels: Sequence[tuple[Any, ...]]) -> tuple[Agreement, ...]:
    """Agreement of chains and of cycles; of the halves of the draws where there is one of each.

    Args:
        predictions: (draws, …), in order.
        labels: (…, chain, cycle) of each draw.
    """
    by_chain = agreement(predictions, [label[:-1] for label in labels], "chains")
    by_cycle = None
    if len({*labels}) > len({label[:-1] for label in labels}):
        by_cycle = agreement(predictions, labels, "cycles")
    tests = tuple(each for each in (by_chain, by_cycle) if each is not None)
    if tests or len(labels) < 2 * LEAST:
        return tests
    half = len(labels) // 2
    by_half = agreement(predictions[-2 * half :], [0] * half + [1] * half, "halves")
    return () if by_half is None else (by_half,)


def exchangeable(
    predictions: Tensor, labels: Sequence[Any], *, permutations: int = 999, seed: int = 0
) -> float | None:
    """p-value of "the draws of all groups are exchangeable", valid for any number of draws.

    The statistic is the sum of squared distances within groups; the labels are shuffled. Small
    where groups differ, or where draws of a group are near copies of each other.

    Args:
        predictions: (draws, …).
        labels: The group of each draw.
        permutations: Shuffles where there are more than 5,000 labellings; else all are tried.
        seed: Seed of the shuffles.

    Returns:
        None where no labelling differs from another: one group, or one draw in each.
    """
    numbers, sizes = _numbered(labels)
    if len(sizes) < 2 or len(sizes) == len(labels):
        return None
    flat = predictions.double().cpu().flatten(1)
    squares = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist").square()
    # Equal up to rounding counts as equal: relabelled ties must not look smaller.
    edge = float(_within(squares, numbers[None], sizes)) * (1 + 1e-9)
    if labellings(sizes.tolist()) <= LABELLINGS:
        every = torch.tensor(list(_every_labelling(sizes.tolist())))
        return float((_within(squares, every, sizes) <= edge).double().mean())
    generator = torch.Generator().manual_seed(seed)
    orders = torch.rand(permutations, len(labels), generator=generator).argsort(1)
    lower = int((_within(squares, numbers[orders], sizes) <= edge).sum())
    return (1 + lower) / (1 + permutations)


def _within(squares: Tensor, labels: Tensor, sizes: Tensor) -> Tensor:
    """Sum of squared distances within groups over their size, for each row of labels."""
    each = max(1, CHUNK // (labels.shape[1] * len(sizes)))
    sums = []
    for start in range(0, len(labels), each):
        own = one_hot(labels[start : start + each], len(sizes)).double()
        sums.append((own * (squares @ own)).sum(1) @ (1 / sizes.double()))
    return torch.cat(sums)


def _every_labelling(sizes: list[int]) -> Iterator[list[int]]:
    """All ways to label draws with groups of these sizes."""
    if not any(sizes):
        yield []
        return
    for group, left in enumerate(sizes):
        if left:
            rest = [size - (i == group) for i, size in enumerate(sizes)]
            yield from ([group, *labels] for labels in _every_labelling(rest))
