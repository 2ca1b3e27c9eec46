"""The estimators: scikit-learn's own checks, its tools, and the predictive against plain loops."""

import io
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from entropy_mcmc import EntropyMCMC
from entropy_mcmc.errors import ConfigError, NonFiniteError
from entropy_mcmc.sklearn import EntropyMCMCClassifier, EntropyMCMCRegressor
from entropy_mcmc.sklearn.base import automatic_steps, moments
from entropy_mcmc.sklearn.likelihood import Categorical, Gaussian
from entropy_mcmc.sklearn.mixture import mixture_quantiles
from entropy_mcmc.sklearn.network import ACTIVATIONS, draw_networks, forward
from entropy_mcmc.sklearn.sampling import LEAST_LR, Draws, Plan, run
from entropy_mcmc.sklearn.selection import CANDIDATES, FALLBACK, folds, held_out_nll

QUICK = {"n_steps": 60, "n_samples": 4, "n_chains": 2, "random_state": 0}
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


def wave(rows=120, noise=0.1, seed=0):
    draws = np.random.default_rng(seed)
    x = draws.uniform(-2, 2, (rows, 2))
    return x, np.sin(2 * x[:, 0]) + x[:, 1] + noise * draws.standard_normal(rows)


@parametrize_with_checks([EntropyMCMCClassifier(**QUICK), EntropyMCMCRegressor(**QUICK)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# The regressor's checks with its defaults are left out: a whole run of them has not been seen yet.
@pytest.mark.soak
@parametrize_with_checks([EntropyMCMCClassifier()])
def test_scikit_learn_checks_with_defaults(estimator, check):
    check(estimator)


def test_grid_search_in_a_pipeline():
    x, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), EntropyMCMCClassifier(**QUICK))
    grid = {"entropymcmcclassifier__prior_variance": [0.5, 2.0]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss", error_score="raise")
    search.fit(x, y)
    assert search.best_score_ > -math.log(3)
    assert search.best_estimator_.score(x, y) > 0.9


def test_cross_validation_of_a_clone():
    x, y = wave()
    model = clone(EntropyMCMCRegressor(**QUICK, lr=0.5))
    assert model.lr == 0.5
    assert cross_val_score(model, x, y, cv=2).mean() > 0.5


@pytest.mark.parametrize("kind", [EntropyMCMCClassifier, EntropyMCMCRegressor])
def test_pickle_is_self_contained(kind):
    x, y = wave()
    y = y > 0 if kind is EntropyMCMCClassifier else y
    model = kind(**QUICK).fit(x, y)
    stream = io.BytesIO()
    pickle.dump(model, stream)
    again = pickle.loads(stream.getvalue())
    np.testing.assert_array_equal(again.sample_predictions(x), model.sample_predictions(x))


def test_random_state_decides_everything():
    x, y = wave()
    one, same, other = (
        EntropyMCMCRegressor(**QUICK | {"random_state": s}).fit(x, y).predict(x) for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3


def test_pandas_names_are_kept_and_checked():
    x, y = wave()
    frame = pd.DataFrame(x, columns=["wind", "sun"])
    model = EntropyMCMCRegressor(**QUICK).fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["wind", "sun"]
    np.testing.assert_array_equal(
        model.predict(frame), EntropyMCMCRegressor(**QUICK).fit(x, y).predict(x)
    )
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"sun": "rain"}))


def test_string_classes_and_probabilities():
    x, y = wave()
    labels = np.where(y > 0, "up", "down")
    model = EntropyMCMCClassifier(**QUICK | {"n_steps": 200}).fit(x.astype(np.float32), labels)
    probabilities = model.predict_proba(x)
    assert list(model.classes_) == ["down", "up"]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(model.sample_predictions(x).mean(axis=0), probabilities)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(x)), probabilities)
    assert (model.predict(x) == labels).mean() > 0.9


def test_units_of_inputs_and_targets_do_not_matter():
    x, y = wave()
    plain = EntropyMCMCRegressor(**QUICK).fit(x, y)
    moved = EntropyMCMCRegressor(**QUICK).fit(1000 * x - 7, 1e6 * y + 3e6)
    mean, std = plain.predict(x, return_std=True)
    other_mean, other_std = moved.predict(1000 * x - 7, return_std=True)
    np.testing.assert_allclose(other_mean, 1e6 * mean + 3e6, rtol=1e-3, atol=1e3)
    np.testing.assert_allclose(other_std, 1e6 * std, rtol=1e-3)
    np.testing.assert_allclose(
        moved.predict_interval(1000 * x - 7), 1e6 * plain.predict_interval(x) + 3e6, atol=3e3
    )


