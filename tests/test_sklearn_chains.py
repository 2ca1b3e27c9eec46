"""The chains behind the estimators: against plain loops written from the equations."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from entropy_mcmc.sklearn.chain_plan import Plan
from entropy_mcmc.sklearn.estimator_chains import Table, no_denormals, row_numbers, run
from entropy_mcmc.sklearn.frozen_networks import FrozenNetworks
from entropy_mcmc.sklearn.likelihood import Categorical, Gaussian
from entropy_mcmc.sklearn.networks import ACTIVATIONS, Architecture, backward, forward

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


def networks(sizes, activation, count=3):
    """Random weights of some networks, in float64, and their form."""
    form = Architecture(sizes, activation)
    generator = torch.Generator().manual_seed(0)
    flat = form.draw(torch.ones(count), generator).double()
    return form, flat + 0.3 * torch.randn(flat.shape, generator=generator, dtype=flat.dtype)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("sizes", [(4, 6, 5, 2), (4, 2)])
def test_stacked_forward_is_each_network_alone(name, sizes):
    form, flat = networks(sizes, name)
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    bend, gain, _ = ACTIVATIONS[name]
    outputs = forward(form, form.layers(flat), x[None])[0]
    for chain, out in enumerate(outputs):
        hidden = x
        for i, (weight, bias) in enumerate(form.layers(flat)):
            scale = (gain if i else 1) / weight.shape[2] ** 0.5
            hidden = hidden @ weight[chain].T * scale + bias[chain, :, 0]
            hidden = bend(hidden) if i < len(sizes) - 2 else hidden
        torch.testing.assert_close(out.T, hidden)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("sizes", [(4, 6, 5, 2), (4, 2)])
@pytest.mark.parametrize("own_rows", [False, True])
def test_gradients_are_those_of_autograd(name, sizes, own_rows):
    form, flat = networks(sizes, name)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3 if own_rows else 1, 7, 4, generator=generator, dtype=torch.float64)
    pull = torch.randn(3, 2, 7, generator=generator, dtype=torch.float64)
    _, trace = forward(form, form.layers(flat), x)
    actual = torch.full_like(flat, math.nan)
    backward(form, form.layers(flat), x, trace, pull, form.layers(actual))
    leaf = flat.clone().requires_grad_()
    (forward(form, form.layers(leaf), x)[0] * pull).sum().backward()
    torch.testing.assert_close(actual, leaf.grad)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("sizes", [(4, 50, 50, 3), (4, 50, 2), (4, 2)])
def test_frozen_networks_are_the_same_networks(name, sizes):
    """In single precision, of weights up to those of the broadest prior; 2e-6 of the largest."""
    form, flat = networks(sizes, name)
    generator = torch.Generator().manual_seed(1)
    flat = 10 * flat
    x = torch.randn(100, 4, generator=generator, dtype=torch.float64)
    frozen = FrozenNetworks(form, flat.float(), 64)
    parts = [frozen.outputs(part.float()).clone() for part in x.split(64)]
    expected = forward(form, form.layers(flat), x[None])[0]
    torch.testing.assert_close(
        torch.cat(parts, dim=2).double(), expected, rtol=0, atol=2e-6 * float(expected.abs().max())
    )


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gains_keep_the_second_moment(name):
    bend, gain, _ = ACTIVATIONS[name]
    z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    moment = torch.trapezoid(density * (gain * bend(z.clone())).square(), z)
    assert 0.85 < moment < 1.15


@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_are_those_of_the_mean_loss_of_each_chain(weighted):
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(2, 3, 5, generator=generator).requires_grad_()
    weights = torch.rand(2, 5, generator=generator) if weighted else None
    each = torch.ones(2, 5) if weights is None else weights
    labels = torch.randint(3, (2, 5), generator=generator)
    offset = torch.tensor([0.1, 0.7, -0.3])
    entropy = F.cross_entropy(outputs + offset[:, None], labels, reduction="none")
    (entropy * each).mean(dim=1).sum().backward()
    hot = F.one_hot(labels, 3).float()
    slopes = Categorical(offset).slopes(outputs.detach(), hot, weights)
    torch.testing.assert_close(slopes, outputs.grad)
    line = torch.randn(2, 1, 5, generator=generator).requires_grad_()
    targets = torch.randn(2, 5, 1, generator=generator)
    half = 0.5 * (line - targets.mT).square().squeeze(1)
    (half * each).mean(dim=1).sum().backward()
    slopes = Gaussian(1.0, 0.0, 5).slopes(line.detach(), targets, weights)
    torch.testing.assert_close(slopes, line.grad)


def test_run_is_the_rule_on_the_posterior_energy():
    """Chains in one matrix equal one network at a time, written straight from the rule."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(9, 2, generator=generator), torch.randn(9, generator=generator)
    heats, priors = torch.tensor([0.25, 0.5, 2.0]), torch.tensor([0.3, 2.0, 50.0])
    temperatures = torch.tensor([1.0, 0.02, 0.5])
    weights = torch.tensor([0.5, 1.5, 1.0] * 3)
    table = Table(x, y[:, None], weights, num_data=18.0)
    draws = run(PLAN, table, Fixed(heats), priors=priors, temperatures=temperatures)
    generator = torch.Generator().manual_seed(PLAN.seed)
    start = PLAN.architecture.draw(torch.tensor([0.3**0.5, 1.0, 1.0]), generator)
    theta, velocity, last, kept = start, torch.zeros_like(start), None, []
    decay = (heats / (18 * priors))[:, None]
    spread = (PLAN.horizon * PLAN.lr / 18 * temperatures * heats).sqrt()[:, None]
    for step in range(PLAN.steps):
        lr = PLAN.lr * (0.05 + (1 - 0.05) * (1 + math.cos(math.pi * step / PLAN.steps)) / 2)
        keep = PLAN.momentum * math.sqrt(lr / (last or lr))
        leaf = theta.clone().requires_grad_()
        w1, b1 = leaf[:, :6].reshape(3, 3, 2), leaf[:, 6:9]
        w2, b2 = leaf[:, 9:12], leaf[:, 12:]
        hidden = torch.tanh(torch.einsum("coi,ri->cro", w1, x) / 2**0.5 + b1[:, None])
        outputs = torch.einsum("cro,co->cr", hidden, w2) * 1.6 / 3**0.5 + b2
        (((outputs - y) ** 2 * weights).mean(dim=1) / 2).sum().backward()
        velocity = keep * velocity - lr * (leaf.grad + decay * theta)
        if step >= 3:  # half of burn-in
            kick = (2 * lr * temperatures * heats * (1 - PLAN.momentum) / 18).sqrt()[:, None]
            velocity = velocity + kick * torch.randn(theta.shape, generator=generator)
        theta, last = theta + velocity, lr
        if step in (7, 8, 10, 11):
            kept += [theta, theta + spread * torch.randn(theta.shape, generator=generator)]
    torch.testing.assert_close(draws.flat, torch.stack(kept), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(draws.heats, heats.expand(8, 3))


def test_denormal_numbers_are_flushed_and_the_setting_restored():
    tiny = torch.tensor(1e-40)
    with no_denormals():
        assert (tiny * 1).item() == 0
    assert (tiny * 1).item() > 0
    torch.set_flush_denormal(True)
    with no_denormals():
        pass
    assert (tiny * 1).item() == 0
    torch.set_flush_denormal(False)


@pytest.mark.parametrize(("steps", "samples", "burn_in"), [(12, 4, 0.5), (100, 7, 0.3), (5, 5, 0)])
def test_samples_are_due_evenly_up_to_the_last_step(steps, samples, burn_in):
    plan = Plan(**vars(PLAN) | {"steps": steps, "samples": samples, "burn_in": burn_in})
    due = [step for step in range(steps) if plan.is_due(step)]
    assert len(due) == samples
    assert due[-1] == steps - 1
    assert due[0] >= burn_in * steps
    assert plan.is_noisy(due[0])
    gaps = np.diff(due)
    assert gaps.max() - gaps.min() <= 1


def test_batches_differ_between_chains_and_visit_every_row_equally():
    plan = Plan(**vars(PLAN) | {"batch": 6})
    rows = row_numbers(plan, 20, torch.Generator().manual_seed(0))
    batches = [next(rows) for _ in range(10)]  # three passes
    assert all(len(set(chain.tolist())) == 6 for batch in batches for chain in batch)
    seen = torch.cat(batches, dim=1)
    assert all(torch.bincount(chain).tolist() == [3] * 20 for chain in seen)
    assert not torch.equal(seen[0], seen[1])


def test_each_chain_may_have_its_own_rows_and_prior():
    """A chain of a stacked run equals the same chain when all rows and priors are its own."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(12, 2, generator=generator), torch.randn(12, 1, generator=generator)
    likelihood = Fixed(torch.tensor(0.5))
    rows = torch.stack([torch.arange(6), torch.arange(6) + 3, torch.arange(6) + 6])
    mixed = run(PLAN, Table(x, y), likelihood, rows=rows, priors=torch.tensor([1.0, 2.0, 50.0]))
    for chain, prior in enumerate((1.0, 2.0, 50.0)):
        own = rows[chain]
        plan = Plan(**vars(PLAN) | {"prior_variance": prior})
        alone = run(plan, Table(x[own], y[own]), likelihood)
        torch.testing.assert_close(mixed.flat[:, chain], alone.flat[:, chain], rtol=1e-4, atol=1e-5)


def test_noise_settles_between_its_prior_and_the_errors():
    outputs, targets = torch.zeros(2, 1, 5), torch.full((1, 5, 1), 3.0)
    for weight, expected in ((0.0, 9.0), (10.0, (10 * 0.5 + 30 * 9.0) / 40), (1e9, 0.5)):
        likelihood = Gaussian(0.5, weight, 30)
        for _ in range(3):
            likelihood.slopes(outputs, targets, None)
        assert float(likelihood.heats) == pytest.approx(expected, rel=1e-4)


def test_kept_networks_do_not_move_on():
    table = Table(torch.ones(4, 2), torch.ones(4, 1))
    draws = run(PLAN, table, Fixed(torch.tensor(1.0)))
    assert len({tuple(flat.flatten().tolist()) for flat in draws.flat}) == len(draws.flat)
