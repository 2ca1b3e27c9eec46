"""Recipes: complete, explained, and accepted by the samplers they are for."""

import dataclasses
import math

import pytest
import torch

from entropy_mcmc import EntropyMCMC, models, schedules
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.recipes import (
    SHOWN,
    adapters,
    from_scratch,
    from_trained,
    mean_fan_in,
    short_chains,
)

RECIPES = (from_scratch, from_trained, short_chains, adapters)


def network():
    return torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.ReLU(), torch.nn.Linear(20, 2))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda f: f.__name__)
def test_every_value_has_a_reason(recipe):
    made = recipe(network(), 1000, 50, passes=40)
    assert all(made.reasons[name] for name in SHOWN)
    assert all(name in str(made) for name in SHOWN)
    assert len(str(made).splitlines()) == 1 + len(SHOWN)


def test_a_wide_linear_layer_is_warmed_up():
    wide, narrow = torch.nn.Linear(1001, 2), torch.nn.Linear(1000, 2)
    convolution = torch.nn.Conv2d(512, 8, 3)  # 4,608 inputs, but normalised as a rule
    made = [from_scratch(m, 1000, 50, passes=40).warm_up for m in (wide, narrow, convolution)]
    assert made == [0.05, 0.0, 0.0]
    assert "1001 inputs" in str(from_scratch(wide, 1000, 50, passes=40))
    assert from_trained(wide, 1000, 50, passes=40).warm_up == 0.0
    wide.requires_grad_(False)
    assert from_scratch(wide, 1000, 50, passes=40).warm_up == 0.0


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda f: f.__name__)
def test_sampler_and_schedule_accept_it(recipe):
    model = network()
    made = recipe(model, 1000, 50, passes=8)
    sampler = EntropyMCMC(model.parameters(), **made.sampler_options(), seed=0)
    cycle = schedules.Cyclical(sampler, **made.schedule_options())
    due = sum(cycle.is_due(step) for step in range(made.steps))
    assert due == made.samples
    assert not cycle.is_noisy(math.ceil(made.burn_in * made.steps) - 1)


@pytest.mark.parametrize("chains", [1, 2, 4])
def test_chains_share_the_budget(chains):
    made = from_scratch(network(), 1000, 50, passes=40, chains=chains)
    assert chains * made.steps * 50 <= 40 * 1000
    assert chains * (made.steps + 1) * 50 > 40 * 1000


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda f: f.__name__)
def test_the_steps_of_a_loader_leave_n_alone(recipe, drop_last):
    """1437 rows in batches of 64: 22 or 23 steps a pass; neither N/64 nor the prior follow."""
    rows = torch.utils.data.TensorDataset(torch.zeros(1437, 1))
    loader = torch.utils.data.DataLoader(rows, batch_size=64, drop_last=drop_last)
    made = recipe(network(), 1437, 64, passes=20, steps_per_pass=len(loader))
    assert len(loader) == (22 if drop_last else 23)
    assert made.steps == 20 * len(loader) // made.chains
    assert (made.num_data, made.sampler_options()["num_data"]) == (1437, 1437)
    assert made.weight_decay == recipe(network(), 1437, 64, passes=20).weight_decay
    with pytest.raises(ConfigError, match="steps_per_pass"):
        recipe(network(), 1437, 64, passes=20, steps_per_pass=0)


def test_the_prior_does_not_depend_on_n():
    small, large = (from_scratch(network(), n, 50, passes=40) for n in (1000, 50_000))
    assert small.prior_variance == large.prior_variance
    assert small.weight_decay == pytest.approx(50 * large.weight_decay)


def test_the_prior_of_a_resnet_is_the_paper_s():
    # λ = 5e-4 at N = 50,000 is a variance of 0.04.
    made = from_scratch(models.resnet8(), 3000, 128, passes=48)
    assert made.prior_variance == pytest.approx(0.04, rel=0.25)


def test_fan_in_is_weighted_by_weights_and_ignores_norms():
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)
    )
    assert mean_fan_in(model) == pytest.approx((12 * 4 + 3 * 3) / 15)
    assert mean_fan_in(torch.nn.BatchNorm1d(3)) is None


def test_frozen_weights_do_not_count():
    model = torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.Linear(4, 3))
    model[0].requires_grad_(False)
    assert mean_fan_in(model) == 4.0


def test_regression_scales_temperature_and_prior_alike():
    plain, values = (from_scratch(network(), 1000, 50, 40, unit=u) for u in (1.0, 0.1))
    groups = []
    for made in (values, plain):
        model = network()
        sampler = EntropyMCMC(model.parameters(), **made.sampler_options(), seed=0)
        groups.append(sampler.param_groups[0])
        assert groups[-1]["weight_decay"] == pytest.approx(made.weight_decay)
    for name in ("temperature", "weight_decay"):
        assert groups[0][name] == pytest.approx(0.1 * groups[1][name])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda f: f.__name__)
def test_the_thermometer_has_time(recipe):
    """Σ 2·lr/((1−μ)ηN) over the noisy part is at least 3: the distance θ − θ_a relaxes."""
    made = recipe(network(), 1000, 50, passes=40)
    first = math.ceil(made.burn_in * made.steps)
    path = sum((1 + math.cos(math.pi * s / made.steps)) / 2 for s in range(first, made.steps))
    assert 2 * path / ((1 - made.momentum) * made.horizon) >= 3


def test_a_new_lr_keeps_the_horizon():
    made = from_scratch(network(), 1000, 50, passes=40)
    changed = made.override(lr=0.3)
    assert changed.horizon == pytest.approx(made.horizon)
    assert changed.reasons["lr"] == "given"
    assert changed.reasons["eta"] == made.reasons["eta"]  # η follows; it was not given
    assert made.override(lr=0.3, eta=0.1).reasons["eta"] == "given"


def test_adapters_learn_at_sgd_s_speed_under_a_narrow_prior():
    net = torch.nn.Linear(4, 2)  # 20 over a fan-in of 4 would be 5
    made, trained = adapters(net, 100, 10, passes=40), from_trained(net, 100, 10, passes=40)
    assert (made.lr, made.prior_variance) == (from_scratch(net, 100, 10, passes=40).lr, 1.0)
    assert made.lr > trained.lr
    assert made.horizon == pytest.approx(trained.horizon)
    assert "weight decay 0.01" in made.reasons["prior_variance"]


def test_overrides_are_checked():
    made = from_scratch(network(), 1000, 50, passes=40)
    with pytest.raises(ConfigError, match="'learning_rate'"):
        made.override(learning_rate=0.1)
    with pytest.raises(ConfigError, match="lr"):
        made.override(lr=-1.0)


def test_short_budgets_have_fewer_chains():
    assert short_chains(network(), 1000, 50, passes=40).chains == 4
    assert short_chains(network(), 1000, 50, passes=12).chains == 2
    assert short_chains(network(), 1000, 50, passes=2).chains == 1


def test_a_budget_of_no_steps_is_refused():
    with pytest.raises(ConfigError, match="use more passes"):
        from_scratch(network(), 100, 100, passes=1)
    with pytest.raises(ConfigError, match="num_data"):
        from_scratch(network(), 0, 10, passes=1)


def test_recipes_are_values():
    made = from_scratch(network(), 1000, 50, passes=40)
    assert made == from_scratch(network(), 1000, 50, passes=40)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.lr = 1.0