def test_std_and_interval_are_those_of_the_mixture():
    x, y = wave()
    model = EntropyMCMCRegressor(**QUICK, roles="both").fit(x, y)
    means, noise = model.sample_predictions(x), model.noise_std_
    assert means.shape == (2 * 4 * 2, len(x))
    draws = np.random.default_rng(0)
    which = draws.integers(len(means), size=200_000)
    values = means[which, 3] + noise[which] * draws.standard_normal(len(which))
    mean, std = model.predict(x, return_std=True)
    # 5 standard errors of the mean; of the std, about std/√(2n): false alarm 1e-6.
    assert abs(values.mean() - mean[3]) < 5 * std[3] / math.sqrt(len(values))
    assert abs(values.std() / std[3] - 1) < 5 / math.sqrt(2 * len(values))
    low, high = model.predict_interval(x, level=0.8)[3]
    inside = np.mean((values > low) & (values < high))
    assert abs(inside - 0.8) < 5 * math.sqrt(0.8 * 0.2 / len(values))


def test_quantiles_solve_the_equation():
    draws = np.random.default_rng(0)
    means, stds = 3 * draws.standard_normal((5, 7)), draws.uniform(0.1, 2, 5)
    for probability in (0.025, 0.5, 0.9):
        found = mixture_quantiles(means, stds, probability)
        np.testing.assert_allclose(norm.cdf(found, means, stds[:, None]).mean(axis=0), probability)


def test_noise_is_learned_and_intervals_cover():
    x, y = wave(rows=400, noise=0.3)
    model = EntropyMCMCRegressor(n_steps=800, random_state=0).fit(x, y)
    # The estimate of a std from 400 rows has a standard error of 3.5 %; 4.5 of them are 16 %.
    assert model.noise_std_.mean() == pytest.approx(0.3, rel=0.16)
    test_x, test_y = wave(rows=2000, noise=0.3, seed=1)
    low, high = model.predict_interval(test_x).T
    assert 0.92 < np.mean((test_y > low) & (test_y < high)) < 0.98


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_stacked_forward_is_each_network_alone(name):
    generator = torch.Generator().manual_seed(0)
    params = [p.double() + 0.1 for p in draw_networks((4, 6, 5, 2), 3, generator)]
    x = torch.randn(7, 4, generator=generator, dtype=torch.float64)
    bend, gain = ACTIVATIONS[name]
    for chain, out in enumerate(forward(params, x, name)):
        w1, b1, w2, b2, w3, b3 = (p[chain] for p in params)
        h = bend(x @ w1 / 4**0.5 + b1)
        h = bend(h @ w2 * gain / 6**0.5 + b2)
        torch.testing.assert_close(out, h @ w3 * gain / 5**0.5 + b3)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gains_keep_the_second_moment(name):
    bend, gain = ACTIVATIONS[name]
    z = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    density = torch.exp(-z.square() / 2) / math.sqrt(2 * math.pi)
    moment = torch.trapezoid(density * (gain * bend(z)).square(), z)
    assert 0.85 < moment < 1.15


def test_categorical_is_the_mean_cross_entropy_of_each_chain():
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(2, 5, 3, generator=generator)
    labels = torch.randint(3, (2, 5), generator=generator)
    each = [torch.nn.functional.cross_entropy(o, t) for o, t in zip(outputs, labels, strict=True)]
    torch.testing.assert_close(Categorical().loss(outputs, labels), sum(each))
    shared = [torch.nn.functional.cross_entropy(o, labels[0]) for o in outputs]
    torch.testing.assert_close(Categorical().loss(outputs, labels[0]), sum(shared))


