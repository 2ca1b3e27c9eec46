"""What `chains.sample` says of a log density that cannot be sampled, and what it lets pass."""

import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Bernoulli, Distribution, Exponential, Normal

from entropy_mcmc import chains
from entropy_mcmc.chains import density_checks, log_density, propriety, row_scaling, transforms
from entropy_mcmc.errors import ConfigError, NonFiniteError

SHORT = {"draws": 30, "warm_up_steps": 100, "thin": 1, "seed": 1}
G = torch.Generator().manual_seed(0)
X = torch.randn(60, 2, generator=G)
Y = X @ torch.tensor([1.0, -0.5]) + torch.randn(60, generator=G)


def built(function, init, data=(), prior=None, transforms=None, chains=4):
    """The log density of a model, and starts that differ."""
    density, states = log_density.build(function, prior, init, chains, transforms or {}, data)
    away = torch.randn(states.shape, generator=torch.Generator().manual_seed(3))
    return density, states + 0.1 * away.to(states)


def residuals(t, x, y):
    return -((y - x @ t["w"]) ** 2) / 2


# Improper densities.


@pytest.mark.parametrize(
    ("function", "init", "given", "name"),
    [
        (lambda t: -(t["a"] ** 2), {"a": 0.0, "b": 0.0}, {}, "b"),
        (lambda t: 0 * t["a"], {"a": 0.0}, {}, "a"),
        (lambda t: -(t["w"][:2] ** 2).sum(), {"w": torch.zeros(3)}, {}, r"w\[2\]"),
        # Flat on (0, ∞), and flat in log s: ds/s.
        (lambda t: -(t["a"] ** 2), {"a": 0.0, "s": 1.0}, {"s": transforms.positive()}, "s"),
        (lambda t: -t["s"].log(), {"s": 2.0}, {"s": transforms.positive()}, "s"),
        (lambda t: -(t["a"].round() ** 2), {"a": 0.0}, {}, "a"),
    ],
)
def test_a_parameter_that_is_left_free_is_named(function, init, given, name):
    with pytest.raises(ConfigError, match=f"gradient of 0 for {name} at all starts.*log_prior"):
        chains.sample(function, init, transforms=given, **SHORT)


@pytest.mark.parametrize(
    ("function", "init", "given"),
    [
        # Uniform on (0, 1); flat inside of walls; a corner; saturated at the start.
        (lambda t: -(t["a"] ** 2), {"a": 0.0, "u": 0.5}, {"u": transforms.between(0, 1)}),
        (lambda t: -((t["a"].abs() - 1e5).relu() ** 2), {"a": 0.0}, {}),
        (lambda t: -t["a"].abs(), {"a": 0.0}, {}),
        (lambda t: F.logsigmoid(t["a"]) + F.logsigmoid(5 - t["a"]), {"a": -1e4}, {}),
    ],
)
def test_proper_densities_pass(function, init, given):
    density, states = built(function, init, transforms=given)
    propriety.check_dependence(density, states)


@pytest.mark.parametrize("function", [lambda t: t["a"], lambda t: t["a"].abs()])
def test_a_density_that_does_not_fall_off_is_refused(function):
    """Linear: slopes are not 0, curvature is, and the chains would run to 1e12."""
    with pytest.raises(ConfigError, match=r"must be proper, got draws of a .*right sign"):
        chains.sample(function, {"a": torch.ones((), dtype=torch.float64)}, **SHORT)


def test_a_wide_posterior_is_no_run_away():
    """Its scale grows by 1e6 in the warm-up, and slopes grow with it."""
    draws = chains.sample(lambda t: -((t["a"] / 1e7) ** 2) / 2, {"a": 0.0}, **SHORT)
    assert 3e6 < float(draws["a"].std()) < 3e7


def test_an_energy_with_a_corner_is_sampled():
    """Laplace: no curvature but at 0; the mean of |x| is 1, here ± 5 standard errors of ESS ≥ 100.

    The rate of false alarms is below 1e-6 if the step has no bias; a step that the curvature at a
    point sets gave draws of 1e34.
    """
    settings = {"draws": 300, "warm_up_steps": 200, "thin": 3, "seed": 1}
    draws = chains.sample(lambda t: -t["a"].abs().sum(), {"a": torch.zeros(4)}, **settings)
    assert float(draws["a"].abs().mean()) == pytest.approx(1.0, abs=0.25)


