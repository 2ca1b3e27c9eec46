"""Effectively different networks: against pairs counted one by one, and a known correlation."""

import numpy as np
import pytest
import torch

from entropy_mcmc.diagnostics import effective_networks
from entropy_mcmc.errors import ConfigError


def naive(predictions, chains):
    samples = len(chains)
    within, between = [], []
    for i in range(samples):
        for j in range(i):
            away = float(((predictions[i] - predictions[j]) ** 2).sum())
            (within if chains[i] == chains[j] else between).append(away)
    rho = 1 - np.mean(within) / np.mean(between)
    return samples / (1 + (samples - 1) * rho * len(within) / (len(within) + len(between)))


@pytest.mark.parametrize("chains", [[0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 2, 2], [0, 0, 0, 0, 1, 1]])
def test_equals_pairs_counted_one_by_one(chains):
    rng = np.random.default_rng(1)
    level = rng.normal(size=(3, 20, 4))
    values = np.stack([level[c] + 0.5 * rng.normal(size=(20, 4)) for c in chains])
    effective = effective_networks(values, chains)
    assert effective.value == pytest.approx(naive(values, chains))
    assert (effective.samples, effective.chains) == (6, len(set(chains)))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_variance_of_the_average_is_that_of_so_many_networks(rho):
    """4 chains of 8 samples with correlation ρ: K = 32/(1 + 7ρ), since other chains share nothing.

    20,000 rows are independent: the estimate of ρ has a standard error below 0.01 and K one below
    2 % (from a delta method; 3 % at ρ = 0), so that 10 % is more than 3.3 of them (1e-3).
    """
    rng = np.random.default_rng(2)
    level = rng.normal(size=(4, 20_000))
    noise = rng.normal(size=(4, 8, 20_000))
    values = np.sqrt(rho) * level[:, None] + np.sqrt(1 - rho) * noise
    effective = effective_networks(values.reshape(32, -1), [c for c in range(4) for _ in range(8)])
    assert effective.value == pytest.approx(32 / (1 + 7 * rho), rel=0.1)
    spread = values.reshape(32, -1).mean(0).var()  # 1 is that of one network
    assert effective.value == pytest.approx(1 / spread, rel=0.1)


def test_copies_count_once_for_each_chain():
    level = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(0))
    effective = effective_networks(level.repeat_interleave(4, 0), [0] * 4 + [1] * 4 + [2] * 4)
    assert effective.value == pytest.approx(3)
    assert effective.correlation == pytest.approx(1)


def test_edges():
    values = np.arange(6.0).reshape(3, 2)
    assert effective_networks(values, [0, 0, 0]) is None
    assert effective_networks(values, [0, 1, 2]).value == 3  # an ensemble
    assert effective_networks(np.ones((4, 2)), [0, 0, 1, 1]).value == pytest.approx(1)
    with pytest.raises(ConfigError, match="one entry for each of 3 samples, got 2"):
        effective_networks(values, [0, 1])
