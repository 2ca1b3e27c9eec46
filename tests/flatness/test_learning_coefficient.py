"""The local learning coefficient against closed forms, quadrature and exact Gibbs draws.

Copies of a small problem are summed (see `learning_references`), so that one chain is thousands.
Where a test compares means over K copies at one time, averaging over draws only helps: the
deviation of one copy over √K bounds the standard error from above.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from entropy_mcmc import flatness
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.flatness.learning_coefficient import estimate
from entropy_mcmc.flatness.localised import partition
from learning_references import (
    crossing_by_quadrature,
    half_square,
    linear_network,
    linear_network_by_gibbs,
    normal_crossing,
    of_population,
    pair_by_quadrature,
)


@pytest.mark.parametrize("part", [0.05, 0.5, 1.2])
def test_quadratic_at_the_step_size_used(part):
    """½ Σ a/(a+γ)/(1 − α(a+γ)/2); `part` is α times the largest curvature, stable below 2."""
    n, gamma, copies = 1000, 20.0, 400
    curvature = torch.tensor([0.0, 0.02, 0.3, 1.0], dtype=torch.float64)
    weight = n / math.log(n)
    a = weight * curvature
    alpha = part / float(a[-1] + gamma)
    got, coefficient = of_population(
        lambda w: (curvature * w.square()).sum(1) / 2,
        copies,
        4,
        n,
        localisation=gamma,
        lr=alpha * weight,
        steps=700,
        burn_in=600,
        chains=2,
        seed=1,
    )
    expected = float((a / (a + gamma) / (1 - alpha * (a + gamma) / 2)).sum() / 2)
    hot = float((1 / (1 - alpha * (a + gamma) / 2)).mean())
    # Seed 1. One copy's energy is Σ a/(a+γ)/(1−…)·χ²/2: four bounds on the error of its mean.
    spread = float((a / (a + gamma) / (1 - alpha * (a + gamma) / 2)).square().sum() / 2) ** 0.5
    assert abs(got - expected) < 4 * spread / math.sqrt(2 * copies)
    assert coefficient.step_size == pytest.approx(alpha)
    assert coefficient.temperature == pytest.approx(math.log(n))
    ratio = coefficient.measured_temperature / coefficient.temperature
    assert abs(ratio - hot) < 4 * hot * math.sqrt(2 / (4 * 2 * copies))
    # Where the value counts: 1.02, 1.22 and 2.1, so that two of the three are rightly too hot.
    share, heat = a / (a + gamma), 1 / (1 - alpha * (a + gamma) / 2)
    share, draws = share / share.sum(), 2 * 100
    counted = float((share * heat).sum())
    # How many directions a node stands for scatters by √(2/copies); the heat over correlated draws.
    by_count = share * (heat - counted) * math.sqrt(2 / copies)
    by_draws = share * (heat - 1) * (2 / (draws * (alpha * (a + gamma)).clamp(max=1))).sqrt()
    room = 4 * float((by_count.square() + by_draws.square()).sum().sqrt())
    assert abs(coefficient.counted_temperature / coefficient.temperature - counted) < room
    assert any("too hot" in text for text in coefficient.warnings) == (counted > 1.1)


def test_standard_error_and_automatic_step():
    """γ small against the curvature: near d/2, within 4 of the reported standard errors."""
    n, copies, gamma = 500, 20, 2.0
    curvature = torch.tensor([0.5, 1.0], dtype=torch.float64)
    got, coefficient = of_population(
        lambda w: (curvature * w.square()).sum(1) / 2,
        copies,
        2,
        n,
        localisation=gamma,
        steps=2000,
        burn_in=1300,
        chains=2,
    )
    a = n / math.log(n) * curvature
    alpha = 0.1 / float(a.max() + gamma)
    assert coefficient.step_size == pytest.approx(alpha, rel=1e-6)
    expected = float((a / (a + gamma) / (1 - alpha * (a + gamma) / 2)).sum() / 2)
    assert abs(got - expected) < 4 * coefficient.standard_error / copies  # seed 0, false alarm 6e-5
    # One draw scatters by √(2/40) of the value; neighbours are correlated over some 20 steps.
    assert 0.01 < coefficient.standard_error / coefficient.value < 0.05
    assert coefficient.trustworthy
    assert coefficient.rhat < 1.05
    assert np.mean(coefficient.chain_values) == pytest.approx(coefficient.value)


def test_mini_batches_heat_by_their_closed_form():
    """One row per step on y = wx + e: c = 1 − α(nβx² + γ), Var w = (2α + (αnβ)²E r²)/(1 − E c²)."""
    n, copies, gamma = 20, 400, 5.0
    draw = torch.Generator().manual_seed(3)
    x = torch.rand(n, 1, generator=draw, dtype=torch.float64) + 0.5
    noise = torch.randn(n, copies, generator=draw, dtype=torch.float64)
    noise -= x * (x.mT @ noise) / (x * x).sum()  # the least squares solution is w = 0
    model = nn.Linear(1, copies, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    weight, lr = n / math.log(n), 0.05
    alpha = lr / weight
    sampling = flatness.LocalSampling(
        localisation=gamma, lr=lr, steps=1200, burn_in=400, chains=2, batch_size=1, seed=2
    )
    coefficient = estimate(model, half_square, (x, noise), sampling)
    h, slope = x.square(), (x * noise).square().mean(0)
    c = 1 - alpha * (weight * h + gamma)
    variance = (2 * alpha + (alpha * weight) ** 2 * slope) / (1 - c.square().mean())
    expected = float((weight * h.mean() * variance).sum() / 2)
    calm = copies / 2 * float(weight * h.mean() / (weight * h.mean() + gamma))
    assert (
        abs(coefficient.value - expected) < 4 * coefficient.standard_error
    )  # seed 2, false alarm 6e-5
    assert expected > calm * 1.15
    assert coefficient.standard_error < 0.03 * expected
    assert any("too hot" in text for text in coefficient.warnings)


@pytest.mark.parametrize("exponents", [(1, 1), (1, 2)])
def test_normal_crossing_at_finite_n(exponents):
    """The exact values are 0.18 and 0.06, not λ = 1/2 and 1/4: n = 1000 is far from the limit."""
    n, gamma, copies, alpha = 1000, 12.0, 4000, 2e-4
    weight = n / math.log(n)
    got, _ = of_population(
        normal_crossing(exponents),
        copies,
        2,
        n,
        localisation=gamma,
        lr=alpha * weight,
        steps=1400,
        burn_in=1000,
        chains=2,
    )
    expected, spread = crossing_by_quadrature(exponents, weight, gamma)
    # Seed 0. The step's own bias, under 1 %, is a third of a standard error.
    assert abs(got - expected) < 4 * spread / math.sqrt(2 * copies)
    assert 4 * spread / math.sqrt(2 * copies) < 0.15 * expected


def test_linear_network_of_rank_zero_at_finite_n():
    """λ = 3/2 in the limit; at n = 1000 and this γ the exact value is 0.74."""
    n, gamma, copies, alpha = 1000, 12.0, 1000, 2e-4
    weight, zero = n / math.log(n), torch.zeros(2, 2, dtype=torch.float64)
    got, _ = of_population(
        linear_network(zero, zero),
        copies,
        8,
        n,
        localisation=gamma,
        lr=alpha * weight,
        steps=1400,
        burn_in=1000,
        chains=2,
    )
    expected, spread = pair_by_quadrature(2, 2, weight, gamma)
    assert abs(got - expected) < 4 * spread / math.sqrt(2 * copies)  # seed 0
    assert 4 * spread / math.sqrt(2 * copies) < 0.09 * expected


def test_linear_network_of_rank_one_at_finite_n():
    """λ = 8 for (5, 5, 3, 1) in the limit; exact Gibbs draws give the value at n = 100."""
    n, gamma, copies, alpha = 100, 5.0, 300, 3e-4
    weight, a = n / math.log(n), torch.zeros(3, 5, dtype=torch.float64)
    a[0, 0] = 1
    truth = a, a.mT.clone()
    got, _ = of_population(
        linear_network(*truth),
        copies,
        30,
        n,
        localisation=gamma,
        lr=alpha * weight,
        steps=1600,
        burn_in=1200,
        chains=2,
    )
    expected, error, spread = linear_network_by_gibbs(
        truth, weight, gamma, chains=200, steps=200, seed=0
    )
    tolerance = 4 * math.hypot(spread / math.sqrt(2 * copies), error)  # seed 0, false alarm 6e-5
    assert abs(got - expected) < tolerance
    assert tolerance < 0.09 * expected


class Rescaled:
    """A trained ReLU network, and the same function with its layers scaled by c and 1/c."""

    c = 8.0

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)).double()
        x = torch.randn(60, 2, dtype=torch.float64)
        with torch.no_grad():
            self.data = x, self.model(x)
            self.other = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)).double()
            self.other.load_state_dict(self.model.state_dict())
            for p in self.other[0].parameters():
                p.mul_(self.c)
            self.other[2].weight.div_(self.c)
        self.scale = {"0.weight": self.c, "0.bias": self.c, "2.weight": 1 / self.c}
        self.sampling = flatness.LocalSampling(
            localisation=50.0, lr=0.01, steps=800, chains=2, batch_size=None
        )
        self.plain = self.of(self.model)

    def of(self, model, **changes):
        return estimate(model, half_square, self.data, replace(self.sampling, **changes))


@pytest.fixture(scope="module")
def net():
    return Rescaled()


def test_rescaling_layers_changes_an_estimate_with_isotropic_localisation(net):
    torch.testing.assert_close(net.other(net.data[0]), net.model(net.data[0]))
    scaled = net.of(net.other)
    error = math.hypot(net.plain.standard_error, scaled.standard_error)
    assert net.plain.trustworthy
    # Curvatures are up to 64 times as large: with this lr the value is a fifth too large.
    (text,) = scaled.warnings
    assert "too hot" in text
    heat = scaled.counted_temperature / scaled.temperature
    assert abs(net.plain.value - scaled.value / heat) > 8 * error


def test_rescaling_layers_with_gamma_and_preconditioner_changes_nothing(net):
    """The chain in u is the same, step for step; only rounding differs."""
    scaled = net.of(net.other, scale=net.scale)
    assert scaled.value == pytest.approx(net.plain.value, rel=1e-6)
    assert scaled.measured_temperature == pytest.approx(net.plain.measured_temperature, rel=1e-6)


def test_rms_scale_is_invariant_under_rescaling(net):
    options = {"scale": "rms", "lr": "auto", "localisation": 2.0, "steps": 200, "batch_size": 20}
    plain, scaled = net.of(net.model, **options), net.of(net.other, **options)
    assert scaled.lr == pytest.approx(plain.lr, rel=1e-4)
    assert scaled.value == pytest.approx(plain.value, rel=1e-3)


class RescaledNeurons(Rescaled):
    """The same function with each hidden neuron multiplied by a factor, which is divided again."""

    factors = torch.tensor([8, 1 / 8, 3, 0.2], dtype=torch.float64)

    def __init__(self):
        super().__init__()
        self.other.load_state_dict(self.model.state_dict())
        with torch.no_grad():
            self.other[0].weight.mul_(self.factors[:, None])
            self.other[0].bias.mul_(self.factors)
            self.other[2].weight.div_(self.factors)


@pytest.fixture(scope="module")
def neurons():
    return RescaledNeurons()


def test_weight_scale_is_invariant_under_rescaling_of_neurons(neurons, net):
    """Step for step the same chain in u; "rms" is not, as its docstring says."""
    torch.testing.assert_close(neurons.other(neurons.data[0]), neurons.model(neurons.data[0]))
    options = {"lr": "auto", "localisation": 2.0, "steps": 200, "batch_size": 20}
    for pair in (neurons, net):
        plain = pair.of(pair.model, scale="weight", **options)
        scaled = pair.of(pair.other, scale="weight", **options)
        assert plain.value > 0.1
        assert scaled.lr == pytest.approx(plain.lr, rel=1e-9)
        assert scaled.value == pytest.approx(plain.value, rel=1e-9)
        assert scaled.effect.values == pytest.approx(plain.effect.values, rel=1e-9)
    by_tensor = [neurons.of(m, scale="rms", **options) for m in (neurons.model, neurons.other)]
    assert by_tensor[1].value > 2 * by_tensor[0].value


def test_weight_scale_by_the_closed_form():
    """½ Σ a/(a+γ) with a = nβ·h·w²: a weight of 0 stays there and counts nothing."""
    n, gamma, copies = 100, 5.0, 50
    weights = torch.tensor([2.0, 1.0, 0.0, -0.5], dtype=torch.float64)
    model = nn.Linear(4, copies, bias=False, dtype=torch.float64)
    model.weight.data.copy_(weights)
    x = torch.eye(4, dtype=torch.float64).repeat(n // 4, 1)
    sampling = flatness.LocalSampling(
        localisation=gamma, scale="weight", steps=400, burn_in=200, chains=2, batch_size=None
    )
    got = estimate(model, half_square, (x, model(x).detach()), sampling)
    a = n / math.log(n) / 4 * weights.square()
    ratio = a / (a + gamma) / (1 - got.step_size * (a + gamma) / 2)
    expected = copies * float(ratio.sum() / 2)
    # Seed 0: as above, the deviation of one copy over √(2 copies) bounds the error of its mean.
    tolerance = 4 * copies * float(ratio.square().sum() / 2) ** 0.5 / math.sqrt(2 * copies)
    assert abs(got.value - expected) < tolerance < 0.4 * expected


def test_weight_scale_of_a_network_of_zeros_is_refused():
    model = nn.Linear(2, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    sampling = flatness.LocalSampling(steps=20, scale="weight")
    with pytest.raises(ConfigError, match="all weights are 0; use scale=None"):
        estimate(model, half_square, (torch.randn(9, 2), torch.zeros(9, 1)), sampling)


def test_scale_of_single_weights_and_of_a_zero_tensor():
    model = nn.Linear(2, 1, dtype=torch.float64)
    nn.init.zeros_(model.bias)
    data = torch.randn(30, 2, dtype=torch.float64), torch.zeros(30, 1, dtype=torch.float64)
    sampling = flatness.LocalSampling(steps=20, chains=2, scale="rms")
    assert math.isfinite(estimate(model, half_square, data, sampling).value)
    each = {"weight": torch.tensor([[1.0, 3.0]])}
    assert math.isfinite(estimate(model, half_square, data, replace(sampling, scale=each)).value)


def test_model_and_data_are_left_alone(problem, unchanged):
    unchanged(problem.model)
    sampling = flatness.LocalSampling(steps=20, chains=2, batch_size=7)
    first = estimate(problem.model, problem.loss, problem.data, sampling)
    again = estimate(problem.model, problem.loss, problem.data, sampling)
    other = estimate(problem.model, problem.loss, problem.data, replace(sampling, seed=1))
    assert first == again
    assert first.value != other.value
    assert first.loss == pytest.approx(float(problem.flat_loss(problem.flat())))


def test_a_loader_keeps_its_batches(plain):
    loader = [(plain.x[:13], plain.y[:13]), (plain.x[13:], plain.y[13:])]
    parts = partition(loader, 5, torch.device("cpu"), 0)
    assert parts.sizes == [13, 7]
    drawn = torch.tensor(parts.draw(4000, 0))
    # 13 of 20 rows: 0.65 ± 0.0075, four standard errors.
    assert abs(float((drawn == 0).double().mean()) - 0.65) < 0.03
    sampling = flatness.LocalSampling(steps=20, chains=2)
    coefficient = estimate(plain.model, plain.loss, loader, sampling)
    assert coefficient.num_data == 20
    assert coefficient.loss == pytest.approx(float(plain.flat_loss(plain.flat())))


def test_bfloat16_weights_move_in_single_precision():
    model = nn.Linear(3, 1).to(torch.bfloat16)
    x = torch.randn(40, 3).to(torch.bfloat16)
    data = x, model(x).detach()
    sampling = flatness.LocalSampling(steps=30, chains=2, localisation=10.0)
    before = model.weight.detach().clone()
    coefficient = estimate(model, lambda o, y: (o - y).float().square().mean() / 2, data, sampling)
    assert 0 < coefficient.value < 4
    assert torch.equal(model.weight, before)
