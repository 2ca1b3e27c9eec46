"""Filter Response Normalization against its equation, pixel by pixel."""

import math

import pytest
import torch

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.models import FilterResponseNorm2d, ThresholdedLinearUnit2d
from entropy_mcmc.models.norm import activation_layer, norm_layer


def naive_frn(x, gamma, beta, tau, eps):
    """The published equation in plain Python floats; eps has one value per channel."""
    out = torch.empty_like(x)
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            pixels = x[n, c].flatten().tolist()
            nu_squared = math.fsum(p * p for p in pixels) / len(pixels)
            scale = gamma[c] / math.sqrt(nu_squared + eps[c])
            cut = [max(scale * p + beta[c], tau[c]) for p in pixels]
            out[n, c] = torch.tensor(cut, dtype=x.dtype).reshape(x.shape[2:])
    return out


def randomised(layer, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return layer


def values(parameter):
    return parameter.flatten().tolist()


@pytest.mark.parametrize("learned_eps", [False, True])
@pytest.mark.parametrize("size", [(5, 7), (1, 1)])
def test_frn_equals_its_equation(learned_eps, size):
    layer = randomised(FilterResponseNorm2d(3, eps=0.01, learned_eps=learned_eps), seed=1)
    x = torch.randn(4, 3, *size, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    extra = [abs(e) for e in values(layer.extra_eps)] if learned_eps else [0.0] * 3
    eps = [0.01 + e for e in extra]
    expected = naive_frn(x, values(layer.gamma), values(layer.beta), values(layer.tlu.tau), eps)
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)


def test_without_threshold_only_the_cut_is_missing():
    layer = randomised(FilterResponseNorm2d(2, threshold=False), seed=3)
    x = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    low = [-math.inf] * 2
    expected = naive_frn(x, values(layer.gamma), values(layer.beta), low, [1e-6] * 2)
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)
    assert [name for name, _ in layer.named_parameters()] == ["gamma", "beta"]


def test_start_values_are_the_published_ones():
    layer = FilterResponseNorm2d(2, learned_eps=True)
    start = {name: values(p) for name, p in layer.named_parameters()}
    one_ten_thousandth = torch.tensor(1e-4).item()
    assert start == {
        "gamma": [1, 1],
        "beta": [0, 0],
        "extra_eps": [one_ten_thousandth] * 2,
        "tlu.tau": [0, 0],
    }
    assert layer.eps == 1e-6


def test_examples_do_not_touch_each_other_and_training_is_evaluation():
    layer = FilterResponseNorm2d(3)
    x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(5))
    together = layer.train()(x)
    torch.testing.assert_close(layer.eval()(x), together, rtol=0, atol=0)
    torch.testing.assert_close(layer(x[1:2]), together[1:2], rtol=0, atol=0)
    assert not list(layer.buffers())


def test_scale_of_the_input_does_not_matter():
    layer = FilterResponseNorm2d(3, eps=1e-30).double()
    x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    torch.testing.assert_close(layer(1000 * x), layer(x), rtol=1e-12, atol=1e-12)


def test_a_dead_channel_stays_finite():
    x = torch.zeros(1, 1, 4, 4, requires_grad=True)
    FilterResponseNorm2d(1)(x).sum().backward()
    assert torch.isfinite(x.grad).all()


def test_gradients_equal_finite_differences():
    layer = randomised(FilterResponseNorm2d(2, eps=0.1, learned_eps=True), seed=7)
    x = torch.randn(2, 2, 3, 3, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    names, tensors = zip(*layer.named_parameters(), strict=True)

    def apply(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(apply, (x.requires_grad_(), *tensors))


def test_layers_by_kind():
    assert isinstance(norm_layer("bn", 4), torch.nn.BatchNorm2d)
    assert isinstance(activation_layer("bn", 4), torch.nn.ReLU)
    assert isinstance(norm_layer("frn", 4).tlu, torch.nn.Identity)
    assert isinstance(activation_layer("frn", 4), ThresholdedLinearUnit2d)
    for build in (norm_layer, activation_layer):
        with pytest.raises(ConfigError, match="norm must be one of 'bn', 'frn', got norm='ln'"):
            build("ln", 4)


def test_bad_numbers_are_refused():
    with pytest.raises(ConfigError, match="eps must be greater than 0, got eps=0"):
        FilterResponseNorm2d(3, eps=0)
    with pytest.raises(ConfigError, match="channels must be a whole number of at least 1"):
        FilterResponseNorm2d(0)