# Scaling with the number of rows.

PRIOR = "as log_prior"
MEAN = "this is a mean"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda t, x, y: residuals(t, x, y).mean(), MEAN),
        (lambda t, x, y: 60 * residuals(t, x, y).mean(), MEAN),
        (lambda t, x, y: residuals(t, x, y).sum() - t["w"].square().sum() / 200, PRIOR),
        (lambda t, x, y: residuals(t, x, y).sum() - 3.0, PRIOR),
    ],
)
def test_mini_batches_need_a_sum_over_rows(function, match, dtype):
    start = {"w": torch.zeros(2, dtype=dtype)}
    with pytest.raises(ConfigError, match=f"sum over rows for batch_size=10, got .*{match}"):
        chains.sample(function, start, data=(X, Y), batch_size=10, **SHORT)


def series(number, phi=0.8):
    """An autoregressive series of noise 0.3."""
    values, steps = [torch.zeros(())], 0.3 * torch.randn(number, generator=G)
    for step in steps:
        values.append(phi * values[-1] + step)
    return torch.stack(values[1:])


@pytest.mark.parametrize("phi", [0.3, 0.8, 0.99])
@pytest.mark.parametrize("joined", [lambda rows: rows, torch.sum])
def test_rows_that_depend_on_their_neighbours_are_refused_in_mini_batches(phi, joined):
    """Rows in random order are no series: φ was 0.00 ± 0.02 for 2,000 rows of φ = 0.8."""

    def steps(t, y):
        return joined(-((y[1:] - t["phi"] * y[:-1]) ** 2))

    density, states = built(steps, {"phi": 0.5}, (series(300, phi),))
    for seed in range(5):
        with pytest.raises(ConfigError, match=r"in another order.*data=\(y\[1:\], y\[:-1\]\)"):
            row_scaling.check_scaling(density, states, 20, seed)


def test_a_series_by_pairs_of_neighbours_passes():
    y = series(300)
    density, states = built(
        lambda t, now, before: -((now - t["phi"] * before) ** 2), {"phi": 0.5}, (y[1:], y[:-1])
    )
    for seed in range(5):
        row_scaling.check_scaling(density, states, 20, seed)


CLOSED_OVER = torch.randn(2, 2, generator=G)


@pytest.mark.parametrize(
    "function",
    [
        residuals,
        lambda t, x, y: residuals(t, x, y).sum(),
        lambda t, x, y: residuals(t, x, y).sum() - len(x) / 60 * t["w"].square().sum(),
        # Sums of 1e4 that cancel, in float32; a matrix of float32 that float64 cannot use.
        lambda t, x, y: (residuals(t, x, y) + 1e4).float().sum() - 1e4 * len(x),
        lambda t, x, y: residuals({"w": CLOSED_OVER @ t["w"]}, x, y).sum(),
    ],
)
def test_sums_over_rows_pass(function):
    density, states = built(function, {"w": torch.zeros(2)}, (X, Y))
    for seed in range(20):
        row_scaling.check_scaling(density, states, 10, seed)


def test_a_mean_over_all_rows_is_warned_about_and_nothing_else_is():
    def mean(t, x, y):
        return residuals(t, x, y).mean()

    density, states = built(mean, {"w": torch.zeros(2)}, (X, Y))
    with pytest.warns(UserWarning, match="looks like a mean over rows"):
        row_scaling.check_scaling(density, states, None, 0)
    groups = torch.arange(60) % 3
    kernel = torch.eye(60) + 0.5
    legitimate = [
        residuals,
        lambda t, x, y: residuals(t, x, y).sum() - t["w"].square().sum(),  # its prior inside
        lambda t, x, y: -((y - t["w"][0] - groups) ** 2),  # an index of all rows
        lambda t, x, y: -(y - x @ t["w"]) @ torch.linalg.solve(kernel, y - x @ t["w"]),
        lambda t, x, y: -((y[1:] - t["w"][0] * y[:-1]) ** 2).sum() - t["w"][1] ** 2,
    ]
    for function in legitimate:
        density, states = built(function, {"w": torch.zeros(2)}, (X, Y))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            row_scaling.check_scaling(density, states, None, 0)


