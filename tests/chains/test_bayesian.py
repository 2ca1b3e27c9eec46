"""`chains.sample`: posteriors in closed form, transforms, warm-up, refusals.

Means are compared in standard errors from the ESS, variances with their Monte-Carlo error √(2/ESS);
the bound of 4.5 has a false-alarm rate of 7e-6 for each; seeds are fixed.
"""

import math
import warnings

import numpy as np
import pytest
import torch
from arviz_stats.base import array_stats

from entropy_mcmc import chains
from entropy_mcmc.chains import noise_and_batches, sampling, steps, transforms, warm_up
from entropy_mcmc.errors import ConfigError, NonFiniteError

BOUND = 4.5
SHORT = {"draws": 300, "warm_up_steps": 200, "thin": 3, "seed": 1}


def z_scores(values, mean, variance, kurtosis=3.0):
    """z of the mean and the variance of (chain, draw) values."""
    values = values.double().numpy()
    ess = float(array_stats.ess(values, chain_axis=0, draw_axis=1, method="mean"))
    ess_square = float(
        array_stats.ess((values - mean) ** 2, chain_axis=0, draw_axis=1, method="mean")
    )
    of_mean = (values.mean() - mean) / math.sqrt(variance / ess)
    spread = variance * math.sqrt((kurtosis - 1) / ess_square)
    return abs(of_mean), abs(((values - mean) ** 2).mean() - variance) / spread


