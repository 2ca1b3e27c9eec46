"""All networks: published parameter counts, shapes, gradients, names, and torch.func."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from entropy_mcmc import models
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.models.blocks import PadShortcut

# (name, options, shape of one example); the pictures are small where the network allows it.
CASES = [
    ("logistic", {"in_features": 12, "outputs": 3}, (3, 4)),
    ("mlp", {"in_features": 12, "outputs": 3, "hidden": (7, 5)}, (12,)),
    ("mlp", {"in_features": 4, "outputs": 2, "activation": "tanh"}, (4,)),
    ("mlp", {"in_features": 4, "outputs": 1, "hidden": (), "activation": "silu"}, (4,)),
    *(("cnn", {"image_size": 8, "norm": norm}, (1, 8, 8)) for norm in ("none", "bn", "frn")),
    ("cnn", {"image_size": 30, "in_channels": 3, "width": 4, "outputs": 2}, (3, 30, 30)),
    *(
        (name, {"outputs": 7, "norm": norm}, (3, 16, 16))
        for name in ("resnet8", "resnet20", "resnet18")
        for norm in ("bn", "frn")
    ),
    ("resnet8", {"shortcut": "conv", "in_channels": 1}, (1, 15, 17)),
    ("resnet50", {"outputs": 5, "norm": "bn"}, (3, 64, 64)),
    ("resnet50", {"outputs": 5, "norm": "frn"}, (3, 64, 64)),
]
SMALL = [case for case in CASES if case[0] not in ("resnet18", "resnet50")]


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def batch(shape, n=4, seed=0):
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("name", "options", "expected", "tensors"),
    [
        ("logistic", {}, 784 * 10 + 10, 2),
        ("mlp", {}, 784 * 100 + 100 + 100 * 10 + 10, 4),
        ("cnn", {}, (9 * 16 + 16) + (9 * 16 * 32 + 32) + (32 * 7 * 7 * 10 + 10), 6),
        # No bias beside a norm: 2 × 16 and 2 × 32 numbers take its place.
        ("cnn", {"norm": "bn"}, 9 * 16 + 32 + 9 * 16 * 32 + 64 + 32 * 7 * 7 * 10 + 10, 8),
        ("resnet20", {}, 269_722, 59),
        ("resnet8", {"shortcut": "conv"}, 75_290 + 16 * 32 + 64 + 32 * 64 + 128, 29),
        ("resnet18", {}, 11_173_962, 62),
        ("resnet18", {"outputs": 100}, 11_173_962 + 90 * 513, 62),
        ("resnet50", {}, 25_557_032, 161),
        # FRN has γ and β where batch norm has its two, and one τ per channel and activation:
        # 64 in the stem, then twice 2·(64 + 128 + 256 + 512).
        ("resnet18", {"norm": "frn"}, 11_173_962 + 64 + 4 * (64 + 128 + 256 + 512), 62 + 17),
    ],
)
def test_parameter_counts(name, options, expected, tensors):
    model = models.build(name, **options)
    assert count(model) == expected
    assert len(list(model.parameters())) == tensors


def test_resnet20_has_twenty_layers_and_resnet8_eight():
    for name, layers in (("resnet8", 8), ("resnet20", 20)):
        modules = models.build(name).modules()
        assert sum(isinstance(m, (nn.Conv2d, nn.Linear)) for m in modules) == layers


@pytest.mark.parametrize(("name", "options", "shape"), CASES)
def test_shapes_and_gradients(name, options, shape, device):
    torch.manual_seed(0)
    model = models.build(name, **options).to(device)
    out = model(batch(shape).to(device))
    assert out.shape == (4, options.get("outputs", 10))
    assert torch.isfinite(out).all()
    out.square().sum().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().any()]
    assert silent == []


@pytest.mark.parametrize(("name", "options", "shape"), SMALL)
def test_many_samples_at_once_equal_one_by_one(name, options, shape):
    """`functional_call` under `vmap`, parameters and buffers stacked, as the predictive does."""
    torch.manual_seed(1)
    members = [models.build(name, **options).double().eval() for _ in range(3)]
    x = batch(shape, n=2).double()
    parameters, buffers = stack_module_state(members)

    def apply(parameters, buffers):
        return functional_call(members[0], (parameters, buffers), (x,))

    with torch.no_grad():
        together = vmap(apply)(parameters, buffers)
        apart = torch.stack([member(x) for member in members])
    torch.testing.assert_close(together, apart, rtol=1e-9, atol=1e-9)
    assert not torch.allclose(apart[0], apart[1])


@pytest.mark.parametrize("name", ["resnet8", "cnn"])
def test_only_batch_norm_has_buffers_and_mixes_examples(name):
    options = {"image_size": 16, "in_channels": 3} if name == "cnn" else {}
    x = batch((3, 16, 16))
    for norm, mixes in (("bn", True), ("frn", False)):
        model = models.build(name, norm=norm, **options).train()
        assert bool(list(model.buffers())) == mixes
        assert (not torch.allclose(model(x)[:2], model(x[:2]), atol=1e-5)) == mixes


def torchvision_resnet50_names():
    """The names in the published ImageNet checkpoints, by their rule."""
    bn = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    yield from ("conv1.weight", *(f"bn1.{b}" for b in bn), "fc.weight", "fc.bias")
    for layer, blocks in enumerate((3, 4, 6, 3), start=1):
        for block in range(blocks):
            prefix = f"layer{layer}.{block}"
            for k in (1, 2, 3):
                yield from (f"{prefix}.conv{k}.weight", *(f"{prefix}.bn{k}.{b}" for b in bn))
            if block == 0:
                yield f"{prefix}.downsample.0.weight"
                yield from (f"{prefix}.downsample.1.{b}" for b in bn)


def test_resnet50_has_the_names_of_published_weights():
    names = list(torchvision_resnet50_names())
    assert len(names) == 320
    assert set(models.resnet50().state_dict()) == set(names)


def test_resnet50_halves_the_picture_five_times():
    model = models.resnet50(outputs=2).eval()
    sides = []
    for stage in ("maxpool", "layer1", "layer2", "layer3", "layer4"):
        model.get_submodule(stage).register_forward_hook(
            lambda _module, _inputs, out: sides.append(tuple(out.shape[1:3]))
        )
    with torch.no_grad():
        model(batch((3, 64, 64), n=1))
    assert sides == [(64, 16), (256, 16), (512, 8), (1024, 4), (2048, 2)]


def test_pad_shortcut_keeps_every_second_pixel_between_zero_channels():
    x = batch((2, 5, 6), n=3)
    out = PadShortcut(2, 5, stride=2)(x)
    expected = torch.zeros(3, 5, 3, 3)
    for row in range(3):
        for column in range(3):
            expected[:, 1:3, row, column] = x[:, :, 2 * row, 2 * column]
    assert torch.equal(out, expected)


def test_a_block_whose_last_norm_is_zero_is_its_shortcut():
    block = models.BasicBlock(4, 4, 1, "bn", "pad").eval()
    nn.init.zeros_(block.bn2.weight)
    x = batch((4, 6, 6))
    assert torch.equal(block(x), x.relu())


def test_convolutions_have_variance_two_over_fan_out():
    torch.manual_seed(0)
    weight = models.resnet18().get_submodule("layer4.0.conv1").weight  # 256 → 512 channels
    # 1.18 M weights: relative standard error √(2/1.18e6) = 1.3e-3; 4.5 of them (7e-6).
    assert weight.var().item() == pytest.approx(2 / (512 * 9), rel=5.9e-3)


def test_mlp_computes_what_its_layers_say():
    model = models.MLP(3, 2, hidden=(4,), activation="tanh")
    first, last = model.layers[0], model.layers[2]
    x = batch((3,))
    expected = torch.tanh(x @ first.weight.T + first.bias) @ last.weight.T + last.bias
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vgg", {}, "model must be one of logistic, mlp, cnn, resnet8, .*, got 'vgg'"),
        (
            "mlp",
            {"classes": 3},
            "'mlp' has no option 'classes', got classes=3; its options are in_",
        ),
        ("mlp", {"activation": "elu"}, "activation must be one of 'relu', 'tanh', 'silu', got"),
        ("mlp", {"hidden": (10, 0)}, "hidden must be a whole number of at least 1, got hidden=0"),
        ("mlp", {"outputs": 0}, "outputs must be a whole number of at least 1, got outputs=0"),
        ("cnn", {"image_size": 3}, "image_size must be a whole number of at least 4"),
        ("cnn", {"norm": "ln"}, "norm must be one of 'none', 'bn', 'frn', got norm='ln'"),
        ("resnet8", {"norm": "none"}, "norm must be one of 'bn', 'frn', got norm='none'"),
        ("resnet8", {"shortcut": "B"}, "shortcut must be one of 'pad', 'conv', got shortcut='B'"),
        ("resnet18", {"in_channels": -1}, "in_channels must be a whole number of at least 1"),
    ],
)
def test_bad_options_are_refused(name, options, message):
    with pytest.raises(ConfigError, match=message):
        models.build(name, **options)


def test_every_model_is_built_by_name_and_takes_outputs():
    assert set(models.names()) == {case[0] for case in CASES}
    assert all("outputs" in models.options(name) for name in models.names())
