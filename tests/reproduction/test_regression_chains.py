"""Stacked regressions against the equations, written out for one network."""

import math

import pytest
import torch

from entropy_mcmc_reproduction import regression_chains
from entropy_mcmc_reproduction.regression_chains import KINDS, Course, Networks, Noise
from entropy_mcmc_reproduction.regression_data import Splits
from entropy_mcmc_reproduction.regression_noise import NoisePosterior
from entropy_mcmc_reproduction.regression_scores import SCORES, judge

LR, PRIOR, HORIZON, BOOST = (0.1, 0.2), (0.5, 4.0), (10.0, 30.0), (1.5, 3.0)
NUMBERS = {
    "lr": torch.tensor(LR),
    "prior_variance": torch.tensor(PRIOR),
    "horizon": torch.tensor(HORIZON),
    "boost": torch.tensor(BOOST),
}


@pytest.fixture
def splits():
    draws = torch.Generator().manual_seed(0)
    x, z = (torch.randn(2, n, 3, generator=draws) for n in (40, 15))
    return Splits(x, x[..., 0] * x[..., 1], z, z[..., 0] * z[..., 1], torch.tensor([2.0, 3.0]))


def naive_step(method, state, grad, heat, split, factor, ratio, eps, noisy):
    """The rules of the design, for the network of one split; N = 40."""
    theta, guide, v, w = state
    lr, count = factor * LR[split], 40
    if noisy and method == "sgld":
        lr *= BOOST[split]
    mu = KINDS[method].momentum if noisy else regression_chains.MOMENTUM
    drift = grad + heat * theta / (PRIOR[split] * count)
    if noisy and method == "emcmc":
        pull = (theta - guide) / (HORIZON[split] * LR[split])  # ηN = horizon · lr
        scale = math.sqrt(2 * lr * heat * (1 - mu) / count)
        new_v = mu * ratio * v - lr * (drift + pull) + scale * eps[0]
        new_w = mu * ratio * w + lr * pull + scale * eps[1]
        return theta + new_v, guide + new_w, new_v, new_w
    scale = math.sqrt(2 * lr * heat * (1 - mu) / count) if noisy else 0.0
    new_v = (mu * ratio * v if mu else 0.0) - lr * drift + scale * eps[0]
    return theta + new_v, guide, new_v, w


@pytest.mark.parametrize("method", ["sgd", "sgld", "sghmc", "emcmc"])
def test_moves_are_those_of_the_equations(method, splits, monkeypatch):
    course = Course(steps=8, batch=40, hidden=4, noise_from=0.5, keep_from=0.5, samples=2)
    stack = Networks(KINDS[method], NUMBERS, splits, course, chains=1, seed=3)
    drawn = []
    normals = stack._normals
    monkeypatch.setattr(stack, "_normals", lambda n: (drawn.append(normals(n)), drawn[-1])[1])
    heats = torch.tensor([0.3, 0.02])
    zero = torch.zeros_like(stack.flat)
    states = [(stack.flat[s].clone(), None, zero[s], zero[s]) for s in range(2)]
    last = None
    for step in range(course.steps):
        stack.gradients(splits.inputs, splits.targets)
        grad, noisy = stack._grad.clone(), method != "sgd" and step >= 4
        factor = course.lr_factor(step, 0.0 if method == "sgd" else regression_chains.LEAST_LR)
        # The library carries a velocity to another lr by √(lr/last lr).
        ratio = 1.0 if last is None else math.sqrt(factor / last)
        stack.move(step, heats)
        eps = drawn[-1] or (zero, zero)
        for s in range(2):
            if states[s][1] is None and noisy:  # the guide starts as θ when the coupling begins
                states[s] = (states[s][0], states[s][0].clone(), *states[s][2:])
            states[s] = naive_step(
                method,
                states[s],
                grad[s],
                float(heats[s]),
                s,
                factor,
                ratio,
                (eps[0][s], eps[1][s]),
                noisy,
            )
            torch.testing.assert_close(stack.flat[s], states[s][0], rtol=1e-4, atol=1e-5)
        last = factor