@pytest.mark.parametrize("batch_size", [None, 10])
def test_rows_that_are_broadcast_against_each_other_are_refused(batch_size):
    with pytest.raises(ConfigError, match=r"shape \(32, 32\) for 32 rows.*\[:, 0\]"):
        chains.sample(
            lambda t, x, y: -((y - x @ t["w"][:, None]) ** 2),
            {"w": torch.zeros(2)},
            data=(X, Y),
            batch_size=batch_size,
            **SHORT,
        )


# What is given and what is returned.


@pytest.mark.parametrize(
    ("start", "convert"),
    [
        (torch.zeros(2), lambda part: part.double().numpy()),
        ([0.0, 0.0], torch.Tensor.tolist),
        ((0, 0), torch.Tensor.double),
        (np.zeros(2), torch.Tensor.float),
    ],
)
def test_data_take_the_dtype_of_the_start(start, convert):
    data = tuple(convert(part) for part in (X, Y))
    init = {"w": start, "b": 0.0}
    draws = chains.sample(
        lambda t, x, y: -((y - x @ t["w"] - t["b"]) ** 2) / 2,
        init,
        data=data,
        **{**SHORT, "draws": 2},
    )
    wanted = torch.float64 if isinstance(start, np.ndarray) else torch.float32
    assert draws["w"].dtype == draws["b"].dtype == wanted


def test_labels_stay_integers():
    labels = (Y > 0).long()

    def classes(t, x, labels):
        logits = F.pad((x @ t["w"])[:, None], (0, 1))
        return -F.cross_entropy(logits, labels, reduction="none")

    prior = {"log_prior": lambda t: -t["w"].square().sum()}
    chains.sample(classes, {"w": [0.0, 0.0]}, data=(X.numpy(), labels.numpy()), **prior, **SHORT)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"transforms": {"x": transforms.positive}}, r"with parentheses, got positive"),
        ({"transforms": {"x": transforms.Above}}, r"with parentheses, got Above"),
        ({"transforms": {"x": "positive"}}, r"transforms\['x'\] must be positive\(\).*'positive'"),
        ({"log_density": lambda t: None}, "log_density must return a tensor, got None.*return"),
        ({"log_density": lambda t: 3.0}, r"log_density must return a tensor of floats.*got 3\.0"),
        ({"log_density": lambda t: t["x"] > 0}, "tensor of floats.*got torch.bool"),
        ({"log_prior": lambda t: None}, "log_prior must return a tensor, got None"),
    ],
)
def test_refusals(changes, match):
    given = {"log_density": lambda t: -(t["x"] ** 2), "init": {"x": 1.0}, **changes}
    with pytest.raises(ConfigError, match=match):
        chains.sample(**given)


@pytest.mark.parametrize(
    "function",
    [
        lambda t, x: -(t["w"] ** 2).sum() * float(t["w"][0]),
        lambda t, x: -(torch.eye(2).double() @ t["w"]).sum(),
        lambda t: -(t["w"] ** 2).sum(),
    ],
)
def test_what_log_density_raises_by_itself_says_how_it_was_called(function):
    with pytest.raises((RuntimeError, TypeError)) as caught:
        chains.sample(function, {"w": torch.ones(2)}, data=(X,))
    (note,) = caught.value.__notes__
    assert "{'w': (2,)} of torch.float32 and rows (60, 2) of torch.float32" in note


@pytest.mark.parametrize("function", [lambda t: t["x"] ** 2 / 2, lambda t: t["x"] ** 4])
def test_a_wrong_sign_is_told_in_words_of_sample(function):
    with pytest.raises(NonFiniteError, match=r"of the warm-up.*right sign.*minus a loss") as caught:
        chains.sample(function, {"x": 1.0}, **{**SHORT, "warm_up_steps": 300})
    assert "lr" not in str(caught.value)


# Distributions of torch.


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_distributions_are_evaluated_far_away(size):
    """Their checks raised “vmap: It looks like you're …” at rates of e^±1000.

    The posterior is Gamma(60 + 1, sum): mean to 0.5 of its sd, of an ESS above 30.
    """
    y = Y.abs() * size
    draws = chains.sample(
        lambda t, y: Exponential(t["rate"]).log_prob(y),
        {"rate": 1.0},
        transforms={"rate": transforms.positive()},
        data=(y,),
        **{**SHORT, "draws": 100, "warm_up_steps": 200},
    )
    away = float(draws["rate"].mean() * y.sum()) - 61
    assert abs(away) < 0.5 * 61**0.5


