"""Priors of parameter groups: by kind of parameter, by fan-in, whatever N."""

import math

import pytest
import torch
from torch import nn

from battery import CASES
from entropy_mcmc import SGLD, models
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.priors import fan_in, prior_groups, trainable

every = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


def network():
    """A convolution, two kinds of normalisation, a linear layer, and a parameter of its own."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 2), nn.LayerNorm(2)
    )


def variances(groups):
    return {name: group["prior_variance"] for group in groups for name, _ in group["params"]}


def test_one_variance_is_one_group_in_the_model_s_order():
    net = network()
    (group,) = prior_groups(net, 0.04)
    assert [name for name, _ in group["params"]] == [name for name, _ in net.named_parameters()]
    assert group["prior_variance"] == 0.04


def test_every_kind_has_its_own():
    by_kind = variances(prior_groups(network(), 0.5, scale="fan-in", biases=2.0, norms=math.inf))
    assert by_kind == {
        "0.weight": 0.5 / 27, "0.bias": 2.0, "1.weight": math.inf, "1.bias": math.inf,
        "3.weight": 0.5 / 36, "3.bias": 2.0, "4.weight": math.inf, "4.bias": math.inf,
    }  # fmt: skip


def test_biases_and_norms_are_not_scaled_by_fan_in():
    by_kind = variances(prior_groups(network(), 0.5, scale="fan-in"))
    assert {by_kind[name] for name in ("0.bias", "1.weight", "3.bias", "4.bias")} == {0.5}


def test_filter_response_norm_is_a_norm():
    kinds = {name: kind for name, _, kind in trainable(models.norm.FilterResponseNorm2d(4))}
    assert {kinds["gamma"], kinds["beta"]} == {"norm"}


def test_a_unit_s_prior_input_has_the_same_variance_in_every_layer():
    """Σ w²x² of a unit, x² = 1: what scaling by fan-in is for."""
    for inputs in (4, 400):
        weight = nn.Linear(inputs, 3).weight
        assert fan_in(weight) * (0.7 / fan_in(weight)) == pytest.approx(0.7)
    assert fan_in(nn.Conv2d(5, 2, 3).weight) == 45


def test_frozen_and_shared_parameters():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    net[0].bias.requires_grad_(False)
    assert list(variances(prior_groups(net, 1.0))) == ["0.weight", "1.bias"]


@every
def test_every_sampler_takes_the_groups_and_n_does_not_change_the_prior(case):
    """λN is the same for both N, for every group."""
    actual = []
    for num_data in (1_000, 50_000):
        options = {k: v for k, v in case.options.items() if k != "weight_decay"}
        groups = prior_groups(network(), 0.5, scale="fan-in", biases=2.0, norms=math.inf)
        sampler = case.sampler(groups, **{**options, "num_data": num_data})
        actual.append([num_data * group["weight_decay"] for group in sampler.param_groups])
    assert actual[0] == pytest.approx(actual[1])
    assert actual[0] == pytest.approx([27 / 0.5, 1 / 2.0, 0.0, 36 / 0.5])


def test_torch_s_optimizers_get_weight_decay():
    groups = prior_groups(network(), 0.5, biases=math.inf, num_data=100)
    sgd = torch.optim.SGD(groups, lr=0.1)
    assert [group["weight_decay"] for group in sgd.param_groups] == [pytest.approx(0.02), 0.0]


def test_the_distribution_of_each_group_is_its_prior():
    """A flat loss: variance v/(1 − lr·λ/2) in each group, 20,000 coordinates, ± 4 standard errors.

    A false alarm once in 8,000 runs.
    """
    net = nn.Linear(4, 5000)
    groups = prior_groups(net, 0.8, scale="fan-in", biases=0.05)
    sampler = SGLD(groups, lr=4.0, num_data=100, seed=3)
    for _ in range(150):
        for param in net.parameters():
            param.grad = torch.zeros_like(param)
        sampler.step()
    for param, variance in ((net.weight, 0.2), (net.bias, 0.05)):
        expected = variance / (1 - 4.0 / (100 * variance) / 2)
        spread = float(param.detach().square().mean())
        assert spread == pytest.approx(expected, rel=4 * (2 / param.numel()) ** 0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variance": 0.0}, "variance must be greater than 0, got variance=0.0"),
        ({"variance": 1.0, "biases": -2.0}, "biases must be greater than 0, got biases=-2.0"),
        ({"variance": 1.0, "norms": float("nan")}, "norms must be finite, got norms=nan"),
        ({"variance": 1.0, "scale": "width"}, "scale must be one of 'none', 'fan-in'"),
    ],
)
def test_wrong_values_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        prior_groups(network(), **options)
