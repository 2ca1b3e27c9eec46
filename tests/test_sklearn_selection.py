"""What held-out rows choose: candidates, folds and noise models, against plain computations."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from scipy.stats import t as student

from entropy_mcmc.sklearn.chain_plan import Plan
from entropy_mcmc.sklearn.classifier_selection import (
    FALLBACK,
    LINEAR_PRIORS,
    PRIORS,
    Open,
    choose,
    held_out_nll,
)
from entropy_mcmc.sklearn.estimator_chains import Draws, Table
from entropy_mcmc.sklearn.likelihood import Categorical
from entropy_mcmc.sklearn.mixture_quantiles import mixture_cdf, mixture_quantiles, student_cdf
from entropy_mcmc.sklearn.networks import Architecture, forward
from entropy_mcmc.sklearn.noise_models import (
    DEGREES,
    LogVariance,
    NoiseModel,
    fit_noise,
    mixture_log_density,
    pick,
    reweighted,
)
from entropy_mcmc.sklearn.regressor_selection import (
    GRID,
    HeldOutNoise,
    grouped,
    log_likelihoods,
    noise_variances,
    pilot,
)
from entropy_mcmc.sklearn.selection import Candidate, Scores, folds

PLAN = Plan(
    sizes=(2, 3, 1),
    activation="tanh",
    chains=3,
    steps=12,
    samples=2,
    batch=100,
    lr=0.1,
    momentum=0.5,
    horizon=20.0,
    temperature=1.0,
    prior_variance=2.0,
    burn_in=0.5,
    roles="theta",
    seed=5,
)
LINEAR, DEEP, WIDE = ((), "tanh"), ((5,), "tanh"), ((9, 9), "relu")


def test_quantiles_solve_the_equation():
    draws = np.random.default_rng(0)
    means, scales = 3 * draws.standard_normal((5, 7)), draws.uniform(0.1, 2, (5, 7))
    for probability in (0.025, 0.5, 0.9):
        quantiles = mixture_quantiles(means, scales, probability)
        np.testing.assert_allclose(norm.cdf(quantiles, means, scales).mean(axis=0), probability)
        quantiles = mixture_quantiles(means, scales, probability, 4.0)
        np.testing.assert_allclose(
            student.cdf(quantiles, 4, means, scales).mean(axis=0), probability
        )


@pytest.mark.parametrize("degrees", [math.inf, 10.0, 4.0])
@pytest.mark.parametrize("apart", [0.0, 0.3, 30.0])
def test_quantiles_are_those_of_bisection(degrees, apart):
    draws = np.random.default_rng(1)
    means, scales = apart * draws.standard_normal((9, 40)), draws.lognormal(size=(9, 40))
    for probability in (1e-6, 0.025, 0.37, 0.975):
        z = norm.ppf(probability) if math.isinf(degrees) else student.ppf(probability, degrees)
        low, high = (means + scales * z).min(axis=0), (means + scales * z).max(axis=0)
        for _ in range(80):
            middle = (low + high) / 2
            below = mixture_cdf(middle, means, scales, degrees) < probability
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        quantiles = mixture_quantiles(means, scales, probability, degrees)
        np.testing.assert_allclose(quantiles, low, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("degrees", [2, 4, 10])
def test_student_cdf_is_scipys(degrees):
    places = np.linspace(-40, 40, 801)
    np.testing.assert_allclose(
        student_cdf(places, degrees), student.cdf(places, degrees), rtol=1e-12, atol=1e-15
    )


def test_degrees_of_freedom_are_even():
    """`student_cdf` has its closed form for even ones only."""
    assert all(math.isinf(d) or d % 2 == 0 for d in DEGREES)


def test_quantiles_where_no_component_has_any_density():
    """Two far modes and the median between them: every point there solves the equation."""
    means, scales = np.array([[-1e6], [1e6]]), np.ones((2, 1))
    median = mixture_quantiles(means, scales, 0.5)
    assert mixture_cdf(median, means, scales, math.inf) == pytest.approx(0.5, abs=1e-9)


def test_folds_hold_out_each_row_once():
    train, held_out = folds(20, torch.Generator().manual_seed(0))
    assert len(set(held_out.flatten().tolist())) == 18
    for used, kept_back in zip(train, held_out, strict=True):
        assert sorted([*used.tolist(), *kept_back.tolist()]) == list(range(20))


def test_held_out_nll_is_that_of_the_average_of_a_chain():
    generator = torch.Generator().manual_seed(2)
    plan = Plan(**vars(PLAN) | {"sizes": (2, 3, 2)})
    form = plan.architecture
    draws = Draws(torch.randn(2, 3, form.weights, generator=generator), torch.ones(2, 3))
    x = torch.randn(8, 2, generator=generator)
    labels = torch.randint(2, (8,), generator=generator)
    offset = torch.tensor([0.3, -0.1])
    rows = torch.tensor([[0, 1, 2], [3, 4, 5], [5, 6, 7]])
    table = Table(x, torch.eye(2)[labels])
    actual = held_out_nll(draws, plan, table, Categorical(offset), rows)
    for chain in range(3):
        for place, row in enumerate(rows[chain]):
            chances = [
                (forward(form, form.layers(flat[chain][None]), x[row][None, None])[0][0, :, 0])
                .add(offset)
                .softmax(dim=0)[labels[row]]
                .item()
                for flat in draws.flat
            ]
            assert actual[chain, place].item() == pytest.approx(-math.log(sum(chances) / 2), 1e-5)


def given(table):
    """Losses of candidates, from a table (network, prior variance, T) → mean; others are bad."""

    def losses(candidates):
        wanted = [(c.network, c.prior_variance, c.temperature) for c in candidates]
        means = [next((v for k, v in table if k(*key)), 9.0) for key in wanted]
        return {c: torch.tensor([m, m]) for c, m in zip(candidates, means, strict=True)}

    return losses


def test_the_candidate_that_predicts_held_out_rows_is_chosen():
    every = Open((DEEP, WIDE, LINEAR), None, None)
    wide = [(lambda n, v, T: n == WIDE and v == 30 and T == 0.02, 1.0)]
    coarse = [(lambda n, v, T: n != LINEAR and v == 30, 2.0)]
    best, scores = choose(every, 100, given(wide + coarse))
    # At T = 0.1 networks are equal, and the first of them goes on to other temperatures.
    assert best == Candidate(DEEP, 30.0, 0.1)
    ahead = [(lambda n, v, T: n == WIDE and v == 30 and T == 0.1, 1.5)]
    best, scores = choose(every, 100, given(wide + ahead + coarse))
    assert best == Candidate(WIDE, 30.0, 0.02)
    tried = {(c.network, round(c.prior_variance, 3)) for c in scores.losses}
    assert {(LINEAR, v) for v in LINEAR_PRIORS} | {(DEEP, v) for v in PRIORS} < tried
    assert {(DEEP, 9.487), (DEEP, 94.868), (WIDE, 9.487), (WIDE, 30.0)} < tried


def test_the_simplest_of_equals_is_chosen():
    every = Open((DEEP, WIDE, LINEAR), None, None)
    best, _ = choose(every, 100, given([(lambda *_: True, 1.0)]))
    assert best.network == LINEAR
    assert best.prior_variance == min(LINEAR_PRIORS)


def test_what_is_fixed_is_not_searched():
    losses = given([(lambda *_: True, 1.0)])
    best, scores = choose(Open((DEEP,), 7.0, 0.3), 100, losses)
    assert (best, scores.losses) == (Candidate(DEEP, 7.0, 0.3), {})
    _, scores = choose(Open((DEEP, LINEAR), 7.0, None), 100, losses)
    assert {c.prior_variance for c in scores.losses} == {7.0}
    assert len({c.temperature for c in scores.losses}) == 3
    _, scores = choose(Open((DEEP, LINEAR), None, 0.3), 100, losses)
    assert {c.temperature for c in scores.losses} == {0.3}
    best, scores = choose(Open((DEEP, LINEAR), None, None), 20, losses)
    assert (best, scores.losses) == (Candidate(DEEP, FALLBACK, 1.0), {})


def test_a_simple_candidate_may_be_worse_by_a_share_of_a_standard_error():
    losses = torch.tensor([[2.0, 2.1, 1.9], [1.0, 1.2, 1.0], [0.9, 1.3, 0.9], [1.5, 1.5, 1.5]])
    candidates = [Candidate(DEEP, v, 1.0) for v in (1.0, 2.0, 3.0, 4.0)]
    scores = Scores(dict(zip(candidates, losses, strict=True)))
    assert scores.best() == candidates[2]
    assert scores.cautious(lambda c: c.prior_variance, 1.0) == candidates[1]
    assert scores.cautious(lambda c: c.prior_variance, 0.0) == candidates[2]


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
    variances = noise_variances(errors)
    # Each row's difference has a standard deviation below 4·(noise + spread)²: 5 standard errors.
    tolerance = 5 * 4 * (noise + spread).square().squeeze() / math.sqrt(rows)
    assert ((variances - noise.square().squeeze()).abs() < tolerance).all()
    apart = torch.tensor([[[10.0]], [[-10.0]]])
    assert noise_variances(apart).tolist() == [0.0]


def test_errors_are_grouped_by_twin_and_candidate():
    values = torch.arange(12)[:, None] + torch.tensor([0.0, 0.5])
    actual = grouped(values)  # chains in the order candidate, fold, twin
    assert actual.shape == (2, 2, 6)
    assert actual[0, 0].tolist() == [0.0, 0.5, 2.0, 2.5, 4.0, 4.5]
    assert actual[1, 1].tolist() == [7.0, 7.5, 9.0, 9.5, 11.0, 11.5]
    assert grouped(values.expand(5, 12, 2)).shape == (5, 2, 2, 6)


def test_held_out_likelihood_is_that_of_the_mixture():
    errors = np.random.default_rng(0).standard_normal((4, 2, 3))
    likelihoods = log_likelihoods(torch.from_numpy(errors))
    for i in (0, 30, 65):
        density = norm.pdf(errors, scale=math.sqrt(GRID[i])).mean(axis=0)
        with np.errstate(divide="ignore"):
            wanted = np.log(density).mean(axis=1)
        finite = np.isfinite(wanted)
        np.testing.assert_allclose(likelihoods[i].numpy()[finite], wanted[finite], rtol=1e-4)


@pytest.mark.parametrize("priors", [(0.02, 1.0, 0.02), (0.02, 0.02, 1.0), (1.0,)])
def test_the_pilot_picks_the_prior_that_can_fit(priors):
    """A prior of almost no variance cannot hold a straight line, wherever it stands."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(60, 2, generator=generator)
    y = x[:, :1] + 0.1 * torch.randn(60, 1, generator=generator)
    plan = Plan(**vars(PLAN) | {"steps": 800, "lr": 0.3, "momentum": 0.9})
    choice = pilot(plan, Table(x, y), ((8,), "tanh"), priors)
    assert choice.candidates[choice.best].prior_variance == 1.0
    assert 0.05**2 < choice.noise < 0.2**2
    assert sorted(choice.rows.tolist()) == list(range(60))


