"""Injected and mini-batch heat told apart, where they can be.

Bounds of 4 standard errors: false-alarm rate 6e-5 per comparison; seeds are fixed.
"""

import pytest
import torch

from entropy_mcmc import EntropyMCMC, theory
from entropy_mcmc.diagnostics import (
    Estimate,
    Thermometer,
    configurational_temperature,
    gradient_variance,
    judge,
    separate,
)
from entropy_mcmc.errors import ConfigError, StateError

N, T, SIZE = 10, 0.5, 40_000


def run(V, *, lrs=(0.5,), rule="euler", curvature=0.0, claim=None, steps=60, **options):
    """A chain with gradient noise of variance V, read at the end of each phase of constant lr."""
    param = torch.nn.Parameter(torch.zeros(SIZE))
    common = {"num_data": N, "eta": 0.25, "temperature": T, "seed": 2, **options}
    sampler = EntropyMCMC([param], lr=lrs[0], guide_update=rule, **common)
    thermometer = Thermometer(sampler)
    g = torch.Generator().manual_seed(1)
    for lr in lrs:
        sampler.param_groups[0]["lr"] = lr
        for _ in range(round(steps * lrs[0] / lr)):
            kick = torch.randn(SIZE, generator=g) * V**0.5 / N
            param.grad = curvature * param.detach() + kick
            if claim:
                sampler.param_groups[0]["temperature"] = claim * T
            sampler.step()
            sampler.param_groups[0]["temperature"] = T
            thermometer.step()
        thermometer.read(curvature=N * curvature)
    return sampler, param, thermometer.readings


@pytest.mark.parametrize("rule", ["euler", "exact"])
def test_known_variance_separates_one_reading(rule):
    V = 20.0
    _, _, readings = run(V, rule=rule)
    verdict = judge(readings, V)
    assert verdict.kind == "mini-batch heat"
    assert abs(verdict.injected.value - T) < 4 * verdict.injected.error
    covariance = getattr(theory, f"{rule}_covariance")
    heat = covariance(0.05, 1e-6, 0.25, 0.0, V).difference
    unit = covariance(0.05, 1e-6, 0.25).difference
    assert verdict.minibatch.value == pytest.approx(heat / unit, rel=1e-4)
    if rule == "euler":
        assert verdict.minibatch.value == pytest.approx(0.05 * V / 4)
    assert readings[0].measured == pytest.approx(T + verdict.minibatch.value, rel=0.03)


@pytest.mark.parametrize(("curvature", "stiff", "steps"), [(0.04, False, 800), (2.0, True, 120)])
def test_the_heat_of_theta_is_that_of_its_variance(curvature, stiff, steps):
    """h·Var θ/T' = 1 + heat, T' at V = 0: the figure that is printed for this kind of direction.

    1/η = 4 and h = 0.4 or 20. The printed heat of θ−θ_a alone was half of the stiff one.
    """
    V, alpha, h, eta = 20.0, 0.02, 10 * curvature, 0.25
    _, param, readings = run(V, lrs=(N * alpha,), curvature=curvature, steps=steps)
    spread = float(param.detach().double().var())
    still = theory.euler_covariance(alpha, h, eta, T).theta
    heat = T * (spread / still - 1)
    error = 4 * T * spread / still * (2 / SIZE) ** 0.5
    assert abs(heat - theory.minibatch_heat(alpha, h, eta, V)) < error
    heated = theory.euler_covariance(alpha, h, eta, T, V).theta
    assert theory.minibatch_heat(alpha, h, eta, V) == pytest.approx(T * (heated / still - 1))
    shown = judge(readings, V).theta_heat
    assert shown[1].value == pytest.approx(2 * shown[0].value)
    assert shown[0].value - error < heat < shown[1].value + error
    # h·η is 0.1 or 5: near one of the two ends, 5 % and 14 % of their distance away.
    assert heat == pytest.approx(shown[stiff].value, abs=0.2 * shown[0].value + error)


