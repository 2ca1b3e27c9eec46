"""The chains behind the estimators: against plain loops written from the equations."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from entropy_mcmc.sklearn.classifier_selection import held_out_nll
from entropy_mcmc.sklearn.likelihood import Categorical, Gaussian
from entropy_mcmc.sklearn.mixture_quantiles import mixture_quantiles
from entropy_mcmc.sklearn.mlp import ACTIVATIONS, draw_networks, forward
from entropy_mcmc.sklearn.plan import Plan
from entropy_mcmc.sklearn.regressor_selection import (
    GRID,
    HeldOutNoise,
    grouped,
    guess_noise,
    log_likelihoods,
    noise_variances,
)
from entropy_mcmc.sklearn.sampling import Draws, row_numbers, run
from entropy_mcmc.sklearn.validation import folds

PLAN = Plan(
    sizes=(2, 3, 1),
    activation="tanh",
    chains=3,
    steps=12,
    samples=4,
    batch=100,
    lr=0.1,
    momentum=0.5,
    horizon=20.0,
    temperature=1.0,
    prior_variance=2.0,
    burn_in=0.5,
    roles="both",
    seed=5,
)


class Fixed(Gaussian):
    """Noise variances that nothing moves."""

    def __init__(self, heats):
        super().__init__(0.5, 0.0, 1)
        self.heats = heats

    def _learn(self, error):
        pass


def test_quantiles_solve_the_equation():
    draws = np.random.default_rng(0)
    means, stds = 3 * draws.standard_normal((5, 7)), draws.uniform(0.1, 2, 5)
    for probability in (0.025, 0.5, 0.9):
        found = mixture_quantiles(means, stds, probability)
        np.testing.assert_allclose(norm.cdf(found, means, stds[:, None]).mean(axis=0), probability)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_stacked_forward_is_each_network_alone(name):
    generator = torch.Generator().manual_seed(0)
    params = [p.double() + 0.1 for p in draw_networks((4, 6, 5, 2), torch.ones(3), generator)]
    x = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    bend, gain = ACTIVATIONS[name]
    for chain, out in enumerate(forward(params, x, name)):
        w1, b1, w2, b2, w3, b3 = (p[chain] for p in params)
        h = bend(x @ w1 / 4**0.5 + b1)
        h = bend(h @ w2 * gain / 6**0.5 + b2)
        torch.testing.assert_close(out, h @ w3 * gain / 5**0.5 + b3)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gains_keep_the_second_moment(name):
    bend, gain = ACTIVATIONS[name]
    z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    moment = torch.trapezoid(density * (gain * bend(z)).square(), z)
    assert 0.85 < moment < 1.15


def test_categorical_is_the_mean_cross_entropy_of_each_chain():
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(2, 5, 3, generator=generator)
    labels = torch.randint(3, (2, 5), generator=generator)
    each = [torch.nn.functional.cross_entropy(o, t) for o, t in zip(outputs, labels, strict=True)]
    torch.testing.assert_close(Categorical().losses(outputs, labels), torch.stack(each))
    shared = [torch.nn.functional.cross_entropy(o, labels[0]) for o in outputs]
    torch.testing.assert_close(Categorical().losses(outputs, labels[0]), torch.stack(shared))


def test_run_is_the_rule_of_the_paper_on_the_posterior_energy():
    """Chains in flat tensors equal one network at a time, written straight from the rule."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(9, 2, generator=generator), torch.randn(9, generator=generator)
    heats, priors = torch.tensor([0.25, 0.5, 2.0]), torch.tensor([0.3, 2.0, 50.0])
    draws = run(PLAN, x, y, Fixed(heats), priors=priors)
    generator = torch.Generator().manual_seed(PLAN.seed)
    start = draw_networks(PLAN.sizes, torch.tensor([0.3**0.5, 1.0, 1.0]), generator)
    total = sum(p.numel() for p in start)
    noise = [torch.randn(2, total, generator=generator) for _ in range(PLAN.steps)]
    for chain in range(3):
        theta = [p[chain].clone() for p in start]
        guide = [p.clone() for p in theta]
        velocity, guide_velocity = ([torch.zeros_like(p) for p in theta] for _ in range(2))
        kept, last = [], None
        decay = heats[chain] / (9 * priors[chain])
        eta = PLAN.horizon * PLAN.lr / 9
        for step in range(PLAN.steps):
            fall = 0.05 + (1 - 0.05) * (1 + math.cos(math.pi * step / PLAN.steps)) / 2
            lr = PLAN.lr * fall
            keep = PLAN.momentum * math.sqrt(lr / (last or lr))
            kick = torch.sqrt(2 * lr * heats[chain] * (1 - PLAN.momentum) / 9)
            leaves = [p.clone().requires_grad_() for p in theta]
            hidden = torch.tanh(x @ leaves[0] / 2**0.5 + leaves[1])
            outputs = (hidden @ leaves[2] * 1.6 / 3**0.5 + leaves[3]).squeeze(-1)
            grads = torch.autograd.grad(((outputs - y) ** 2).mean() / 2, leaves)
            offset = 0
            for i, grad in enumerate(grads):
                size = theta[i].numel()
                here = slice(offset + chain * size, offset + (chain + 1) * size)
                first, second = (e[here].view_as(theta[i]) for e in noise[step])
                offset += 3 * size
                pull = (theta[i] - guide[i]) / (eta * 9)
                push = lr * (grad + decay * theta[i] + pull)
                velocity[i] = keep * velocity[i] - push + kick * first
                guide_velocity[i] = keep * guide_velocity[i] + lr * pull + kick * second
                theta[i] = theta[i] + velocity[i]
                guide[i] = guide[i] + guide_velocity[i]
            last = lr
            if step in (7, 8, 10, 11):
                kept += [list(theta), list(guide)]
        for found, expected in zip(draws.params, zip(*kept, strict=True), strict=True):
            wanted = torch.stack(expected).numpy()
            np.testing.assert_allclose(found[chain::3], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(draws.heats, heats.repeat(8).numpy())


@pytest.mark.parametrize(("steps", "samples", "burn_in"), [(12, 4, 0.5), (100, 7, 0.3), (5, 5, 0)])
def test_samples_are_due_evenly_up_to_the_last_step(steps, samples, burn_in):
    plan = Plan(**vars(PLAN) | {"steps": steps, "samples": samples, "burn_in": burn_in})
    due = [step for step in range(steps) if plan.is_due(step)]
    assert len(due) == samples
    assert due[-1] == steps - 1
    assert due[0] >= burn_in * steps
    gaps = np.diff(due)
    assert gaps.max() - gaps.min() <= 1


def test_batches_differ_between_chains_and_visit_every_row():
    plan = Plan(**vars(PLAN) | {"batch": 5})
    rows = row_numbers(plan, 20, torch.Generator().manual_seed(0))
    seen = torch.cat([next(rows) for _ in range(4)], dim=1)
    assert all(sorted(chain.tolist()) == list(range(20)) for chain in seen)
    assert not torch.equal(seen[0], seen[1])


def test_each_chain_may_have_its_own_rows_and_prior():
    """A chain of a stacked run equals the same chain when all rows and priors are its own."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(12, 2, generator=generator), torch.randn(12, generator=generator)
    likelihood = Fixed(torch.tensor(0.5))
    rows = torch.stack([torch.arange(6), torch.arange(6) + 3, torch.arange(6) + 6])
    mixed = run(PLAN, x, y, likelihood, rows=rows, priors=torch.tensor([1.0, 2.0, 50.0]))
    for chain, prior in enumerate((1.0, 2.0, 50.0)):
        own = rows[chain]
        alone = run(Plan(**vars(PLAN) | {"prior_variance": prior}), x[own], y[own], likelihood)
        for found, expected in zip(mixed.params, alone.params, strict=True):
            np.testing.assert_allclose(found[chain::3], expected[chain::3], rtol=1e-4, atol=1e-5)


def test_noise_settles_between_its_prior_and_the_errors():
    outputs, targets = torch.zeros(2, 5, 1), torch.full((5,), 3.0)
    for weight, expected in ((0.0, 9.0), (10.0, (10 * 0.5 + 30 * 9.0) / 40), (1e9, 0.5)):
        likelihood = Gaussian(0.5, weight, 30)
        for _ in range(3):
            losses = likelihood.losses(outputs, targets)
        torch.testing.assert_close(losses, torch.full((2,), 4.5))
        assert float(likelihood.heats) == pytest.approx(expected, rel=1e-4)


def test_twins_tell_noise_from_spread():
    """Outputs f + spread·ξ on rows y = f + noise·ε: the difference of errors is the noise."""
    generator = torch.Generator().manual_seed(0)
    noise, spread = torch.tensor([[0.3], [1.0]]), torch.tensor([[0.5], [0.1]])
    rows = 100_000
    # The mean of two posterior draws is off by one more draw of the same spread.
    centre = noise * torch.randn(2, rows, generator=generator)
    centre = centre + spread * torch.randn(2, rows, generator=generator)
    errors = torch.stack([centre + spread * torch.randn(2, rows, generator=generator)] * 2)
    errors[1] = centre + spread * torch.randn(2, rows, generator=generator)
    found = noise_variances(errors)
    # Each row's difference has a standard deviation below 4·(noise + spread)²: 5 standard errors.
    tolerance = 5 * 4 * (noise + spread).square().squeeze() / math.sqrt(rows)
    assert ((found - noise.square().squeeze()).abs() < tolerance).all()
    apart = torch.tensor([[[10.0]], [[-10.0]]])
    assert noise_variances(apart).tolist() == [0.0]


def test_errors_are_grouped_by_twin_and_candidate():
    values = torch.arange(12)[:, None] + torch.tensor([0.0, 0.5])
    found = grouped(values)  # chains in the order candidate, fold, twin
    assert found.shape == (2, 2, 6)
    assert found[0, 0].tolist() == [0.0, 0.5, 2.0, 2.5, 4.0, 4.5]
    assert found[1, 1].tolist() == [7.0, 7.5, 9.0, 9.5, 11.0, 11.5]
    assert grouped(values.expand(5, 12, 2)).shape == (5, 2, 2, 6)


def test_held_out_likelihood_is_that_of_the_mixture():
    errors = np.random.default_rng(0).standard_normal((4, 2, 3))
    found = log_likelihoods(torch.from_numpy(errors))
    for i in (0, 30, 65):
        density = norm.pdf(errors, scale=math.sqrt(GRID[i])).mean(axis=0)
        with np.errstate(divide="ignore"):
            wanted = np.log(density).mean(axis=1)
        finite = np.isfinite(wanted)
        np.testing.assert_allclose(found[i].numpy()[finite], wanted[finite], rtol=1e-4)


@pytest.mark.parametrize("candidates", [(0.02, 1.0, 0.02), (0.02, 0.02, 1.0), (1.0,)])
def test_the_pilot_picks_the_prior_that_can_fit(candidates):
    """A prior of almost no variance cannot hold a straight line, wherever it stands."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(60, 2, generator=generator)
    y = x[:, 0] + 0.1 * torch.randn(60, generator=generator)
    plan = Plan(**vars(PLAN) | {"sizes": (2, 8, 1), "steps": 800, "lr": 0.3, "momentum": 0.9})
    guess = guess_noise(plan, x, y, candidates)
    assert guess.prior_variance == 1.0
    assert 0.05**2 < guess.noise < 0.2**2


def test_heats_follow_the_held_out_rows():
    """Networks that are the zero function: the noise is the variance of the held-out targets."""
    targets = torch.tensor([0.4, -0.4]).repeat(6, 1)
    likelihood = HeldOutNoise(torch.zeros(6, 2, 1), targets, "tanh")
    layers = [torch.zeros(6, 1, 1), torch.zeros(6, 1, 1)]
    for step in range(1000):
        likelihood.watch(step, layers)
    torch.testing.assert_close(likelihood.heats, torch.full((6,), 0.16), rtol=1e-4, atol=0)


def test_folds_hold_out_each_row_once():
    train, held_out = folds(20, torch.Generator().manual_seed(0))
    assert len(set(held_out.flatten().tolist())) == 18
    for used, kept_back in zip(train, held_out, strict=True):
        assert sorted([*used.tolist(), *kept_back.tolist()]) == list(range(20))


def test_held_out_nll_is_that_of_the_average_of_a_chain():
    generator = torch.Generator().manual_seed(2)
    plan = Plan(**vars(PLAN) | {"sizes": (2, 3, 2), "samples": 2})
    draws = Draws(
        [p.numpy() + 0.3 for p in draw_networks((2, 3, 2), torch.ones(6), generator)], np.ones(6)
    )
    draws.params[-2][:] = torch.randn(6, 3, 2, generator=generator).numpy()
    x = torch.randn(8, 2, generator=generator)
    labels = torch.randint(2, (8,), generator=generator)
    rows = torch.tensor([[0, 1, 2], [3, 4, 5], [5, 6, 7]])
    found = held_out_nll(draws, plan, x, labels, rows)
    for chain in range(3):
        total = 0.0
        for row in rows[chain]:
            chances = [
                forward(
                    [torch.from_numpy(p[s : s + 1]) for p in draws.params], x[row][None], "tanh"
                )
                .softmax(dim=-1)[0, 0, labels[row]]
                .item()
                for s in (chain, chain + 3)
            ]
            total -= math.log(sum(chances) / 2) / 3
        assert found[chain].mean().item() == pytest.approx(total, rel=1e-5)
