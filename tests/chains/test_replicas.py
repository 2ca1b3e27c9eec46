"""Stacked replicas against the optimizer and the closed form."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from entropy_mcmc import EntropyMCMC, chains
from entropy_mcmc.chains import sampling
from entropy_mcmc.chains.energy import Energy
from entropy_mcmc.chains.row_layout import Layout
from entropy_mcmc.errors import ConfigError
from samplers.test_replicas import RULES, closed_covariance
from scenarios import covariance_z

BOUND = 4.5  # false-alarm rate 7e-6 per comparison


@pytest.mark.parametrize("rule", RULES)
def test_without_noise_a_chain_is_the_optimizer_step_for_step(rule):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(40, 3, generator=generator)
    y = (x.sum(1) > 0).long()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    common = {"lr": 0.3, "num_data": 40, "temperature": 0.0, "weight_decay": 0.01, "eta": 0.5}
    common |= {**RULES[rule], "replicas": 3, "seed": 8}
    draws = chains.run(net, data=(x, y), loss=F.cross_entropy, steps=5, chains=2, **common)
    sampler = EntropyMCMC(net.parameters(), **common)
    for step in range(5):
        for _ in range(3):
            sampler.zero_grad()
            F.cross_entropy(net(x), y).backward()
            sampler.step()
        for number in range(3):
            with sampler.replica(number):
                for name, p in net.named_parameters():
                    actual = draws.theta[name][1, step, number]
                    torch.testing.assert_close(actual, p.detach(), rtol=1e-4, atol=1e-5)
        with sampler.guide():
            for name, p in net.named_parameters():
                torch.testing.assert_close(
                    draws.guide[name][1, step], p.detach(), rtol=1e-4, atol=1e-5
                )


def z_scores(y, rule, **options):
    """Joint covariance of the last states of 20,000 chains on curvature h, as z-scores."""
    n, h, eta, T, lr = 10, 10.0, 0.5, 0.4, 0.6
    draws = chains.run(
        lambda theta: h / n * theta.square().sum() / 2,
        torch.zeros(1),
        chains=20_000,
        **{"steps": 50, "burn_in": 49, "lr": lr, "num_data": n, "eta": eta, "temperature": T},
        **{"seed": 3, "replicas": y, **RULES[rule], **options},
    )
    assert draws.theta.shape == (20_000, 1, y, 1)
    rows = torch.cat([draws.theta[:, 0, :, 0], draws.guide[:, 0]], dim=1).T.double().numpy()
    settings = {"momentum": 0.0, "integrator": "euler", **RULES[rule]}
    return covariance_z(rows, closed_covariance(lr / n, h, eta, y, T, **settings))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("y", [2, 4])
def test_distribution_of_stacked_replicas(rule, y):
    assert np.abs(z_scores(y, rule)).max() < BOUND


@pytest.mark.soak
def test_compiled_replicas_have_the_same_distribution():
    assert np.abs(z_scores(2, "lm", compile=True)).max() < BOUND


def test_every_replica_draws_rows_of_its_own():
    """Without noise replicas differ by their mini-batches alone."""
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    draws = chains.run(
        lambda t, batch: (t - batch).square().sum(1).mean() / 2,
        torch.zeros(2),
        data=(x,),
        batch_size=4,
        **{"chains": 3, "steps": 2, "lr": 0.1, "eta": 0.1, "temperature": 0.0, "replicas": 2},
    )
    last = draws.theta[:, -1].reshape(6, 2)
    assert len({tuple(row) for row in last.tolist()}) == 6


def test_what_stacked_replicas_cannot_do():
    with pytest.raises(ConfigError, match="exchange_every must be 1 for stacked replicas"):
        chains.run(
            lambda t: t.sum(), torch.zeros(2), chains=2, steps=1, lr=0.1, num_data=1, eta=9.0,
            replicas=2, exchange_every=2,
        )  # fmt: skip
    with pytest.raises(ConfigError, match="'replicas' is no setting of SGLD"):
        chains.run(
            lambda t: t.sum(), torch.zeros(2), chains=2, steps=1, lr=0.1, sampler="sgld",
            num_data=1, replicas=2,
        )  # fmt: skip


def test_replicas_of_a_chain_are_moved_together(monkeypatch):
    """At two rows a group, the three replicas of each of five chains are still one group's."""
    monkeypatch.setattr(sampling, "CACHE", 2 * 4 * 12)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    energy = Energy(torch.sum, Layout((), (torch.Size([3]),)), (torch.zeros(9, 3),), 4)
    groups = sampling._groups(energy, torch.zeros(15, 3), True, 3)
    assert all(g.start % 3 == 0 == g.stop % 3 for g in groups)
    assert {row for g in groups for row in range(15)[g]} == set(range(15))