@pytest.mark.parametrize(("rule", "momentum"), [("euler", 0.0), ("exact", 0.0), ("euler", 0.5)])
def test_the_noise_of_an_epoch_cancels(rule, momentum):
    """Ten mini-batches without replacement and a guide that averages over 20 steps.

    Read five steps into an epoch. Taken as independent, V looks three times as hot as it is, and
    a chain that is right is called cold.
    """
    V, steps, eta = 40.0, 10, 1.0
    param = torch.nn.Parameter(torch.zeros(SIZE))
    sampler = EntropyMCMC(
        [param], lr=0.5, num_data=N, eta=eta, temperature=T, guide_update=rule, momentum=momentum,
        seed=2,
    )  # fmt: skip
    known, ignorant = Thermometer(sampler, epoch_steps=steps), Thermometer(sampler)
    g = torch.Generator().manual_seed(1)
    for step in range(85):
        if step % steps == 0:
            noise = torch.randn(steps, SIZE, generator=g) * V**0.5 / N
            noise -= noise.mean(0)
        param.grad = noise[step % steps].clone()
        sampler.step()
        known.step()
        ignorant.step()
    verdict = judge([known.read()], V)
    assert verdict.kind in ("right", "mini-batch heat")
    assert abs(verdict.injected.value - T) < 4 * verdict.injected.error
    assert judge([ignorant.read()], V).kind == "cold"
    # θ's stiff directions forget within an epoch, and get all of it.
    assert verdict.theta_heat[1] == pytest.approx(judge(ignorant.readings, V).theta_heat[1])
    again = Thermometer(sampler, epoch_steps=steps)
    again.load_state_dict(known.state_dict())
    assert again.state_dict() == known.state_dict()


def test_without_the_variance_one_lr_is_not_enough():
    _, _, readings = run(20.0)
    verdict = judge(readings)
    assert verdict.kind == "hot"
    assert verdict.injected is None
    assert "cannot be told apart" in verdict.text
    with pytest.raises(StateError, match="two readings"):
        separate(readings)
    with pytest.raises(StateError, match="too similar lr"):
        separate(run(20.0, lrs=(0.5, 0.5))[2])


@pytest.mark.parametrize("rule", ["euler", "exact"])
def test_two_learning_rates_separate_without_the_variance(rule):
    V = 20.0
    _, _, readings = run(V, lrs=(0.5, 0.05), rule=rule)
    injected, heated = separate(readings)
    assert abs(injected.value - T) < 4 * injected.error
    assert abs(heated.value - V) < 4 * heated.error
    assert injected.error < 0.02 * T
    verdict = judge(readings)
    assert verdict.kind == "mini-batch heat"
    assert verdict.injected == injected


def test_exact_gradients_show_no_minibatch_heat():
    _, _, readings = run(0.0, lrs=(0.5, 0.05))
    assert judge(readings).kind == "right"
    assert abs(separate(readings)[1].value) < 4 * separate(readings)[1].error


@pytest.mark.parametrize(("claim", "kind"), [(1.1, "hot"), (0.9, "cold")])
def test_wrong_injected_noise_is_found_under_minibatch_heat(claim, kind):
    """The noise is 10 % wrong; without the separation the heat of V would hide a cold chain."""
    _, _, readings = run(20.0, lrs=(0.5, 0.05), claim=claim)
    assert judge(readings, 20.0).kind == kind
    assert judge(readings).kind == kind


def test_an_uncertain_variance_widens_the_error():
    _, _, readings = run(20.0)
    sure, unsure = judge(readings, Estimate(20.0, 0.0)), judge(readings, Estimate(20.0, 5.0))
    assert unsure.injected.error > 3 * sure.injected.error
    assert sure.kind == "mini-batch heat"