def test_heats_follow_the_held_out_rows():
    """Networks that are the zero function: the noise is the variance of the held-out targets."""
    form = Architecture((1, 1), "tanh")
    targets = torch.tensor([[0.4], [-0.4]]).repeat(6, 1, 1)
    likelihood = HeldOutNoise(form, torch.zeros(6, 2, 1), targets)
    for step in range(1000):
        likelihood.watch(step, torch.zeros(6, 2))
    torch.testing.assert_close(likelihood.heats, torch.full((6,), 0.16), rtol=1e-4, atol=0)


@pytest.mark.parametrize("degrees", [math.inf, 4.0])
def test_log_density_is_that_of_the_mixture(degrees):
    errors = np.random.default_rng(0).standard_normal((4, 3))
    scales = np.array([0.5, 1.0, 2.0])
    noise = norm(0, scales) if math.isinf(degrees) else student(degrees, 0, scales)
    density = mixture_log_density(torch.from_numpy(errors), torch.from_numpy(scales**2), degrees)
    np.testing.assert_allclose(density.numpy(), np.log(noise.pdf(errors).mean(axis=0)))


def test_slope_of_the_log_variance_is_that_of_autograd():
    g = torch.randn(2, 1, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    squares = torch.rand(1, 5, 1)
    (0.5 * (g + squares.mT * (-g).exp())).mean(dim=(1, 2)).sum().backward()
    slopes = LogVariance().slopes(g.detach(), squares, None)
    torch.testing.assert_close(slopes, g.grad)


def test_more_freedom_must_pay():
    plain, rich = NoiseModel(), NoiseModel(4.0)
    logs = torch.tensor([0.0, 0.0, 0.0, 0.0])
    assert pick({plain: logs, rich: logs + torch.tensor([1.0, -0.8, 0.5, -0.5])}) == plain
    assert pick({plain: logs, rich: logs + torch.tensor([1.0, 0.8, 0.5, -0.5])}) == rich
    assert pick({rich: logs}) == rich


ALL = ("constant", "dependent", "gaussian", "student")


def noise_of(errors, x, kinds=ALL):
    table = Table(x, torch.zeros(len(x), 1))
    plan = Plan(**vars(PLAN) | {"sizes": (1, 1), "batch": 200})
    return fit_noise(plan, table, torch.arange(len(x)), errors[None], 1.0, kinds)[0]


def test_held_out_errors_choose_the_noise():
    draws = np.random.default_rng(0)
    x = torch.from_numpy(draws.standard_normal((600, 1))).float()
    plain = torch.from_numpy(draws.standard_normal(600)).float()
    heavy = torch.from_numpy(draws.standard_t(2.5, 600)).float()
    assert noise_of(plain, x).name == "Gaussian, constant"
    assert noise_of(heavy, x).name == "Student's t(4), constant"
    model = noise_of(plain * (0.8 * x[:, 0]).exp(), x)
    assert model.form is not None
    ends = model.factors(torch.tensor([[-1.5], [1.5]])).log()
    # log-variance grows by 1.6 for each unit of x: 4.8 between the ends; half of it at least.
    assert 2.4 < float(ends[1] - ends[0]) < 7.2
    assert noise_of(heavy, x, ("constant", "gaussian")).name == "Gaussian, constant"
    assert noise_of(plain[:30], x[:30]).name == "Gaussian, constant"


def test_rows_weigh_as_the_noise_allows_and_the_level_follows():
    form = Architecture((1, 1), "tanh")
    model = NoiseModel(form=form, flat=torch.tensor([[1.0, 0.5]]))  # g = x + ½
    x = torch.linspace(-0.5, 0.5, 11)[:, None]
    weights = torch.linspace(1.0, 2.0, 11)
    table, scaled = reweighted(Table(x, x, weights, 16.5), model)
    torch.testing.assert_close(table.weights / weights, (-x[:, 0]).exp() / (-x).exp().mean())
    assert table.num_data == 16.5
    # Errors of variance a·exp(g) have the weighted mean square s; s·factor must be a·exp(g) again.
    variances = 0.7 * (x[:, 0] + 0.5).exp()
    s = float((table.weights / weights * variances).mean())
    torch.testing.assert_close(s * scaled.factors(x), variances)
    same, constant = reweighted(table, NoiseModel())
    assert same is table
    assert constant.level == 1.0
