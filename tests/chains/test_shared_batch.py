"""One mini-batch for all chains: each chain's distribution stays, their independence goes."""

import pytest
import torch
import torch.nn.functional as F

from entropy_mcmc import chains
from entropy_mcmc.errors import ConfigError

ROWS, BATCH, LR, T = 400, 8, 0.5, 4.0


def half_square(theta, x):
    return (theta - x).square().mean(0).sum() / 2


def numbers(columns=1):
    return torch.randn(ROWS, columns, generator=torch.Generator().manual_seed(2))


def run(count, shared, *, steps, start=0.0, **changes):
    settings = {"sampler": "sgld", "lr": LR, "temperature": T, "seed": 5, "compile": False}
    options = {"data": (numbers(),), "batch_size": BATCH, "shared_batch": shared}
    start = torch.zeros(1) + start
    return chains.run(half_square, start, chains=count, steps=steps, **settings | options | changes)


def test_chain_zero_is_that_with_batches_of_its_own():
    own, shared = (run(3, flag, steps=30).theta for flag in (False, True))
    torch.testing.assert_close(own[0], shared[0], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(own[1], shared[1])


@pytest.mark.parametrize("sampler", ["sgld", "sghmc", "emcmc"])
def test_shared_rows_are_the_rows_of_chain_zero_for_every_chain(sampler):
    """One chain from each start, which is chain 0 of its run and so has these rows."""
    extra = {"eta": 0.1} if sampler == "emcmc" else {}
    starts = torch.tensor([[0.0], [1.0], [-2.0]])
    common = {"sampler": sampler, "lr": LR, "temperature": 0.0, "seed": 5, "compile": False}
    data = {"data": (numbers(),), "batch_size": BATCH}
    together = chains.run(
        half_square, starts, steps=20, shared_batch=True, **common, **data, **extra
    )
    for k, start in enumerate(starts):
        alone = chains.run(half_square, start, chains=1, steps=20, **common, **data, **extra)
        torch.testing.assert_close(together.theta[k], alone.theta[0], rtol=1e-5, atol=1e-6)


def test_variance_of_each_chain_stays_and_chains_are_correlated():
    """θ ← (1−lr)θ + lr·x̄ + √(2·lr·T/N)·ε, x̄ the batch's mean, of variance s²/B.

    Var θ = (lr·s²/B + 2T/N)/(2−lr) for each chain, shared or not; the covariance of two chains is
    lr·(s²/B)/(2−lr) with a shared batch and 0 without. lr = ½ halves what a step remembers: every
    8th state is new, 5 states of 500 coordinates. These see the same rows, so that their columns'
    correlations of 1/√400 count: the relative standard error of both variances is at most
    √(2·(1 + 500/400)/2500) = 4.2 %; 5 of them, false alarm 6e-7 each.
    """
    count, columns = 10, 500
    x = numbers(columns)
    batch = float(x.var(0, correction=0).mean()) / BATCH
    common, alone = LR * batch / (2 - LR), 2 * T / ROWS / (2 - LR)
    for shared in (True, False):
        options = {"data": (x,), "thin": 8, "burn_in": 40, "start": torch.zeros(columns)}
        theta = run(count, shared, steps=80, **options).theta.double()
        spread = float((theta - x.mean(0)).square().mean())
        assert spread == pytest.approx(common + alone, rel=0.21)
        of_mean = float((theta.mean(0) - x.mean(0)).square().mean())
        expected = common + alone / count if shared else (common + alone) / count
        assert of_mean == pytest.approx(expected, rel=0.21)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": None}, "batch_size"),
        ({"sampler": "emcmc", "eta": 0.1, "replicas": 2}, "repl"),
    ],
)
def test_refuses_what_has_no_meaning(changes, message):
    with pytest.raises(ConfigError, match=message):
        run(2, True, steps=3, **changes)


def test_modules_share_batches_too():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    x = torch.randn(40, 3)
    y = (x.sum(1) > 0).long()
    settings = {"sampler": "sgld", "lr": 0.1, "steps": 12, "chains": 2, "seed": 1, "batch_size": 5}
    draws = [
        chains.run(net, data=(x, y), loss=F.cross_entropy, shared_batch=flag, **settings).theta
        for flag in (True, False)
    ]
    for name in draws[0]:
        torch.testing.assert_close(draws[0][name][0], draws[1][name][0], rtol=1e-4, atol=1e-6)
