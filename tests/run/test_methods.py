"""Hyper-parameters of a run: which options a method has, and the prior by its variance."""

import math

import pytest
import torch

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.recipes import from_scratch
from entropy_mcmc.run.config import METHODS, from_dict
from entropy_mcmc.run.methods import METHODS as METHOD_TABLE
from entropy_mcmc.run.methods import (
    build,
    choose_eta,
    fill,
    gradients_per_step,
    parameter_groups,
    weight_decays,
)
from entropy_mcmc.run.recipe import explain_settings

every = pytest.mark.parametrize("method", METHODS)


def resolved(method, **sampler):
    return choose_eta(fill(from_dict({"method": method, "sampler": sampler})), 200, 100)


def built(config):
    return build(config, [("w", torch.nn.Parameter(torch.ones(3)))], num_data=200, seed=1)


@every
def test_a_prior_variance_reaches_the_sampler(method):
    config = resolved(method, prior_variance=0.5)
    assert config.sampler.weight_decay is None
    assert built(config).param_groups[0]["weight_decay"] == pytest.approx(0.01)
    paper = built(resolved(method)).param_groups[0]["weight_decay"]
    assert paper == pytest.approx(1 / (0.04 * 200))  # 5e-4 at N = 50,000


@every
def test_a_short_cycle_keeps_as_many_samples_as_it_has_room_for(method):
    schedule = {"epochs": 10, "cycles": 2, "burn_in": 0.5}
    config = from_dict({"method": method, "schedule": schedule})
    filled = fill(config, epoch_steps=2)
    length = 10 * 2 // (gradients_per_step(filled) * 2)
    room = length - math.ceil(0.5 * length)
    wanted = METHOD_TABLE[method].schedule["samples_per_cycle"]
    assert filled.schedule.samples_per_cycle == max(1, min(wanted, room))
    given = fill(from_dict({"method": method, "schedule": {"samples_per_cycle": 9}}), epoch_steps=2)
    assert given.schedule.samples_per_cycle == 9


@pytest.mark.parametrize(
    ("method", "cycles", "words"),
    [
        ("emcmc", 1, "the guide averages θ over ηN/lr = 20 steps, 20% of a chain"),
        ("emcmc", 2, "the guide averages θ over ηN/lr = 20 steps, 20% of a cycle"),
        ("entropy-sgd", 1, "default of the method"),
    ],
)
def test_the_reason_of_eta_is_that_of_the_run(method, cycles, words):
    """100 steps in a cycle, whatever number the recipe reckoned with."""
    given = from_dict({"method": method, "schedule": {"cycles": cycles}})
    recipe = from_scratch(torch.nn.Linear(4, 2), 200, 10, passes=40)
    config = choose_eta(fill(given, recipe=recipe), 200, 100)
    table = explain_settings(given, config, recipe, 100)
    (line,) = [line for line in table.splitlines() if line.startswith("sampler.eta")]
    assert line.endswith(words)


@every
def test_priors_by_kind_of_parameter_reach_the_sampler(method):
    """λN of weights by fan-in, of biases, and none of batch norm."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
    config = resolved(
        method, prior_variance=0.5, prior_scale="fan-in", bias_variance=2.0, norm_variance=math.inf
    )
    groups = parameter_groups(config, net, num_data=200)
    actual = build(config, groups, num_data=200, seed=1).param_groups
    assert [group["weight_decay"] * 200 for group in actual] == pytest.approx([8.0, 0.5, 0.0])
    assert [group["param_names"] for group in actual] == [
        ["0.weight"], ["0.bias"], ["1.weight", "1.bias"],
    ]  # fmt: skip
    decays = [0.04, 0.0025, 0.0, 0.0]
    assert weight_decays(config, net, num_data=200) == pytest.approx(decays)


def test_a_stated_weight_decay_reaches_the_sampler_to_the_last_bit():
    net = torch.nn.Linear(4, 2)
    for decay in (5e-4, 1e-3, 0.3, 0.0):
        config = resolved("sgld", weight_decay=decay)
        assert parameter_groups(config, net, num_data=1437)[0]["weight_decay"] == decay


@every
def test_two_statements_of_the_prior_are_refused(method):
    with pytest.raises(ConfigError, match=r"0\.5 and 0\.1; give one of them"):
        resolved(method, prior_variance=0.5, weight_decay=0.1)


@every
def test_every_hyper_parameter_of_a_sampler_is_an_option(method):
    """Also those for which a run has no default of its own."""
    for name in METHOD_TABLE[method].options:
        if name in ("prior_variance", "weight_decay"):
            continue
        value = built(resolved(method)).param_groups[0][name]
        assert built(resolved(method, **{name: value})).param_groups[0][name] == value


def test_a_hyper_parameter_of_another_sampler_is_refused_with_what_there_is():
    with pytest.raises(ConfigError, match=r"has no option sampler\.beta1, got 0\.9; it has lr"):
        resolved("sgld", beta1=0.9)
    with pytest.raises(ConfigError, match=r"'sgd' has no option sampler.temperature"):
        resolved("sgd", temperature=1.0)


def test_a_value_out_of_range_is_refused_by_the_sampler():
    with pytest.raises(ConfigError, match="beta1 must be at least 0 and less than 1, got beta1=2"):
        built(resolved("bsam", beta1=2.0))


def test_gradients_per_step_follow_the_declaration():
    assert gradients_per_step(resolved("emcmc")) == 1
    assert gradients_per_step(resolved("sam")) == 2
    assert gradients_per_step(resolved("entropy-sgd")) == 5
    assert gradients_per_step(resolved("entropy-sgld", inner_steps=7)) == 7
