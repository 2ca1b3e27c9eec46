"""θ's own temperature, from gradients at pairs of samples: against closed forms.

Bounds of 4 standard errors: false-alarm rate 6e-5 per comparison; seeds are fixed.
"""

import math
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from entropy_mcmc import SGLD, EntropyMCMC, Posterior, theory
from entropy_mcmc.diagnostics import (
    Thermometer,
    diagnose,
    judge,
    pair_temperature,
    read_pair_temperature,
)
from entropy_mcmc.diagnostics.gradient_noise import Estimate
from entropy_mcmc.diagnostics.pair_temperature import PairTemperature, choose_samples
from entropy_mcmc.diagnostics.verdicts import on_theta
from entropy_mcmc.errors import ConfigError, StateError

SIZE, CURVATURE = 4000, 1.0


def chain(lr, make=SGLD, count=12, apart=40, **options):
    """Draws of a chain on curvature 1 at N = 1, T = 1, far apart; its sampler and thermometer."""
    param = nn.Parameter(torch.zeros(SIZE))
    sampler = make([param], lr=lr, num_data=1, temperature=1.0, seed=0, **options)
    thermometer = Thermometer(sampler) if make is EntropyMCMC else None
    rows = []
    for step in range(1, (count + 5) * apart + 1):
        param.grad = CURVATURE * param.detach().clone()
        sampler.step()
        if thermometer is not None:
            thermometer.step()
        if step > 5 * apart and not step % apart:
            rows.append(param.detach().clone())
            if thermometer is not None:
                thermometer.read(curvature=CURVATURE)
    return torch.stack(rows), thermometer


@pytest.mark.parametrize(("factor", "lr"), [(1.2, 1 / 3), (2.05, 2 - 2 / 2.05)])
def test_a_too_large_lr_is_read_exactly(factor, lr):
    """T/(1−αh/2) of SGLD; the advice, followed, leaves at most 5 %."""
    draws, _ = chain(lr)
    reading = pair_temperature(draws, CURVATURE * draws, [0] * len(draws))
    assert theory.sgld_variance(lr, CURVATURE) == pytest.approx(factor)
    assert abs(reading.reading.value - factor) < 4 * reading.reading.error
    assert reading.reading.error < 0.02
    assert reading.verdict(1.0) == "hot"
    smaller = lr / reading.lr_divisor(1.0)
    assert theory.sgld_variance(smaller, CURVATURE) == pytest.approx(1.05, abs=0.01)


def test_it_sees_what_the_coupling_thermometer_cannot():
    """Weak coupling, αh = 0.9: θ has 1.8 times its variance, and the coupling is right."""
    draws, thermometer = chain(0.9, EntropyMCMC, eta=100.0, apart=200)
    assert judge(thermometer.readings).kind == "right"
    reading = pair_temperature(draws, CURVATURE * draws, [0] * len(draws))
    moments = theory.euler_covariance(0.9, CURVATURE, 100.0)
    assert abs(reading.reading.value - CURVATURE * moments.theta) < 4 * reading.reading.error
    assert reading.verdict(1.0) == "hot"


def test_noisy_gradients_widen_the_error_and_do_not_shift():
    draws, _ = chain(0.05, apart=80)
    noise = 3 * torch.randn(draws.shape, generator=torch.Generator().manual_seed(1))
    sure = pair_temperature(draws, draws, [0] * len(draws)).reading
    unsure = pair_temperature(draws, draws + noise, [0] * len(draws)).reading
    assert unsure.error > 2 * sure.error
    assert abs(unsure.value - sure.value) < 4 * unsure.error