def test_linear_regression_has_its_conjugate_posterior():
    """Known noise, Gaussian prior: mean and variances from the normal equations."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=g) @ torch.tensor([[1.0, 0.0], [0.8, 20.0]])
    y = x @ torch.tensor([1.0, -0.1]) + torch.randn(60, generator=g)
    draws = chains.sample(
        lambda t, x, y: -((y - x @ t["w"]) ** 2) / 2,
        {"w": torch.zeros(2)},
        data=(x, y),
        log_prior=lambda t: -t["w"].square().sum() / 8,
        **SHORT,
    )
    covariance = np.linalg.inv((x.T @ x).double().numpy() + np.eye(2) / 4)
    mean = covariance @ (x.T @ y).double().numpy()
    for i in range(2):
        assert max(z_scores(draws["w"][..., i], mean[i], covariance[i, i])) < BOUND
    theta = draws["w"][1, 7]
    by_hand = -((y - x @ theta) ** 2).sum() / 2 - theta.square().sum() / 8
    torch.testing.assert_close(draws.log_density[1, 7], by_hand)
    assert 200 + 900 < draws.gradients < 200 + 900 + 300


@pytest.mark.parametrize(
    ("density", "start", "transform", "mean", "variance", "kurtosis"),
    [
        # Gamma(4, 2); Beta(3, 5); 1 + Gamma(4, 2).
        (lambda t: 3 * t.log() - 2 * t, 1.0, transforms.positive(), 2.0, 1.0, 4.5),
        (
            lambda t: 2 * t.log() + 4 * (1 - t).log(),
            0.5,
            transforms.between(0, 1),
            3 / 8,
            15 / 576,
            2.6,
        ),
        (lambda t: 3 * (t - 1).log() - 2 * t, 2.0, transforms.above(1.0), 3.0, 1.0, 4.5),
    ],
)
def test_transformed_parameters_have_the_density_as_written(
    density, start, transform, mean, variance, kurtosis
):
    draws = chains.sample(
        lambda t: density(t["x"]), {"x": start}, transforms={"x": transform}, **SHORT
    )
    assert max(z_scores(draws["x"], mean, variance, kurtosis)) < BOUND
    assert transform.allows(draws["x"])


@pytest.mark.parametrize(
    "transform", [transforms.positive(), transforms.above(-2.0), transforms.between(-1.0, 3.0)]
)
def test_transforms_are_inverse_and_their_jacobian_is_the_slope(transform):
    z = torch.linspace(-4, 4, 9, dtype=torch.float64)
    torch.testing.assert_close(transform.inverse(transform.forward(z)), z)
    slopes = torch.stack([torch.func.grad(transform.forward)(one) for one in z])
    torch.testing.assert_close(transform.log_det(z), slopes.log())


def test_warm_up_finds_the_scale_of_every_coordinate_and_then_it_is_frozen():
    """Standard deviations over five decades are adapted to within 30 %."""
    sd = torch.tensor([1e-3, 1.0, 1e2], dtype=torch.float64)
    draws = chains.sample(
        lambda t: -(t["x"] / sd).square().sum() / 2,
        {"x": torch.zeros(3, dtype=torch.float64)},
        **{**SHORT, "warm_up_steps": 1000},
    )
    ratio = draws.tuning.scale / sd
    assert bool(((ratio > 0.7) & (ratio < 1.3)).all()), ratio
    for i in range(3):
        assert max(z_scores(draws["x"][..., i], 0.0, float(sd[i]) ** 2)) < BOUND


def test_mini_batches_are_slower_but_of_the_same_posterior():
    g = torch.Generator().manual_seed(0)
    x = 2 + torch.randn(4000, generator=g)
    draws = chains.sample(
        lambda t, x: -((x - t["m"]) ** 2) / 2,
        {"m": 1.0},
        data=(x,),
        batch_size=2000,
        **{**SHORT, "thin": 5},
    )
    assert 0 < draws.tuning.heat <= warm_up.HEAT
    heat = 1 + draws.tuning.heat
    assert max(z_scores(draws["m"], float(x.mean()), heat / 4000)) < BOUND


def test_a_seed_gives_the_same_draws_and_thinning_leaves_draws_out():
    def draw(**options):
        return chains.sample(
            lambda t: -t["x"].square().sum() / 2,
            {"x": torch.zeros(2)},
            **{"warm_up_steps": 100, "seed": 3, "draws": 20, "thin": 1, **options},
        )

    first, again = draw(), draw()
    assert torch.equal(first["x"], again["x"])
    thinned = draw(draws=10, thin=2)
    assert torch.equal(thinned["x"], first["x"][:, 1::2])
    assert not torch.equal(draw(seed=4)["x"], first["x"])
    assert len({warm_up.window_seed(s, k) for s in range(30) for k in range(10)}) == 300


def test_progress_counts_every_step(capsys):
    chains.sample(
        lambda t: -(t["x"] ** 2), {"x": 0.0}, draws=40, warm_up_steps=100, thin=2, progress=True
    )
    assert "180/180" in capsys.readouterr().err


def test_diagnosis_and_arviz():
    draws = chains.sample(lambda t: -t["x"].square().sum(), {"x": torch.zeros(2)}, **SHORT)
    diagnosis = draws.diagnose()
    assert diagnosis.severity == "ok"
    assert "parameters" in str(diagnosis)
    assert "x[1]" in draws.summary()
    tree = draws.to_arviz()
    assert tree["posterior"]["x"].shape == (4, 300, 2)
    np.testing.assert_array_equal(tree["sample_stats"]["lp"], draws.log_density)


def test_chains_in_two_modes_are_reported():
    """Two far modes, chains started in both: R-hat and the agreement of chains say so."""
    starts = {"x": torch.tensor([-20.0, 20.0, -20.0, 20.0])}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draws = chains.sample(
            lambda t: torch.logaddexp(-((t["x"] - 20) ** 2) / 2, -((t["x"] + 20) ** 2) / 2),
            starts,
            chains=None,
            **SHORT,
        )
    assert draws["x"].shape == (4, 300)
    diagnosis = draws.diagnose()
    assert diagnosis.severity == "warning"
    assert any("chains" in item.sentence and "differ" in item.sentence for item in diagnosis.advice)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"init": {}}, "init must be a dict of named parameters"),
        ({"init": torch.zeros(2)}, "init must be a dict"),
        ({"transforms": {"y": transforms.positive()}}, "transforms must be of parameters in init"),
        ({"init": {"x": -1.0}, "transforms": {"x": transforms.positive()}}, r"init\['x'\] must be"),
        ({"warm_up_steps": 10}, "warm_up_steps must be .* at least 100"),
        ({"batch_size": 5}, "batch_size needs data"),
    ],
)
def test_refusals(change, message):
    given = {"log_density": lambda t: -(t["x"] ** 2).sum(), "init": {"x": 0.0}, **change}
    with pytest.raises(ConfigError, match=message):
        chains.sample(**given)


def test_non_finite_values_are_raised_with_the_place():
    with pytest.raises(NonFiniteError, match=r"log density is nan at init.*\{'x': -1.0\}"):
        chains.sample(lambda t: t["x"].log(), {"x": -1.0})
    with pytest.raises(NonFiniteError, match="became NaN or infinite"):
        chains.sample(lambda t: t["x"] ** 4, {"x": 1.0}, **SHORT)  # not a density: it explodes
    with pytest.raises(ConfigError, match="low must be less than high"):
        transforms.between(1.0, 0.0)


def test_only_the_steps_of_the_draws_are_compiled(monkeypatch):
    """Once: each window of the warm-up has other settings, and would be compiled for itself."""
    made = []

    def eager(function, example, *, direct):
        made.append(len(example[0]))
        return lambda tensors: function(*tensors)

    def refused(*_):
        raise AssertionError("the noise was compiled, which takes longer than the steps")

    monkeypatch.setattr(steps, "compiled", eager)
    monkeypatch.setattr(noise_and_batches, "_kernel", refused)

    def draw(use):
        return chains.sample(
            lambda t: -t["x"].square().sum() / 2,
            {"x": torch.zeros(3)},
            compile=use,
            **{**SHORT, "draws": 20},
        )

    plain = draw(False)
    assert made == []
    compiled = draw(True)
    assert made == [sampling.FEW_UNROLLED]
    torch.testing.assert_close(compiled["x"], plain["x"], rtol=1e-5, atol=1e-5)
    assert draw("auto")["x"].equal(plain["x"])
    assert len(made) == 1


@pytest.mark.soak
def test_compiled_draws_equal_uncompiled_ones():
    """A tensor that the log density closes over, a transform, mini-batches: rounding alone."""
    centre = torch.tensor([1.0, -2.0])
    rows = centre + torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    plain, compiled = (
        chains.sample(
            lambda t, rows: -((rows - t["m"]) ** 2).sum(1) / (2 * t["s"] ** 2) - 2 * t["s"].log(),
            {"m": torch.zeros(2), "s": 1.0},
            log_prior=lambda t: -((t["m"] - centre) ** 2).sum() / 200 - t["s"],
            transforms={"s": transforms.positive()},
            data=(rows,),
            batch_size=200,
            compile=use,
            **{**SHORT, "draws": 40},
        )
        for use in (False, True)
    )
    for name in ("m", "s"):
        torch.testing.assert_close(compiled[name], plain[name], rtol=1e-4, atol=1e-4)


@pytest.mark.soak
def test_compiled_steps_with_eager_noise_equal_eager_ones(monkeypatch):
    """What compile="auto" does from 20,000 steps on: steps compiled, noise not."""
    monkeypatch.setattr(sampling, "WORTH_COMPILING", 32)
    settings = {"steps": 64, "lr": 0.1, "sampler": "sghmc", "momentum": 0.9, "num_data": 1}
    settings |= {"chains": 2, "seed": 0, "integrator": "baoab"}

    def energy(theta):
        return theta.square().sum() / 2

    eager = chains.run(energy, torch.zeros(3), compile=False, **settings)
    auto = chains.run(energy, torch.zeros(3), compile="auto", **settings)
    torch.testing.assert_close(eager.theta, auto.theta, rtol=1e-5, atol=1e-5)
