"""Closed forms of the ESS benchmark: against the samplers' own steps, the theory, and sums."""

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from effective import linear, measure, others, ours, search, targets
from effective.reference import batch_variance, quadratic_of

from entropy_mcmc import theory

LINEAR = [name for name in ours.METHODS if name != "PSGLD"]
THEIRS = [name for name in others.METHODS if name not in others.FULL_ENERGY]
H = np.array([10.0, 3.0, 1.0])


def place(starts, steps=10):
    return measure.Place(10.0, 10.0, steps, starts)


def path_of_a_difference(method, ratio, first, gradients):
    """Positions at each step of what a start away from another one changes, by powers of M."""
    form = search.METHODS[method].linear_of(method, ratio, place(np.ones((1, 3))))
    drift, _ = linear.matrices(form, linear.Quadratic(H))
    state = np.zeros((len(H), form.variables, 1))
    state[:, 0, 0] = first
    if method.startswith("EMCMC"):
        state[:, 1, 0] = first  # the guide starts as θ
    shown = []
    for _ in range(gradients // form.gradients):
        state = drift @ state
        shown.append(state[:, 0, 0])
    return np.array(shown)


def check_drift(method, ratio):
    """Runs with one seed from two starts differ by the linear map alone."""
    target = targets.gaussian(10.0, dim=3)
    target = replace(target, prior=lambda t: -(t.square() * torch.tensor(H)).sum() / 2)
    away = np.array([1.0, -2.0, 0.5], dtype=np.float32)
    starts = np.ones((1, 3), dtype=np.float32)
    module = search.METHODS[method]
    one, two = (module.run(target, method, ratio, place(s)) for s in (starts, starts + away))
    difference = (two.draws - one.draws)[0]
    expected = path_of_a_difference(method, ratio, away, one.gradients)[-len(difference) :]
    np.testing.assert_allclose(difference, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("method", LINEAR)
def test_drift_of_every_rule_here(method):
    check_drift(method, 0.4)


@pytest.mark.parametrize("method", [name for name in THEIRS if name.startswith("posteriors")])
def test_drift_of_posteriors(method):
    pytest.importorskip("posteriors")
    check_drift(method, 0.4)


@pytest.mark.parametrize("method", [name for name in THEIRS if name.startswith("blackjax")])
def test_drift_of_blackjax(method, monkeypatch):
    pytest.importorskip("blackjax")
    import jax.numpy as jnp

    plain = (lambda t: -jnp.sum(t**2 * jnp.asarray(H)) / 2, lambda t, *rows: 0.0, ())
    monkeypatch.setattr(others, "in_jax", lambda target: plain)
    check_drift(method, 0.4)


@pytest.mark.parametrize("noise", [0.0, 7.0])
def test_variances_are_those_of_the_theory(noise):
    """With and without mini-batch noise; α = 0.04, η = 0.4, μ = 0.8."""
    cases = [
        (linear.langevin(0.04), lambda h: theory.sgld_variance(0.04, h, 1.0, noise)),
        (
            linear.momentum(0.04, 0.0, True),
            lambda h: theory.averaged_variance(0.04, h, 1.0, noise),
        ),
        (
            linear.momentum(0.04, 0.8, False),
            lambda h: theory.sgld_variance(0.04, h, 1.0, noise, 0.8),
        ),
        (
            linear.momentum(0.04, 0.8, True),
            lambda h: theory.averaged_variance(0.04, h, 1.0, noise, 0.8),
        ),
        (linear.coupled(0.04, 0.4), lambda h: theory.euler_covariance(0.04, h, 0.4, 1, noise)[0]),
        (
            linear.coupled(0.04, 0.4, averaged=True),
            lambda h: theory.averaged_covariance(0.04, h, 0.4, 1, noise)[0],
        ),
        (
            linear.exact_guide(0.04, 0.4),
            lambda h: theory.exact_covariance(0.04, h, 0.4, 1, noise)[0],
        ),
        (
            linear.drawn_guide(0.04, 0.4),
            lambda h: theory.gibbs_covariance(0.04, h, 0.4, 1, noise)[0],
        ),
    ]
    for form, known in cases:
        made = linear.predict(form, linear.Quadratic(H, gradient_variance=noise))
        np.testing.assert_allclose(made.variances, [known(h) for h in H], rtol=1e-9)


def test_variances_with_momentum_and_coupling():
    made = linear.predict(linear.coupled(0.04, 0.4, 0.8), linear.Quadratic(H))
    known = [theory.momentum_covariance(0.04, h, 0.4, 0.8).theta for h in H]
    np.testing.assert_allclose(made.variances, known, rtol=1e-9)
    made = linear.predict(linear.coupled(0.04, 0.4, 0.8, True), linear.Quadratic(H))
    np.testing.assert_allclose(made.variances, 1 / H, rtol=1e-9)


def test_momenta_of_others_have_their_variances():
    """BAOA is exact at every dt; Euler's is too wide, as its 2 × 2 equation says."""
    made = linear.predict(linear.baoa(0.3, 1.0), linear.Quadratic(H))
    np.testing.assert_allclose(made.variances, 1 / H, rtol=1e-9)
    dt, friction, h = 0.05, 1.0, 3.0
    drift = np.array([[1, dt], [-dt * h, 1 - dt * friction]])
    whole = np.eye(4) - np.kron(drift, drift)
    solved = np.linalg.solve(whole, [0, 0, 0, 2 * friction * dt])[0]
    made = linear.predict(linear.euler_momenta(dt, friction), linear.Quadratic([h]))
    assert made.variances[0] == pytest.approx(solved, rel=1e-9)
    assert solved > 1.05 / h


@pytest.mark.parametrize("form", [linear.momentum(0.04, 0.8, True), linear.coupled(0.04, 0.4)])
def test_ess_is_that_of_summed_autocovariances(form):
    quadratic = linear.Quadratic([3.0])
    drift, noise = (part[0] for part in linear.matrices(form, quadratic))
    sigma = linear.lyapunov(drift[None], noise[None])[0]
    lags = [sigma[0, 0]]
    power = sigma
    for _ in range(3000):
        power = drift @ power
        lags.append(power[0, 0])
    lags = np.array(lags)
    means = lags[0] / (2 * lags.sum() - lags[0])
    squares = lags[0] ** 2 / (2 * (lags**2).sum() - lags[0] ** 2)
    made = linear.predict(form, quadratic)
    assert made.per_gradient == pytest.approx(min(means, squares), rel=1e-6)


def test_ess_of_sgld_is_that_of_an_autoregression():
    """ρ = 1 − αh: means (1−ρ)/(1+ρ); with ρ < 0 the squares limit, (1−ρ²)/(1+ρ²)."""
    slow = linear.predict(linear.langevin(0.1), linear.Quadratic([1.0]))
    assert slow.per_gradient == pytest.approx(0.1 / 1.9)
    swings = linear.predict(linear.langevin(1.9), linear.Quadratic([1.0]))
    assert swings.per_gradient == pytest.approx((1 - 0.81) / (1 + 0.81))
    assert linear.predict(linear.langevin(2.1), linear.Quadratic([1.0])) is None


def test_rotated_coordinates():
    """Variances are the diagonal of VSVᵀ; no coordinate is better than the best direction."""
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    form = linear.langevin(0.05)
    plain = linear.predict(form, linear.Quadratic(H))
    turned = linear.predict(form, linear.Quadratic(H, rotation))
    dense = rotation @ np.diag(plain.variances) @ rotation.T
    np.testing.assert_allclose(turned.variances, np.diag(dense), rtol=1e-9)
    assert plain.per_gradient <= turned.per_gradient
    same = linear.predict(form, linear.Quadratic(H, np.eye(3)))
    assert same.per_gradient == pytest.approx(plain.per_gradient)


def test_best_step_of_sgld_has_the_tolerated_bias():
    """1/(1−αh/2) = 1.05 at the stiffest direction, within the grid's 4 %."""
    step, said = linear.best_step(lambda a: linear.langevin(a / 10), linear.Quadratic(H))
    limit = 2 * (1 - 1 / 1.05)
    assert 0.96 * limit <= step <= limit
    assert said.bias <= 0.05


def test_a_run_is_as_its_closed_form_says():
    """64 chains; |z| of ten coordinates above 4.5 by chance: 1 in 14,000.

    1,000 steps, as the benchmark has: the fifth that is burn-in must do for velocities that start
    at rest, near the stable limit.
    """
    target = targets.gaussian(10.0)
    spot = measure.Place(10.0, 10.0, 4000, target.exact(64).numpy())
    quadratic = quadratic_of(target, {"variances": target.variances}, None)
    cell = search.checked_cell(target, {}, "SGHMC baoab", spot, quadratic)
    assert cell["best"]["deviation"] < 4.5
    wrong = ours.run(
        target, "SGLD", 1.0, replace(spot, steps=1000)
    )  # variances twice as large in the stiffest
    assert search.deviation(wrong.draws, target.variances) > 10


def test_variance_of_a_mini_batch_gradient():
    """Against gradients of 20,000 batches: along each direction within 5 % (error 1 %)."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(50, 3, generator=g), torch.randn(50, generator=g)

    def loglik(t, x, y):
        return -((x @ t - y) ** 2).sum() / 2

    target = targets.Target("t", 3, lambda t: -t.square().sum(), loglik, (x, y), batch=5)
    t = torch.ones(3)
    directions = torch.linalg.qr(torch.randn(3, 3, generator=g, dtype=torch.float64))[0]
    rows = x * (x @ t - y)[:, None]
    batches = torch.randint(50, (20_000, 5), generator=g)
    naive = (50 / 5 * rows[batches].sum(1)).double() @ directions
    np.testing.assert_allclose(batch_variance(target, t, directions), naive.var(0), rtol=0.05)


def pilot_row(step, bias, error):
    return {"step": step, **asdict(measure.Measured(99.0, 99.0, step, bias, error, 1.0))}


def pilot_with(limit):
    def pilot(step, seed):
        return {**pilot_row(step, 0.0 if step < limit else 0.5, 0.01), "seed": seed}

    return pilot


@pytest.mark.parametrize("limit", [0.3, 1.1, 2.0])
def test_pilots_close_in_on_the_largest_accurate_step(limit):
    rows = search.pilot_rows(pilot_with(limit), 1.0, seed=3)
    assert [row["seed"] for row in rows] == list(range(3, 3 + len(rows)))
    assert len(rows) <= search.PILOTS
    assert limit / 1.7 < search.chosen_step(rows) < limit


def test_pilots_that_diverge_or_are_slow():
    assert not search.goes_up({"step": 1.0, "error": "NaN"})
    slow = pilot_row(1.0, 0.2, 0.1)
    assert search.goes_up(slow)
    assert search.chosen_step([slow]) == 1.0
    few = {**slow, "bias_error": float("nan")}  # draws too few for an ESS
    assert search.goes_up(few)
    assert not search.goes_up({**few, "bias": 30.0})
    assert search.chosen_step([{"step": 2.0, "error": "NaN"}]) == pytest.approx(2 / search.UP)


def test_full_runs_step_down_until_one_is_accurate(monkeypatch):
    """Pilots that err by chance do not leave a sampler without a row."""
    target = targets.two_modes()
    spot = measure.Place(2.0, 10.0, 8, target.exact(2).numpy())
    tried = []

    def measured(run, variances, order):
        tried.append(run)
        good = len(tried) != 5  # the first run of full length
        return measure.Measured(100.0, 100.0, 0.1, 0.0 if good else 0.3, 0.01, 1.0)

    monkeypatch.setattr(measure, "measured", measured)
    known = {"variances": target.variances, "order": None}
    quadratic = linear.Quadratic(np.array([0.2, 2.0]))
    cell = search.searched_cell(target, known, "SGLD", spot, quadratic)
    steps = [row["step"] for row in cell["tried"]]
    assert len(steps) == 6
    assert cell["best"]["step"] == pytest.approx(steps[4] / search.CLOSE)
