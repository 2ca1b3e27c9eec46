"""Stacked logistic chains against the library's samplers and against the equations, one by one."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from entropy_mcmc_reproduction import logistic
from entropy_mcmc_reproduction import logistic_chains as chains
from entropy_mcmc_reproduction.jobs import Place

TRIALS = {
    "emcmc": [
        {"lr": 0.1, "prior_variance": 0.02, "horizon": 5.0},
        {"lr": 0.3, "prior_variance": 1.0, "horizon": 20.0},
    ],
    "sgld": [{"lr": 0.1, "prior_variance": 0.02}, {"lr": 0.3, "prior_variance": 1.0}],
    "entropy-sgd": [
        {"inner_lr": 0.1, "prior_variance": 0.02, "width": 1.0, "pull": 0.5},
        {"inner_lr": 0.2, "prior_variance": 1.0, "width": 3.0, "pull": 1.2},
    ],
}
TRIALS |= {"sgd": TRIALS["sgld"], "entropy-sgld": TRIALS["entropy-sgd"]}
SEEDS = (3, 8)


@pytest.fixture(scope="module")
def parts():
    return chains.read("digits", None, validation=60)


def last_of(method, parts, temperature):
    course = chains.Course(gradients=20, every=10, batch=16, temperature=temperature)
    *_, last = chains.run(method, TRIALS[method], parts.train, course, SEEDS)
    return last


@pytest.mark.parametrize("method", chains.METHODS)
def test_without_noise_every_chain_is_that_of_the_librarys_sampler(method, parts):
    last = last_of(method, parts, temperature=0.0)
    for i, seed in enumerate(SEEDS):
        for k, numbers in enumerate(TRIALS[method]):
            theta, guide = sampled(method, numbers, parts.train, seed)
            torch.testing.assert_close(last.theta[i, k], theta, atol=1e-5, rtol=1e-4)
            if method == "emcmc":
                torch.testing.assert_close(last.guide[i, k], guide, atol=1e-5, rtol=1e-4)
    assert (last.guide is not None) == (method == "emcmc")


def sampled(method, numbers, train, seed):
    """θ and guide after 20 gradients of the library's sampler, with autograd."""
    draws = torch.Generator().manual_seed(2 * seed)
    theta = nn.Parameter(torch.zeros(train.inputs.shape[1]))
    given = chains.arguments(method, numbers, len(train.targets), 0.0)
    sampler = chains.KINDS[method][0]([theta], fused=False, **given)

    def loss():
        rows = torch.randint(len(train.targets), (16,), generator=draws)
        sampler.zero_grad()
        value = F.binary_cross_entropy_with_logits(train.inputs[rows] @ theta, train.targets[rows])
        value.backward()
        return value

    for _ in range(20 // (chains.INNER if sampler.needs_closure else 1)):
        sampler.step(loss)
    if not hasattr(sampler, "guide"):
        return theta.detach(), None
    with sampler.guide():
        guide = theta.detach().clone()
    return theta.detach(), guide


def naive(method, numbers, place, train, seed):
    """θ after 20 gradients at T = 1 from the equations, with the draws of the stack."""
    batches, noise = (torch.Generator().manual_seed(2 * seed + i) for i in (0, 1))
    count, weights = train.inputs.shape
    given = chains.arguments(method, numbers, count, 1.0)
    lr, decay = given["lr"], 1 / (count * numbers["prior_variance"])
    theta, guide = torch.zeros(weights), torch.zeros(weights)

    def grad(at):
        rows = torch.randint(count, (16,), generator=batches)
        x = train.inputs[rows]
        return x.T @ (torch.sigmoid(x @ at) - train.targets[rows]) / 16 + decay * at

    def normals(how_many):
        return torch.randn((how_many, 2, weights), generator=noise)[:, place]

    def scale(rate):
        return math.sqrt(2 * rate / count)

    if method == "sgld":
        for _ in range(20):
            theta = theta - lr * grad(theta) + scale(lr) * normals(1)[0]
    elif method == "emcmc":
        tie = lr / (given["eta"] * count)
        for _ in range(20):
            slope, eps, gap = grad(theta), normals(2), theta - guide
            theta = theta - lr * slope - tie * gap + scale(lr) * eps[0]
            guide = guide + tie * gap + scale(lr) * eps[1]
    else:
        inner_lr, tie = given["inner_lr"], 1 / (given["eta"] * count)
        for _ in range(4):
            inner = mean = theta
            for _ in range(5):
                slope = grad(inner) + tie * (inner - theta)
                inner = inner - inner_lr * slope + scale(inner_lr) * normals(1)[0]
                mean = 0.25 * mean + 0.75 * inner
            theta = theta - lr * tie * (theta - mean)
            if method == "entropy-sgld":
                theta = theta + scale(lr) * normals(1)[0]
    return theta


@pytest.mark.parametrize("method", [m for m in chains.METHODS if m != "sgd"])
def test_with_noise_every_chain_is_that_of_the_equations(method, parts):
    last = last_of(method, parts, temperature=1.0)
    for i, seed in enumerate(SEEDS):
        for k, numbers in enumerate(TRIALS[method]):
            theta = naive(method, numbers, k, parts.train, seed)
            torch.testing.assert_close(last.theta[i, k], theta, atol=1e-5, rtol=1e-4)


def test_a_seed_does_not_depend_on_its_neighbours(parts):
    course = chains.Course(gradients=10, every=10, batch=16, temperature=1.0)
    both, alone = (
        list(chains.run("emcmc", TRIALS["emcmc"], parts.train, course, seeds))[-1]
        for seeds in ((3, 8), (8,))
    )
    torch.testing.assert_close(both.theta[1], alone.theta[0])


def test_all_rows_are_used_once(parts):
    counts = [len(part.targets) for part in parts]
    assert counts[1] == 60
    assert sum(counts) == 179 + 180  # all 7s and 9s of the embedded digits
    whole = chains.read("digits", None, validation=0).train.inputs
    both = torch.cat([parts.train.inputs, parts.validation.inputs])
    assert torch.equal(both.sum(0).round(decimals=1), whole.sum(0).round(decimals=1))
    assert whole[:, -1].eq(1).all()


def test_averages_are_of_the_second_half_and_of_both_roles():
    rows = chains.Rows(torch.ones(1, 1), torch.ones(1))
    states = [
        chains.State(torch.full((1, 1, 1), float(t)), torch.full((1, 1, 1), -float(t)))
        for t in range(9)
    ]
    # σ(t) + σ(−t) = 1 at every time, so one role alone would give more than a half.
    assert logistic.average(states, rows, 1.0).item() == pytest.approx(0.5)
    alone = [chains.State(state.theta, None) for state in states]
    expected = torch.tensor([3.0, 4.0]).sigmoid().mean().item()
    assert logistic.average(alone, rows, 0.5).item() == pytest.approx(expected)


def test_speed_is_the_trapezoid_rule():
    values = torch.tensor([1.0, 0.5, 0.25]).view(3, 1, 1)
    assert logistic.area(values).item() == pytest.approx((0.75 + 0.375) / 2)


def test_a_setting_that_diverged_is_never_picked():
    rows = chains.Rows(torch.ones(1, 1), torch.ones(1))
    theta = torch.tensor([math.nan, 1.0]).view(1, 2, 1)
    scores = logistic.judged([chains.State(theta, None)] * 5, rows)
    assert scores["speed"][0] == scores["1.0"][0] == math.inf
    assert {place for place, _ in logistic.picks(scores).values()} == {1}


def test_the_trials_never_see_the_test_rows(monkeypatch):
    """With the test targets destroyed, everything but the test measures is the same."""
    place = Place(None, None)
    settings = logistic.jobs("smoke", place)[0].settings
    whole, read = logistic.compute(settings, place), logistic.read

    def blind(*given):
        parts = read(*given)
        return parts._replace(test=chains.Rows(parts.test.inputs, 1 - parts.test.targets))

    monkeypatch.setattr(logistic, "read", blind)
    other = logistic.compute(settings, place)
    assert (other["validation"], other["picks"]) == (whole["validation"], whole["picks"])
    assert other["measures"]["train_nll"] == whole["measures"]["train_nll"]
    assert other["measures"]["nll"] != whole["measures"]["nll"]
