"""The coupling thermometer against closed forms and against chains.

A bound of 4 standard errors has a false-alarm rate of 6e-5 per reading; seeds are fixed.
"""

import json
import math

import numpy as np
import pytest
import torch

from battery import LINEAR
from entropy_mcmc import SGLD, EntropyMCMC, schedules, theory
from entropy_mcmc.diagnostics import Thermometer, average, judge, mean_error, power
from entropy_mcmc.diagnostics.expected_reading import curvature_factor, move
from entropy_mcmc.diagnostics.temperature_verdict import THRESHOLD
from entropy_mcmc.diagnostics.thermometer import _Track
from entropy_mcmc.errors import ConfigError, StateError
from scenarios import linear_map, stationary_covariance

BOUND = 4.0
NETWORK = 78_000  # parameters of ResNet-8


def make(size=NETWORK, temperature=1.0, **options):
    param = torch.nn.Parameter(torch.zeros(size))
    defaults = dict(lr=0.1, num_data=1, eta=0.5, seed=0)
    sampler = EntropyMCMC([param], temperature=temperature, **{**defaults, **options})
    return param, sampler, Thermometer(sampler)


def run(param, sampler, thermometer, steps, gradient=torch.zeros_like):
    for _ in range(steps):
        param.grad = gradient(param.detach())
        sampler.step()
        thermometer.step()


class Claims:
    """A sampler whose groups claim another temperature than the one it runs at."""

    def __init__(self, sampler, temperature):
        self._sampler, self._temperature = sampler, temperature
        self.state, self._theta = sampler.state, sampler._theta

    @property
    def param_groups(self):
        return [{**g, "temperature": self._temperature} for g in self._sampler.param_groups]


