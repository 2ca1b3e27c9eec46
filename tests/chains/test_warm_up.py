"""What `chains.sample` costs in memory and gradients, and how hot mini-batches make it."""

import math

import pytest
import torch
from arviz_stats.base import array_stats
from torch.utils._python_dispatch import TorchDispatchMode

from entropy_mcmc import chains
from entropy_mcmc.chains import curvature, gradient_noise, in_parts, log_density, warm_up

# Memory and gradients.


class Largest(TorchDispatchMode):
    """The numbers of the largest tensor that is made under it."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.numel())
        return made


def flat_regression(number):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(number, 2, generator=g)
    return x, x.sum(1) + torch.randn(number, generator=g)


@pytest.mark.parametrize("batch_size", [None, 50])
def test_memory_does_not_grow_with_draws_times_rows(batch_size, monkeypatch):
    """240 draws, and 68 states of the warm-up, of 3,000 rows: 720,000 and 204,000 numbers."""
    monkeypatch.setattr(in_parts, "NUMBERS", 30_000)
    with Largest() as seen:
        draws = chains.sample(
            lambda t, x, y: -((y - x @ t["w"]) ** 2) / 2,
            {"w": torch.zeros(2)},
            data=flat_regression(3000),
            log_prior=lambda t: -t["w"].square().sum(),
            batch_size=batch_size,
            **{"draws": 60, "thin": 1, "warm_up_steps": 100, "seed": 0, "compile": False},
        )
    assert draws.log_density.shape == (4, 60)
    assert seen.numbers <= 30_000  # four chains' gradients of all rows are 24,000


def test_parts_are_the_whole(monkeypatch):
    states = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    calls = []

    def function(z):
        calls.append(z)
        return (z[:, None] * torch.ones(3, 10)).sum().cos()

    whole = torch.func.vmap(function)(states)
    monkeypatch.setattr(in_parts, "NUMBERS", 320)
    calls.clear()
    torch.testing.assert_close(in_parts.InParts(function)(states), whole)
    assert len(calls) == 1 + 10  # one makes 30 + 30 + 1 + 1 numbers, so that 5 come at a time


class Counted(torch.autograd.Function):
    """Counts the numbers whose gradient is taken, under any depth of vmap."""

    numbers = 0
    generate_vmap_rule = False

    @staticmethod
    def forward(x):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, slope):
        return Tick.apply(slope)

    @staticmethod
    def vmap(info, in_dims, x):
        return Counted.apply(x), in_dims[0]


class Tick(torch.autograd.Function):
    @staticmethod
    def forward(x):
        Counted.numbers += x.numel()
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, x):
        return Tick.apply(x), in_dims[0]


@pytest.mark.parametrize("batch_size", [None, 50])
def test_all_gradients_are_counted(batch_size):
    """In rows, by a function inside of log_density that is told of every gradient."""
    Counted.numbers = 0
    draws = chains.sample(
        lambda t, x, y: -(Counted.apply(y - x @ t["w"]) ** 2) / 2,
        {"w": torch.zeros(2)},
        data=flat_regression(300),
        log_prior=lambda t: -t["w"].square().sum(),
        batch_size=batch_size,
        **{"draws": 60, "thin": 1, "warm_up_steps": 100, "seed": 0, "compile": False},
    )
    counted = Counted.numbers / (4 * (batch_size or 300))
    assert draws.gradients == math.ceil(counted)


def test_the_warm_up_looks_at_curvature_sparingly():
    """Of 1,000 steps; before, it took 5,200 more gradients of all rows for each chain."""
    draws = chains.sample(
        lambda t: -t["x"].square().sum() / 2,
        {"x": torch.zeros(3)},
        **{"draws": 10, "thin": 1, "warm_up_steps": 1000, "seed": 0},
    )
    assert draws.gradients - 1010 < 300


# Curvature.


def quadratics(*matrices):
    """Slopes of states 0, 1, …, each with a Hessian of its own."""
    hessians = torch.stack(matrices)

    def slopes(states):
        which = states[:, -1].round().long()
        own = torch.einsum("sij,sj->si", hessians[which], states[:, :-1])
        return torch.cat([own, torch.zeros(len(states), 1)], dim=1)

    return slopes


@pytest.mark.parametrize("seed", range(5))
def test_the_largest_curvature_is_found_at_one_state_of_many(seed):
    """40 states, 100 parameters that do not depend on each other, one of them narrow at one state.

    Four iterations at the last states are for a gap of 2 between eigenvalues.
    """
    g = torch.Generator().manual_seed(seed)
    diagonals = 1 + torch.rand(40, 100, generator=g)
    diagonals[23, 11] = 4.0
    states = torch.zeros(40, 101)
    states[:, -1] = torch.arange(40)
    slopes = quadratics(*map(torch.diag, diagonals))
    size, along = curvature.largest(slopes, states, torch.ones(101) / 101**0.5)
    assert size == pytest.approx(4.0, rel=0.02)
    assert int(along.abs().argmax()) == 11


def test_a_known_direction_saves_iterations():
    """Two eigenvalues 5 % apart: from their own directions one iteration is enough."""
    matrix = torch.diag(torch.tensor([1.0, 1.05] + [0.5] * 20))
    known = torch.zeros(23)
    known[1] = 100.0
    size, _ = curvature.largest(quadratics(matrix), torch.zeros(1, 23), known, last=2)
    assert size == pytest.approx(1.05, rel=1e-3)


# Mini-batches.


def correlated(number, inputs, correlation):
    g = torch.Generator().manual_seed(0)
    common = torch.randn(number, 1, generator=g)
    own = torch.randn(number, inputs, generator=g)
    x = correlation**0.5 * common + (1 - correlation) ** 0.5 * own
    return x, x.mean(1) + torch.randn(number, generator=g)


def likelihood(t, x, y):
    return -((y - x @ t["w"]) ** 2) / 2


def prior(t):
    return -t["w"].square().sum() / 200


def exact(x, y):
    """Mean and covariance of the weights, from the normal equations."""
    x, y = x.double(), y.double()
    covariance = torch.linalg.inv(x.T @ x + torch.eye(x.shape[1]) / 100)
    return covariance @ (x.T @ y), covariance


def noise_of_batches(x, y, w, scale, batch_size):
    """N²/B·Cov of the gradients of rows, in units of the scale."""
    slopes = x.double() * (y.double() - x.double() @ w)[:, None] * scale
    return torch.cov(slopes.T, correction=0) * len(x) ** 2 / batch_size


@pytest.mark.parametrize(
    ("rows", "inputs", "correlation", "rel"),
    [
        # 4,096 gradients: a standard error of √((κ−1)/4096) of a variance, 5 % for a kurtosis κ of
        # 9, as products of normals have; 4.5 of them. The last: also too high by up to 1.22.
        (400, 20, 0.8, 0.22),
        (20_000, 2, 0.5, 0.22),
        (20_000, 100, 0.3, 0.22),
        (20_000, 100, 0.0, 0.40),
    ],
)
def test_the_largest_variance_of_mini_batch_gradients(rows, inputs, correlation, rel):
    x, y = correlated(rows, inputs, correlation)
    density, _ = log_density.build(likelihood, prior, {"w": torch.zeros(inputs)}, 1, {}, (x, y))
    w, covariance = exact(x, y)
    scale = covariance.diagonal().sqrt()
    noise = noise_of_batches(x, y, w, scale, 50)
    states = (w / scale).float().expand(4, inputs)
    found = gradient_noise.largest_variance(density, states, scale.float(), 50, seed=1)
    assert found == pytest.approx(float(torch.linalg.eigvalsh(noise)[-1]), rel=rel)
    if correlation:
        assert found > 1.3 * float(noise.diagonal().max())


def test_more_parameters_than_gradients_give_no_absurd_variance():
    """Equal variances of 1, 800 parameters, 2 · 100 gradients: 1 + √8 = 3.8, to 10 % for chance.

    The largest eigenvalue of the sample is (1+√4)² = 9, and that of a half (1+√8)² = 15.
    """
    g = torch.Generator().manual_seed(0)
    samples = torch.randn(4, 50, 800, generator=g)
    found = float(gradient_noise.top_variance(samples - samples.mean(dim=1, keepdim=True)))
    assert 1 <= found <= 1.1 * (1 + 8**0.5)


def test_mini_batches_heat_no_direction_of_correlated_parameters():
    """Eight inputs of correlation 0.8: the variance along the stiffest direction of the posterior.

    Its largest eigenvalue of V is 6 times the largest diagonal; of that alone 5 % left 25 % here.
    """
    x, y = correlated(100, 8, 0.8)
    draws = chains.sample(
        likelihood,
        {"w": torch.zeros(8)},
        data=(x, y),
        log_prior=prior,
        batch_size=50,
        chains=60,
        **{"draws": 200, "warm_up_steps": 1000, "thin": 20, "seed": 0, "compile": False},
    )
    w, covariance = exact(x, y)
    noise = noise_of_batches(x, y, w, draws.tuning.scale.double(), 50)
    tuning = draws.tuning
    heat = tuning.step_size * torch.linalg.eigvalsh(noise)[-1] / (2 * (1 - tuning.momentum))
    assert heat == pytest.approx(tuning.heat, rel=0.22)
    assert tuning.heat <= warm_up.HEAT
    values, directions = torch.linalg.eigh(covariance)
    along = (draws["w"].double() - w) @ directions[:, 0] / values[0].sqrt()
    ess = float(array_stats.ess(along.square().numpy(), chain_axis=0, draw_axis=1, method="mean"))
    error = math.sqrt(2 / ess)
    print(along.square().mean(), error, tuning)
    assert abs(float(along.square().mean()) - 1 - tuning.heat) < 4.5 * error
    assert 4.5 * error < 0.2  # enough to see the heat that there was
