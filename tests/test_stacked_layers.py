"""Networks whose layers are all known: batched products give what `vmap` gives."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap
from torch.nn.utils import parametrizations

from entropy_mcmc import stacked_layers
from entropy_mcmc.models import MLP, LogisticRegression

K, ROWS = 3, 7


def deep(activation):
    return nn.Sequential(nn.Linear(5, 8), activation, nn.Sequential(nn.Linear(8, 6, bias=False)),
                         nn.Dropout(0.0), nn.Linear(6, 4))  # fmt: skip


NETWORKS = {
    **{kind.__name__: lambda kind=kind: deep(kind()) for kind in stacked_layers.ACTIVATIONS},
    "MLP": lambda: MLP(5, 2, hidden=(6, 4), activation="tanh"),
    "LogisticRegression": lambda: LogisticRegression(5, 3),
    "flattened": lambda: nn.Sequential(nn.Flatten(), nn.Linear(5, 3)),
    "batch norm": lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)),
    "batch norm without weights": lambda: nn.Sequential(
        nn.Linear(5, 6), nn.BatchNorm1d(6, affine=False), nn.ReLU(), nn.Linear(6, 2)
    ),
    "batch norm without statistics": lambda: nn.Sequential(
        nn.Linear(5, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 2)
    ),
}


def stacked(make):
    torch.manual_seed(0)
    models = [make() for _ in range(K)]
    states = [{**dict(m.named_parameters()), **dict(m.named_buffers())} for m in models]
    joined = {n: torch.stack([s[n].detach() for s in states]) for n in states[0]}
    return models[0], joined


def trained(state):
    return [
        t.requires_grad_() for n, t in state.items() if t.is_floating_point() and "run" not in n
    ]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_gradients_and_statistics_are_those_of_vmap(name, training):
    model, state = stacked(NETWORKS[name])
    model.train(training)
    other, x = copy.deepcopy(state), torch.randn(K, ROWS, 5)
    layers = stacked_layers.known_layers(model)
    assert layers is not None
    assert stacked_layers.takes(layers, x)
    assert stacked_layers.has_all(state, layers)
    ours, theirs = trained(state), trained(other)
    out = stacked_layers.run(layers, x, state)
    expected = vmap(lambda s, rows: functional_call(model, s, (rows,)))(other, x)
    assert torch.equal(out, expected)
    gradients = zip(
        torch.autograd.grad(out.square().sum(), ours, allow_unused=True),
        torch.autograd.grad(expected.square().sum(), theirs, allow_unused=True),
        strict=True,
    )
    for mine, right in gradients:
        if "batch norm" in name:  # rounded in another order
            torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-5)
        else:
            assert torch.equal(mine, right)
    for key, value in state.items():
        assert torch.equal(value, other[key]), key


def test_pictures_are_flattened():
    model, state = stacked(lambda: MLP(2 * 3, 2))
    layers, x = stacked_layers.known_layers(model), torch.randn(K, ROWS, 2, 3)
    assert stacked_layers.takes(layers, x)
    assert stacked_layers.has_all(state, layers)
    expected = vmap(lambda s, rows: functional_call(model, s, (rows,)))(state, x)
    assert torch.equal(stacked_layers.run(layers, x, state), expected)


class Doubled(MLP):
    def forward(self, x):
        return 2 * super().forward(x)


class Scaled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    model = deep(nn.ReLU())
    model[0].register_forward_hook(lambda *_: None)
    return model


def patched():
    model = deep(nn.ReLU())
    model[1].forward = torch.tanh
    return model


UNKNOWN = {
    "a subclass of MLP": lambda: Doubled(5, 2),
    "a layer of its own": lambda: nn.Sequential(Scaled(5, 2)),
    "a hook": hooked,
    "a patched forward": patched,
    "a parametrization": lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(5, 2))),
    "dropout in training": lambda: nn.Sequential(nn.Linear(5, 2), nn.Dropout(0.5)),
    "an activation that writes to x": lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 2)),
    "convolution": lambda: nn.Sequential(nn.Conv1d(1, 1, 1)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_goes_the_general_way(name):
    assert stacked_layers.known_layers(UNKNOWN[name]()) is None


def test_hooks_of_all_modules_are_seen():
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert stacked_layers.known_layers(deep(nn.ReLU())) is None
    finally:
        handle.remove()
    assert stacked_layers.known_layers(deep(nn.ReLU())) is not None


def test_tied_weights_and_other_inputs_are_not_taken():
    model, state = stacked(lambda: deep(nn.ReLU()))
    layers = stacked_layers.known_layers(model)
    assert not stacked_layers.takes(layers, torch.randn(K, 5))
    assert not stacked_layers.takes(layers, {"x": torch.randn(K, ROWS, 5)})
    state.pop("0.weight")  # as where another name holds it
    assert not stacked_layers.has_all(state, layers)