def test_gradients_are_those_of_autograd(splits):
    course = Course(8, 40, 4, 0.5, 0.5, 2)
    stack = Networks(KINDS["sgd"], NUMBERS, splits, course, chains=2, seed=3)
    stack.flat += 0.1  # the last layer starts at zero
    inputs, targets = splits.inputs[stack.owner], splits.targets[stack.owner]
    squares = stack.gradients(inputs, targets)
    flat = stack.flat.clone().requires_grad_()
    (w1, b1), (w2, b2) = stack.form.layers(flat)
    hidden = torch.relu(w1 @ inputs.mT / math.sqrt(3) + b1)
    outputs = w2 @ hidden * math.sqrt(2) / math.sqrt(4) + b2
    errors = outputs.squeeze(1) - targets
    (0.5 * errors.square().mean(1)).sum().backward()
    torch.testing.assert_close(stack._grad, flat.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(squares, errors.square().mean(1).detach(), rtol=1e-4, atol=1e-6)


def test_chains_of_a_split_share_its_noise_variance():
    noise = Noise(2, 2, rows=50, guess=torch.tensor([0.1, 0.2]))
    noise.learn(torch.tensor([1.0, 3.0, 0.0, 0.0]))
    # The first batch replaces the running error: means 2 and 0, and the guess counts as 50 rows.
    torch.testing.assert_close(noise.heats, torch.tensor([1.05, 1.05, 0.1, 0.1]))


def test_scores_of_one_gaussian(splits):
    means = splits.judged_targets[None] + 0.5  # every error is 0.5
    points = torch.tensor([[0.25, math.inf], [1e-4, math.inf]], dtype=torch.float64)
    sure = NoisePosterior(points, torch.eye(2, dtype=torch.float64).log(), torch.zeros(2))
    found = judge(means, splits, sure)
    wanted = -0.5 * (1 + math.log(0.25) + math.log(2 * math.pi)) - math.log(2.0)
    assert found["log_likelihood"][0] == pytest.approx(wanted)
    assert found["rmse"] == pytest.approx([1.0, 1.5])
    assert found["coverage"] == [1.0, 0.0]


def naive_scores(means, v, targets, unit):
    """Log-likelihood, RMSE and coverage of a mixture, row by row."""
    total, squares, covered = 0.0, 0.0, 0
    for row, target in enumerate(targets):
        gaps = [target - m[row] for m in means]
        parts = [math.exp(-g * g / (2 * v)) / math.sqrt(2 * math.pi * v) for g in gaps]
        total += math.log(sum(parts) / len(parts)) - math.log(unit)
        squares += (sum(gaps) / len(gaps)) ** 2
        level = sum(0.5 * (1 + math.erf(g / math.sqrt(2 * v))) for g in gaps)
        covered += 0.025 <= level / len(gaps) <= 0.975
    count = len(targets)
    return total / count, unit * math.sqrt(squares / count), covered / count


def test_scores_of_a_mixture_are_those_of_the_naive_version(splits):
    draws = torch.Generator().manual_seed(1)
    means = splits.judged_targets + 0.5 * torch.randn(4, 2, 15, generator=draws)
    points = torch.tensor([[0.25, math.inf]], dtype=torch.float64)
    sure = NoisePosterior(points, torch.zeros(2, 1, dtype=torch.float64), torch.zeros(2))
    found = judge(means, splits, sure)
    for split in range(2):
        targets = splits.judged_targets[split].tolist()
        wanted = naive_scores(means[:, split].tolist(), 0.25, targets, float(splits.units[split]))
        got = [found[name][split] for name in SCORES]
        assert got == pytest.approx(wanted, rel=1e-5)


def test_kept_networks_are_spread_over_the_last_part():
    course = Course(steps=100, batch=1, hidden=1, noise_from=0.5, keep_from=0.75, samples=5)
    assert [s for s in range(100) if course.is_due(s)] == [79, 84, 89, 94, 99]
    factors = [course.lr_factor(s, 0.05) for s in range(100)]
    assert factors[0] < 0.2
    assert max(factors) <= 1
    assert 0.05 <= factors[-1] < 0.051