def test_run_is_the_sampler_on_the_posterior_energy():
    """Chains in one optimizer, loss M at heat s, equal the sampler on M/s at temperature 1."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(9, 2, generator=generator), torch.randn(9, generator=generator)
    heat = 0.25

    class Fixed(Gaussian):
        def _learn(self, error):
            self.heat = heat

    draws = run(PLAN, x, y, Fixed())
    params = draw_networks(PLAN.sizes, PLAN.chains, torch.Generator().manual_seed(PLAN.seed))
    params = [p.requires_grad_() for p in params]
    sampler = EntropyMCMC(
        params,
        lr=heat * PLAN.lr,
        num_data=9,
        eta=PLAN.horizon * PLAN.lr / 9,
        weight_decay=1 / (9 * PLAN.prior_variance),
        momentum=PLAN.momentum,
        seed=PLAN.seed,
    )
    # Loss M at heat s couples by 1/η on the scale of M, which is 1/(ηs) on the scale of M/s.
    sampler.param_groups[0]["eta"] *= heat
    kept = []
    for step in range(PLAN.steps):
        fall = LEAST_LR + (1 - LEAST_LR) * (1 + math.cos(math.pi * step / PLAN.steps)) / 2
        sampler.param_groups[0]["lr"] = heat * PLAN.lr * fall
        sampler.zero_grad()
        outputs = torch.stack(
            [forward([p[c : c + 1] for p in params], x, "tanh")[0, :, 0] for c in range(3)]
        )
        loss = ((outputs - y) ** 2 / (2 * heat)).mean(dim=1).sum()
        loss.backward()
        sampler.step()
        if step in (7, 8, 10, 11):
            kept += [[p.detach().clone() for p in params]]
            kept += [[sampler.state[p]["guide"].clone() for p in params]]
    wanted = [torch.cat(tensors).numpy() for tensors in zip(*kept, strict=True)]
    for found, expected in zip(draws.params, wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("steps", "samples", "burn_in"), [(12, 4, 0.5), (100, 7, 0.3), (5, 5, 0)])
def test_samples_are_due_evenly_up_to_the_last_step(steps, samples, burn_in):
    plan = Plan(**vars(PLAN) | {"steps": steps, "samples": samples, "burn_in": burn_in})
    due = [step for step in range(steps) if plan.is_due(step)]
    assert len(due) == samples
    assert due[-1] == steps - 1
    assert due[0] >= burn_in * steps
    gaps = np.diff(due)
    assert gaps.max() - gaps.min() <= 1


def test_batches_differ_between_chains_and_visit_every_row():
    from entropy_mcmc.sklearn.sampling import _batches

    plan = Plan(**vars(PLAN) | {"batch": 5})
    rows = _batches(plan, 20, torch.Generator().manual_seed(0))
    seen = torch.cat([next(rows) for _ in range(4)], dim=1)
    assert all(sorted(chain.tolist()) == list(range(20)) for chain in seen)
    assert not torch.equal(seen[0], seen[1])


def test_a_constant_column_and_a_constant_target():
    x = np.column_stack([np.full(30, 1e9), np.arange(30.0)])
    mean, std = EntropyMCMCRegressor(**QUICK).fit(x, np.full(30, 5.0)).predict(x, return_std=True)
    np.testing.assert_allclose(mean, 5.0, atol=1.0)
    assert np.isfinite(std).all()
    assert moments(x)[1][0] == 1


def test_two_rows_are_enough():
    x = np.array([[0.0], [1.0]])
    assert list(EntropyMCMCClassifier(random_state=0).fit(x, [0, 1]).predict(x)) == [0, 1]
    assert np.isfinite(EntropyMCMCRegressor(random_state=0).fit(x, [0.0, 1.0]).predict(x)).all()


def test_a_rate_far_too_high_is_lowered():
    x, y = wave()
    model = EntropyMCMCRegressor(**QUICK | {"lr": 20.0}).fit(x, y)
    assert model.lr_ < 20.0
    assert model.score(x, y) > 0.5
    with pytest.raises(NonFiniteError, match=r"diverged at lr=1000000.0.*smaller lr"):
        EntropyMCMCRegressor(**QUICK | {"lr": 1e6}).fit(x, y)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_chains", 0),
        ("n_steps", "many"),
        ("lr", -1.0),
        ("momentum", 1.0),
        ("roles", "all"),
        ("prior_variance", 0.0),
        ("hidden_layer_sizes", (0,)),
        ("n_samples", 31),
    ],
)
def test_bad_parameters_are_named(name, value):
    x, y = wave()
    with pytest.raises(ConfigError, match=name):
        EntropyMCMCRegressor(**QUICK | {name: value}).fit(x, y)


def test_bad_calls_are_refused():
    x, y = wave()
    with pytest.raises(ConfigError, match="2 classes"):
        EntropyMCMCClassifier(**QUICK).fit(x, np.zeros(len(x), dtype=int))
    with pytest.raises(NotFittedError):
        EntropyMCMCRegressor().predict(x)
    model = EntropyMCMCRegressor(**QUICK).fit(x, y)
    with pytest.raises(ConfigError, match="level"):
        model.predict_interval(x, level=95)


def test_steps_grow_with_the_table():
    steps = [automatic_steps(n) for n in (2, 100, 1000, 10**5, 10**7)]
    assert steps == sorted(steps)
    assert steps[-1] == steps[-2]


def test_predictions_do_not_depend_on_the_chunks(monkeypatch):
    x, y = wave()
    model = EntropyMCMCRegressor(**QUICK).fit(x, y)
    whole = model.predict(x)
    monkeypatch.setattr("entropy_mcmc.sklearn.base.CHUNK", 7 * 50 * 8)
    np.testing.assert_allclose(model.predict(x), whole, rtol=1e-12)


def test_each_chain_may_have_its_own_rows_and_prior():
    """A chain of a stacked run equals the same chain when all rows and priors are its own."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(12, 2, generator=generator), torch.randn(12, generator=generator)

    class Fixed(Gaussian):
        def _learn(self, error):
            self.heat = 0.5

    rows = torch.stack([torch.arange(6), torch.arange(6) + 3, torch.arange(6) + 6])
    mixed = run(PLAN, x, y, Fixed(), rows=rows, priors=torch.tensor([1.0, 2.0, 50.0]))
    for chain, prior in enumerate((1.0, 2.0, 50.0)):
        own = rows[chain]
        alone = run(Plan(**vars(PLAN) | {"prior_variance": prior}), x[own], y[own], Fixed())
        for found, expected in zip(mixed.params, alone.params, strict=True):
            np.testing.assert_allclose(found[chain::3], expected[chain::3], rtol=1e-4, atol=1e-5)