def test_close_draws_read_one_minus_their_correlation():
    """Pairs of a cycle with correlation 0.95; draws of different cycles are independent."""
    g = torch.Generator().manual_seed(0)
    centres = 0.95**0.5 * torch.randn(4, SIZE, generator=g)
    draws = centres.repeat_interleave(3, 0) + 0.05**0.5 * torch.randn(12, SIZE, generator=g)
    cycles = [i // 3 for i in range(12)]
    reading = pair_temperature(draws, draws, cycles)
    assert reading.within
    assert abs(reading.reading.value - 0.05) < 4 * reading.reading.error
    assert reading.verdict(1.0) == "near copies"
    assert reading.verdict(0.05) == "right"
    alone = pair_temperature(draws[::3], draws[::3], cycles[::3])
    assert not alone.within
    assert alone.verdict(1.0) == "right"


def test_a_reading_decided_below_t_is_not_called_right():
    """0.0056 ± 0.0023 at T = 0.02, as a run of digits had it: six errors away."""
    low = PairTemperature(Estimate(0.0056, 0.0023), 7, 8, 16, True)
    (said,) = on_theta(low, 0.02)
    assert low.verdict(0.02) == "close"
    assert said.severity == "note"
    assert "28% of the spread" in said.text
    agrees = PairTemperature(Estimate(0.018, 0.0023), 7, 8, 16, True)
    (said,) = on_theta(agrees, 0.02)
    assert (said.severity, "agrees with T" in said.text) == ("ok", True)
    vague = PairTemperature(Estimate(0.018, 0.01), 7, 8, 16, True)
    (said,) = on_theta(vague, 0.02)
    assert (said.severity, "too uncertain" in said.text) == ("note", True)


def test_half_correlated_draws_are_told_and_independent_ones_are_not():
    """Rate 1 % of "close" for independent draws: more than 6 of 200 once in 200 tries."""
    g = torch.Generator().manual_seed(0)
    kinds = {0.0: Counter(), 0.5: Counter()}
    for _ in range(200):
        for correlation, counted in kinds.items():
            common = correlation**0.5 * torch.randn(1, 1000, generator=g)
            draws = common + (1 - correlation) ** 0.5 * torch.randn(8, 1000, generator=g)
            counted[pair_temperature(draws, draws, [0] * 8).verdict(1.0)] += 1
    assert kinds[0.0]["right"] >= 194
    assert kinds[0.5]["close"] >= 194


def test_false_alarms_of_a_chain_at_its_temperature():
    """Rate 1 %: more than 6 of 200 would happen once in 200 tries; d = 50, four draws."""
    g = torch.Generator().manual_seed(0)
    hot = 0
    for _ in range(200):
        draws = torch.randn(4, 50, generator=g)
        hot += pair_temperature(draws, draws, [0] * 4).verdict(1.0) == "hot"
    assert hot <= 6


def linear_posterior(path, spread=1.0):
    """Draws of the exact posterior of a linear regression, times `spread`; loss, batches, N, λ."""
    g = torch.Generator().manual_seed(0)
    x, rows, decay = torch.randn(256, 40, generator=g), 256, 0.1
    y = torch.randn(256, generator=g)
    precision = (x.T @ x + decay * rows * torch.eye(40)).double()
    mean = torch.linalg.solve(precision, (x.T @ y).double())
    factor = torch.linalg.cholesky(torch.linalg.inv(precision))
    model = nn.Linear(40, 1, bias=False)
    posterior = Posterior.create(path, model, likelihood="regression")
    for step in range(12):
        with torch.no_grad():
            noise = torch.randn(40, generator=g, dtype=torch.float64)
            model.weight.copy_((mean + spread**0.5 * factor @ noise)[None].float())
        posterior.collect(step=step, cycle=step // 6)

    def batches():
        while True:
            chosen = torch.randint(256, (64,), generator=g)
            yield x[chosen], y[chosen]

    def loss(output, target):
        return (output[:, 0] - target).square().mean() / 2

    return posterior, loss, batches(), {"num_data": rows, "weight_decay": decay}, x


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_a_stored_posterior_is_read_from_minibatches(tmp_path, spread):
    """Prior included; the model is left alone; the diagnosis says it, with its cost."""
    posterior, loss, batches, energy, x = linear_posterior(tmp_path / "a", spread)
    before = posterior.model.weight.clone()
    reading = read_pair_temperature(posterior, loss, batches, per_sample=20, **energy)
    assert torch.equal(before, posterior.model.weight)
    assert abs(reading.reading.value - spread) < 4 * reading.reading.error
    assert (reading.draws, reading.batches, reading.freedom) == (12, 20, 10)
    told = diagnose(posterior, x, theta_temperature=reading, temperature=1.0)
    words = [a for a in told.advice if "12 samples × 20 mini-batch gradients" in a.text]
    assert words[0].severity == ("ok" if spread == 1 else "warning")
    assert ("divide lr by" in words[0].change) == (spread == 2)


def test_each_parameter_may_have_a_prior_of_its_own(tmp_path):
    """One number for each gives what one number for all gives; another prior is another reading."""
    readings = []
    for number, decay in enumerate((0.3, [0.3], [0.0])):
        posterior, loss, batches, energy, _ = linear_posterior(tmp_path / str(number))
        options = {**energy, "weight_decay": decay}
        readings.append(read_pair_temperature(posterior, loss, batches, **options).reading.value)
    assert readings[0] == readings[1] != readings[2]
    with pytest.raises(ValueError, match="zip"):
        read_pair_temperature(posterior, loss, batches, **{**energy, "weight_decay": [0.1, 0.2]})


def test_wrong_use_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="one row for each draw"):
        pair_temperature(torch.zeros(3, 2), torch.zeros(3, 2), [0, 0])
    with pytest.raises(StateError, match="at least 3 draws"):
        pair_temperature(torch.zeros(2, 2), torch.zeros(2, 2), [0, 0])
    posterior, loss, batches, energy, _ = linear_posterior(tmp_path / "a")
    with pytest.raises(ConfigError, match="mini-batches for every sample"):
        read_pair_temperature(posterior, loss, [next(batches)], **energy)


def test_samples_are_spread_over_cycles():
    """At most `most`, two or more in each cycle, of θ only."""
    entries = [
        SimpleNamespace(role=role, cycle=step // 10, chain=0)
        for step in range(100)
        for role in ("theta", "guide")
    ]
    chosen = choose_samples(entries, 16)
    assert len(chosen) == 16
    assert all(entries[i].role == "theta" for i, _ in chosen)
    assert set(Counter(cycle for _, cycle in chosen).values()) == {2}
    assert {chosen[0][1][1], chosen[-1][1][1]} == {0, 9}


def test_a_reading_that_is_not_a_number_is_not_right():
    nan = PairTemperature(Estimate(math.nan, math.nan), 7, 8, 16, True)
    assert nan.verdict(1.0) == "vague"