@pytest.mark.parametrize(
    "name",
    ["emcmc", "emcmc-exact", "emcmc-gibbs", "emcmc-momentum", "emcmc-lm", "emcmc-baoab"],
)
def test_recursion_ends_at_the_distribution_of_the_naive_step(name):
    """At constant lr and h = 0 the tracked variance is that of Σ = MΣMᵀ + Q of the equation."""
    case = next(c for c in LINEAR if c.name == name)
    h = {**case.options, "temperature": 0.7, "weight_decay": 0.0}
    step = lambda state, grad, eps: case.naive(h, state, grad, eps)  # noqa: E731
    # θ alone has no stationary distribution at h = 0; its difference to the guide has, as h → 0.
    M, B = linear_map(step, case.names, 1e-7, len(case.noises))
    difference = np.array([1.0, -1.0] + [0.0] * (len(case.names) - 2))
    expected = difference @ stationary_covariance(M, B) @ difference
    group = {"momentum": 0.0, "noise": True, "guide_update": name.partition("-")[2], **h}
    if group["guide_update"] not in ("exact", "gibbs"):
        group["guide_update"] = "euler"
    spread = (0.0, 0.0, 0.0)
    for _ in range(4000):
        one = move(group, group["lr"])
        spread = one.apply(spread, one.injected)
    assert spread[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("rule", ["euler", "exact"])
def test_minibatch_heat_is_that_of_theory(rule):
    group = dict(lr=2.0, num_data=10, eta=0.5, temperature=0.0, noise=True, momentum=0.0)
    group["guide_update"] = rule
    spread = (0.0, 0.0, 0.0)
    for _ in range(500):
        one = move(group, 2.0)
        spread = one.apply(spread, one.kicked)
    covariance = getattr(theory, f"{rule}_covariance")
    # Per unit of V; the flat limit is taken at a curvature that changes the fifth digit.
    assert spread[0] == pytest.approx(covariance(0.2, 1e-6, 0.5, 0.0, 1.0).difference, rel=1e-5)
    if rule == "euler":
        assert spread[0] / 0.5 == pytest.approx(0.2 / 4 / (1 - 0.4))


@pytest.mark.parametrize(("integrator", "momentum"), [("lm", 0.0), ("baoab", 0.6)])
def test_averaged_noise_is_read_without_a_factor(integrator, momentum):
    """On curvature 1 at q = 0.2 the expectation is T itself, where Euler's is 1.26·T."""
    param, sampler, thermometer = make(lr=0.1, integrator=integrator, momentum=momentum)
    run(param, sampler, thermometer, 120, torch.clone)
    reading = thermometer.read(curvature=1.0)
    assert reading.expected == pytest.approx(1.0, rel=1e-6)
    assert abs(reading.ratio - 1) < BOUND * reading.error


@pytest.mark.parametrize("temperature", [1.0, 0.01])
@pytest.mark.parametrize("rule", ["euler", "exact"])
def test_reading_over_expectation_is_the_temperature(rule, temperature, device):
    """Acceptance: on a Gaussian target reading/expectation = T within its stated error."""
    param, sampler, thermometer = make(
        temperature=temperature, guide_update=rule, lr=1.0, num_data=10
    )
    run(param, sampler, thermometer, 120, lambda theta: 0.1 * theta)
    reading = thermometer.read(curvature=1.0)
    assert reading.error == pytest.approx(math.sqrt(2 / NETWORK))
    assert abs(reading.measured / temperature - 1) < BOUND * reading.error
    assert judge([reading]).kind == "right"
    # The factor matters: without the finite-step expectation Euler would be read 25 % too hot.
    if rule == "euler":
        assert reading.expected / temperature == pytest.approx(
            theory.thermometer_factor(0.1, 1.0, 0.5), rel=1e-6
        )
        assert reading.observed / temperature > 1.2


def test_reading_over_many_curvatures(device):
    """Curvatures from 0 to 3, each with its own expectation: their mean h is what is needed."""
    h = torch.linspace(0, 3, NETWORK)
    param, sampler, thermometer = make(lr=0.02, eta=0.2)
    run(param, sampler, thermometer, 900, lambda theta: h * theta)
    reading = thermometer.read(curvature=1.5)
    assert abs(reading.ratio - 1) < BOUND * reading.error
    # And how little it matters: at q = 0.1, αh = 0.03 it is 8e-4, a sixth of the error.
    assert curvature_factor(sampler.param_groups[0], 1.5) - 1 == pytest.approx(8.3e-4, rel=0.05)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("eta", [0.01, 0.02, 0.2, 2.0])
def test_the_wait_is_as_long_as_a_gap_needs_to_vanish(momentum, eta):
    """θ − θ_a from 1 without noise, by the equation, until the first reading: e^{-6} of δ² is left.

    Not longer than it needs, either: its rate is 2·lr/((1−μ)ηN), and −½·log μ > (1−μ)/2 where it
    swings.
    """
    group = dict(
        lr=0.001, num_data=1, eta=eta, temperature=1.0, noise=True, momentum=momentum,
        guide_update="euler",
    )  # fmt: skip
    track, gap, velocity, steps = _Track(), 1.0, 0.0, 0
    while track.progress < 1:
        track.advance(group)
        velocity = momentum * velocity - 2 * group["lr"] / eta * gap
        gap, steps = gap + velocity, steps + 1
    assert gap**2 < 1.05 * math.exp(-6)
    assert steps <= 2 + max(3 * (1 - momentum) * eta / (2 * group["lr"]), 6 / (1 - momentum))


@pytest.mark.parametrize(
    ("momentum", "integrator"), [(0.0, "euler"), (0.9, "euler"), (0.0, "lm"), (0.9, "baoab")]
)
def test_expectation_follows_a_cyclical_schedule(momentum, integrator):
    """Cosine lr, warm restarts, noise on and off: the tracked expectation is exact at h = 0."""
    param, sampler, thermometer = make(
        size=20_000, lr=0.08, temperature=0.3, momentum=momentum, eta=0.25, integrator=integrator
    )
    cycle = schedules.Cyclical(sampler, 300, cycles=2, burn_in=0.3, samples_per_cycle=3)
    for _ in range(300):
        param.grad = torch.zeros_like(param)
        sampler.step()
        thermometer.step()
        ready, due = thermometer.ready, cycle.is_due(cycle.last_step)
        if ready and due:
            thermometer.read()
        cycle.step()
    assert len(thermometer.readings) >= 4
    for reading in thermometer.readings:
        assert abs(reading.ratio - 1) < BOUND * reading.error, reading


def test_one_reading_detects_three_percent():
    """78,000 parameters, threshold 3.5 standard errors: false alarms 1 in 2,149, power 99.1 %.

    40 readings, 10 steps apart (δ correlates by 0.6¹⁰, its square by 4e-5). Fewer than 36
    detections, or more than one false alarm, happen with probability 5e-6 and 2e-4.
    """
    assert power(NETWORK, 0.03) > 0.99
    assert power(NETWORK, -0.03) > 0.99
    assert power(NETWORK, 0.0) == pytest.approx(1 / 2149, rel=0.01)
    for factor in (1.0, 1.03, 0.97):
        param, sampler, _ = make(temperature=factor, seed=3)
        thermometer = Thermometer(Claims(sampler, 1.0))
        alarms = 0
        for _ in range(40):
            run(param, sampler, thermometer, 10)
            reading = thermometer.read()
            alarms += abs(reading.ratio - 1) > THRESHOLD * reading.error
        assert alarms <= 1 if factor == 1 else alarms >= 36
        kinds = {1.0: "right", 1.03: "hot", 0.97: "cold"}
        assert judge(thermometer.readings).kind == kinds[factor]


def test_power_is_that_of_the_chi_square():
    from scipy.stats import chi2

    d = 5000
    for wrong in (0.0, 0.05, -0.08):
        edge = THRESHOLD * math.sqrt(2 / d)
        exact = chi2.sf(d * (1 + edge) / (1 + wrong), d) + chi2.cdf(d * (1 - edge) / (1 + wrong), d)
        assert power(d, wrong) == pytest.approx(exact, abs=0.01)


def test_too_early_is_refused():
    param, sampler, thermometer = make(size=10, lr=0.05)  # 2·lr/(ηN) = 0.2: 15 steps
    run(param, sampler, thermometer, 14)
    assert not thermometer.ready
    with pytest.raises(StateError, match=r"no reading before .* ≥ 3 .*now 2.8; make about 1 more"):
        thermometer.read()
    run(param, sampler, thermometer, 1)
    assert thermometer.ready
    assert thermometer.read().step == 15


def test_waiting_begins_again_when_the_noise_comes_on():
    param, sampler, thermometer = make(size=10, lr=0.05)
    run(param, sampler, thermometer, 20)
    sampler.param_groups[0]["noise"] = False
    run(param, sampler, thermometer, 20)
    with pytest.raises(StateError, match="the noise is off"):
        thermometer.read()
    sampler.param_groups[0]["noise"] = True
    run(param, sampler, thermometer, 14)
    assert not thermometer.ready
    run(param, sampler, thermometer, 1)
    assert thermometer.ready
    assert thermometer.relaxation == pytest.approx(4.0)


def test_oscillation_waits_for_the_slower_clock():
    """At q = 0.95 Σ 2q ≥ 3 after two steps, but |1−2q| = 0.9 keeps half of δ's variance."""
    with pytest.warns(UserWarning, match="oscillate"):
        param, sampler, thermometer = make(size=10, lr=0.475)
    run(param, sampler, thermometer, 3)
    assert not thermometer.ready
    run(param, sampler, thermometer, 26)
    assert thermometer.ready


def test_error_of_a_mean_of_correlated_readings():
    """Against simulation: 20,000 replicates, the variance is known to 1 % (one standard error)."""
    param, sampler, thermometer = make(size=50, lr=0.05)
    run(param, sampler, thermometer, 20)
    for _ in range(6):
        thermometer.read()
        run(param, sampler, thermometer, 2)
    stated = mean_error(thermometer.readings)
    keep = (1 - 2 * 0.1) ** 2  # correlation of δ over two steps
    g = np.random.default_rng(0)
    delta = g.normal(size=(20_000, 50))
    means = []
    for _ in range(6):
        means.append((delta**2).mean(1))
        delta = keep * delta + math.sqrt(1 - keep**2) * g.normal(size=delta.shape)
    assert stated == pytest.approx(np.mean(means, axis=0).std(), rel=0.02)
    assert math.sqrt(2 / 50 / 6) < stated < math.sqrt(2 / 50)
    assert average(thermometer.readings).error == stated


def test_resumes_from_plain_numbers():
    param, sampler, thermometer = make(size=100)
    run(param, sampler, thermometer, 12)
    thermometer.read()
    saved = json.loads(json.dumps(thermometer.state_dict()))
    again = Thermometer(sampler)
    again.load_state_dict(saved)
    param.grad = torch.zeros_like(param)
    sampler.step()
    thermometer.step()
    again.step()
    assert again.read() == thermometer.read()
    assert again.readings == thermometer.readings
    with pytest.raises(ConfigError, match="step, tracks and readings"):
        again.load_state_dict({"step": 1})


def test_parameter_groups_are_pooled():
    """Two groups with their own lr and η, the second at twice the temperature."""
    params = [torch.nn.Parameter(torch.zeros(20_000)), torch.nn.Parameter(torch.zeros(5_000))]
    sampler = EntropyMCMC(
        [{"params": params[:1]}, {"params": params[1:], "lr": 0.2, "eta": 1.5, "temperature": 2.0}],
        lr=0.1, num_data=1, eta=0.5, seed=5,
    )  # fmt: skip
    thermometer = Thermometer(sampler)
    for _ in range(40):
        for p in params:
            p.grad = torch.zeros_like(p)
        sampler.step()
        thermometer.step()
    reading = thermometer.read()
    assert abs(reading.ratio - 1) < BOUND * reading.error
    assert 20_000 < reading.size < 25_000
    assert reading.temperature == pytest.approx(1.2)


def test_bfloat16_is_read_from_the_masters():
    param = torch.nn.Parameter(torch.zeros(20_000, dtype=torch.bfloat16))
    sampler = EntropyMCMC([param], lr=0.5, num_data=50_000, eta=4e-4, temperature=1e-4, seed=1)
    thermometer = Thermometer(sampler)
    run(param, sampler, thermometer, 100)
    reading = thermometer.read()
    assert abs(reading.ratio - 1) < BOUND * reading.error


def test_wrong_use_is_refused():
    param = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(ConfigError, match=r"needs a sampler with a guide .* got SGLD"):
        Thermometer(SGLD([param], lr=0.1, num_data=1, seed=0))
    param, sampler, thermometer = make(size=3)
    with pytest.raises(StateError, match="counted to step 0, the sampler is at step 0"):
        thermometer.step()
    with pytest.raises(StateError, match="no reading to average"):
        mean_error([])
    run(param, sampler, thermometer, 10)
    with pytest.raises(ConfigError, match="curvature must be at least 0"):
        thermometer.read(curvature=-1.0)


@pytest.mark.parametrize("h", [0.5, 4.0])
def test_curvature_factor_is_the_ratio_of_closed_forms(h):
    """Stationary reading at curvature h over the flat one, for every rule."""
    alpha, eta = 0.1, 0.4
    group = dict(lr=1.0, num_data=10, eta=eta, momentum=0.0)
    assert curvature_factor({**group, "guide_update": "gibbs"}, h) == 1.0
    exact = theory.exact_covariance(alpha, h, eta).difference / eta
    assert curvature_factor({**group, "guide_update": "exact"}, h) == pytest.approx(exact)
    for mu in (0.0, 0.9):
        moments = theory.momentum_covariance(alpha, h, eta, mu).difference
        flat = eta / (1 - alpha / eta / (1 + mu))
        actual = curvature_factor({**group, "momentum": mu, "guide_update": "euler"}, h)
        assert actual == pytest.approx(moments / flat)