@pytest.mark.parametrize("on", [True, False])
def test_data_outside_of_the_support_of_a_distribution_are_refused(monkeypatch, on):
    monkeypatch.setattr(Distribution, "_validate_args", on)  # torch.compile leaves it off

    def coins(t, y):
        return Bernoulli(logits=t["a"]).log_prob(y)

    with pytest.raises(ValueError, match="within the support"):
        chains.sample(coins, {"a": 0.0}, data=(torch.tensor([0.0, 1.0, 2.0]),), **SHORT)
    assert Distribution._validate_args == on


def test_a_scale_out_of_range_at_init_is_told_in_words_of_sample():
    with pytest.raises(NonFiniteError, match=r"nan at init.*give the parameter a transform"):
        chains.sample(lambda t: Normal(0.0, t["s"]).log_prob(t["x"]), {"x": 1.0, "s": -1.0})


# Numbers that are not finite.


def test_rows_of_the_data_that_are_not_finite_are_named():
    x = X.clone()
    x[17, 1], x[20, 0] = float("nan"), float("inf")
    y = Y.index_fill(0, torch.tensor([3]), float("inf"))
    with pytest.raises(NonFiniteError, match=r"nan at init.*row 17 of data\[0\].*2 of 60 rows"):
        chains.sample(residuals, {"w": torch.zeros(2)}, data=(x, Y), **SHORT)
    with pytest.raises(NonFiniteError, match=r"row 3 of data\[1\].*1 of 60 rows"):
        chains.sample(residuals, {"w": torch.zeros(2)}, data=(X, y), **SHORT)


def test_gaps_that_log_density_leaves_out_pass():
    def without_gaps(t, x, y):
        return torch.where(y.isnan(), 0, residuals(t, x, y.nan_to_num()))

    y = Y.index_fill(0, torch.tensor([3]), float("nan"))
    chains.sample(without_gaps, {"w": torch.zeros(2)}, data=(X, y), **{**SHORT, "draws": 2})


def test_a_parameter_without_numbers_is_refused():
    empty, message = {"x": torch.zeros(0)}, r"init\['x'\] must hold at least one number.*\(0,\)"
    with pytest.raises(ConfigError, match=message):
        chains.sample(lambda t: -(t["y"] ** 2), {"y": 0.0, **empty}, **SHORT)
    with pytest.raises(ConfigError, match=message):
        chains.run(residuals, empty, chains=2, steps=4, lr=0.1, eta=0.5)


BETA = {"p": transforms.between(0, 1)}
GAMMA = {"x": transforms.positive()}


@pytest.mark.parametrize(
    ("function", "init", "given", "message"),
    [
        (
            lambda t: -0.9 * t["p"].log() - 0.9 * (1 - t["p"]).log(),
            {"p": 0.5},
            BETA,
            "p reached its bound 1 in float32.*start in float64, or make the logit of p",
        ),
        (
            lambda t: -0.95 * t["x"].log() - t["x"],
            {"x": 1.0},
            GAMMA,
            "x reached its bound 0 in float32.*start in float64, or make the log of x",
        ),
    ],
)
def test_a_parameter_that_is_rounded_to_its_bound_is_named(function, init, given, message):
    """Beta(0.1, 0.1) and Gamma(0.05): of their mass 18 % and 0.6 % is beyond float32."""
    settings = {"draws": 500, "warm_up_steps": 500, "thin": 4, "seed": 0}
    with pytest.raises(NonFiniteError, match=message) as caught:
        chains.sample(function, init, transforms=given, **settings)
    assert "sign" not in str(caught.value)


def test_bounds_in_float64_and_far_from_them():
    one = torch.ones((), dtype=torch.float64)
    density, states = built(lambda t: t["p"], {"p": one / 2}, transforms=BETA)
    assert density_checks.at_a_bound(density, states) == ""
    said = density_checks.at_a_bound(density, 50 + states)
    assert "in float64" in said
    assert "start in" not in said