def test_gibbs_tests_only_the_draw():
    """Mini-batch noise that heats θ by a third leaves the reading alone: the verdict says so."""
    V = 20.0
    _, param, readings = run(V, rule="gibbs", curvature=1.0, steps=120)
    alpha, h, eta = 0.05, 10.0, 0.25
    moments = theory.gibbs_covariance(alpha, h, eta, T, V)
    assert float(param.detach().var()) == pytest.approx(moments.theta, rel=4 * (2 / SIZE) ** 0.5)
    assert moments.theta > 1.3 * theory.gibbs_covariance(alpha, h, eta, T).theta
    verdict = judge(readings, V)
    assert verdict.kind == "draw only"
    assert "says nothing about θ" in verdict.text


@pytest.mark.parametrize(("momentum", "integrator"), [(0.0, "euler"), (0.5, "baoab")])
def test_a_collapsed_guide_tests_only_the_draw(momentum, integrator):
    """θ is heated as theory says, which the verdict states; the reading knows nothing of it."""
    V = 20.0
    options = {"momentum": momentum, "integrator": integrator}
    _, param, readings = run(V, rule="collapsed", curvature=1.0, steps=120, **options)
    moments = theory.collapsed_covariance(0.05, 10.0, 0.25, T, V, momentum, integrator)
    assert float(param.detach().var()) == pytest.approx(moments.theta, rel=4 * (2 / SIZE) ** 0.5)
    verdict = judge(readings, V)
    assert verdict.kind == "draw only"
    assert 'guide_update="collapsed" this says nothing about θ' in verdict.text
    assert verdict.theta_heat[0].value == pytest.approx(0.05 * V / (2 * (1 - momentum)))


def test_gradient_variance_of_minibatches():
    """Mini-batch gradients of a linear regression: V against the variance over all the data."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(512, 5, generator=g), torch.randn(512, generator=g)
    w = torch.randn(5, generator=g)
    rows = (x @ w - y)[:, None] * x
    batch = 32

    def gradients(count):
        for _ in range(count):
            chosen = torch.randint(512, (batch,), generator=g)
            yield [rows[chosen].mean(0)]

    variance = gradient_variance(gradients(400), num_data=512)
    exact = 512**2 * float(rows.var(0, correction=0).mean()) / batch
    assert abs(variance.value - exact) < 4 * variance.error
    assert variance.error < 0.1 * exact
    with pytest.raises(ConfigError, match="at least 4 mini-batch gradients, got 2 to 3"):
        gradient_variance(gradients(3), num_data=512)


@pytest.mark.parametrize("rule", ["euler", "exact", "gibbs"])
def test_configurational_temperature_sees_theta(rule):
    """h·Var θ of theory, around the origin and around any other centre; χ²_d gives the error."""
    sampler, param, _ = run(0.0, rule=rule, curvature=1.0, steps=150)
    param.grad = param.detach().clone()
    reading = configurational_temperature(sampler)
    moments = getattr(theory, f"{rule}_covariance")(0.05, 10.0, 0.25, T)
    assert reading.error == pytest.approx(reading.value * (2 / SIZE) ** 0.5)
    assert abs(reading.value - 10.0 * moments.theta) < 4 * reading.error
    moved = configurational_temperature(sampler, center=[torch.full((SIZE,), 0.1)])
    spread = 0.1 * 10.0 * (moments.theta / SIZE) ** 0.5
    assert abs(moved.value - reading.value) < 4 * spread


def test_configurational_temperature_counts_the_prior():
    """θ·N(ĝ + λθ)/d by hand, and wrong use."""
    param = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    sampler = EntropyMCMC([param], lr=0.1, num_data=10, eta=1.0, weight_decay=0.5, seed=0)
    with pytest.raises(StateError, match="no parameter has a gradient"):
        configurational_temperature(sampler)
    param.grad = torch.tensor([0.3, -0.1])
    assert configurational_temperature(sampler).value == pytest.approx(
        10 * (1 * (0.3 + 0.5) + 2 * (-0.1 + 1.0)) / 2
    )
    with pytest.raises(ConfigError, match=r"shape \(2,\) for parameter 0, got nothing"):
        configurational_temperature(sampler, center=[])