def test_folds_hold_out_each_row_once():
    train, held_out = folds(20, torch.Generator().manual_seed(0))
    assert len(set(held_out.flatten().tolist())) == 18
    for used, kept_back in zip(train, held_out, strict=True):
        assert sorted([*used.tolist(), *kept_back.tolist()]) == list(range(20))


def test_held_out_nll_is_that_of_the_average_of_a_chain():
    generator = torch.Generator().manual_seed(2)
    plan = Plan(**vars(PLAN) | {"sizes": (2, 3, 2), "samples": 2})
    draws = Draws([p.numpy() + 0.3 for p in draw_networks((2, 3, 2), 6, generator)], np.ones(6))
    draws.params[-2][:] = torch.randn(6, 3, 2, generator=generator).numpy()
    x = torch.randn(8, 2, generator=generator)
    labels = torch.randint(2, (8,), generator=generator)
    rows = torch.tensor([[0, 1, 2], [3, 4, 5], [5, 6, 7]])
    found = held_out_nll(draws, plan, x, labels, rows)
    for chain in range(3):
        total = 0.0
        for row in rows[chain]:
            chances = [
                forward(
                    [torch.from_numpy(p[s : s + 1]) for p in draws.params], x[row][None], "tanh"
                )
                .softmax(dim=-1)[0, 0, labels[row]]
                .item()
                for s in (chain, chain + 3)
            ]
            total -= math.log(sum(chances) / 2) / 3
        assert found[chain].item() == pytest.approx(total, rel=1e-5)


def test_a_table_decides_its_prior():
    draws = np.random.default_rng(0)
    x = draws.standard_normal((150, 4))
    steps = {"n_steps": 200, "n_samples": 4, "random_state": 0}
    coin = EntropyMCMCClassifier(**steps).fit(x, draws.integers(2, size=150))
    clear = EntropyMCMCClassifier(**steps).fit(x, x[:, 0] > 0)
    assert coin.prior_variance_ == min(CANDIDATES)
    assert clear.prior_variance_ > coin.prior_variance_
    assert EntropyMCMCClassifier(**steps).fit(x[:20], x[:20, 0] > 0).prior_variance_ == FALLBACK
