"""Distances within and between cycles against a loop over pairs."""

import itertools

import pytest
import torch

from entropy_mcmc.diagnostics import Contrast, exchangeable, prediction_distances, weight_distances
from entropy_mcmc.errors import ConfigError

CYCLES = [0, 0, 0, 1, 1, 2]


def naive(values, distance):
    """Mean of a distance over pairs, within and between cycles."""
    pairs = {True: [], False: []}
    for (a, x), (b, y) in itertools.combinations(zip(CYCLES, values, strict=True), 2):
        pairs[a == b].append(distance(x, y))
    return (sum(v) / len(v) for v in (pairs[True], pairs[False]))


def draws():
    g = torch.Generator().manual_seed(0)
    far = [1e6, 1e6, 1e6, 1e6 + 1, 1e6 + 1, 1e6 + 3]  # an offset that cancels badly
    return [[torch.randn(3, 2, generator=g) + at, torch.randn(4, generator=g) + at] for at in far]


def test_weights_against_a_loop():
    samples = draws()
    flat = [torch.cat([t.double().ravel() for t in sample]) for sample in samples]
    within, between = naive(flat, lambda x, y: float((x - y).square().sum()))
    distances = weight_distances(zip(CYCLES, samples, strict=True))
    assert distances.within == pytest.approx(within**0.5, rel=1e-9)
    assert distances.between == pytest.approx(between**0.5, rel=1e-9)


def test_weights_are_read_as_a_stream():
    """Each sample is asked for once, and the generator's own tensors are left as they were."""
    seen = []

    def stream():
        for cycle, sample in zip(CYCLES, draws(), strict=True):
            before = [t.clone() for t in sample]
            yield cycle, sample
            seen.append(all(map(torch.equal, before, sample)))

    weight_distances(stream())
    assert seen == [True] * 6
    with pytest.raises(ConfigError, match="cycle 0 again after cycle 1; group"):
        weight_distances([(c, [torch.ones(1)]) for c in (0, 1, 0)])


def test_missing_pairs_are_none():
    one = weight_distances([(0, [torch.ones(2)])])
    assert one == Contrast(None, None)
    assert str(one) == "no pair within a cycle, no pair between cycles"
    assert weight_distances([(0, [torch.ones(2)]), (1, [torch.ones(2)])]) == Contrast(None, 0.0)


def test_disagreement_of_classes_and_means():
    g = torch.Generator().manual_seed(1)
    probs = torch.rand(6, 50, 3, generator=g)
    within, between = naive(probs.argmax(2), lambda x, y: float((x != y).double().mean()))
    distances = prediction_distances(probs, CYCLES)
    assert (distances.within, distances.between) == (pytest.approx(within), pytest.approx(between))
    means = probs[..., 0]
    within, between = naive(means.double(), lambda x, y: float((x - y).square().mean()))
    distances = prediction_distances(means, CYCLES)
    assert distances.within == pytest.approx(within**0.5)
    assert distances.between == pytest.approx(between**0.5)
    with pytest.raises(ConfigError, match="each of 6 samples, got 2"):
        prediction_distances(probs, [0, 1])


def test_exchangeable_is_a_valid_p_value():
    """300 runs of 3 × 4 exchangeable draws: p ≤ 0.1 in 10 % ± 5.2 % (three standard errors)."""
    g = torch.Generator().manual_seed(2)
    labels = [0] * 4 + [1] * 4 + [2] * 4
    p_values = [
        exchangeable(torch.randn(12, 5, generator=g), labels, permutations=99) for _ in range(300)
    ]
    assert sum(p <= 0.1 for p in p_values) / 300 == pytest.approx(0.1, abs=0.052)


def test_exchangeable_finds_cycles_that_differ():
    g = torch.Generator().manual_seed(3)
    labels = [0] * 4 + [1] * 4 + [2] * 2
    shifted = torch.randn(10, 5, 2, generator=g) + 4 * torch.tensor(labels)[:, None, None]
    assert exchangeable(shifted, labels) < 0.01
    # The p-value is about draws, not about rows: shuffled labels destroy it.
    assert exchangeable(shifted, [0, 1, 2, 0, 1, 2, 0, 1, 0, 1]) > 0.05


def test_exchangeable_has_no_meaning_without_repeats():
    draws = torch.randn(3, 2, generator=torch.Generator().manual_seed(4))
    assert exchangeable(draws, [0, 0, 0]) is None
    assert exchangeable(draws, [0, 1, 2]) is None
    assert exchangeable(torch.ones(4, 2), [0, 0, 1, 1]) == 1.0
