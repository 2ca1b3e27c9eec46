"""The predictive average against plain loops over separately loaded models."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.posterior import Posterior, refresh_batchnorm


def conv_net():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(),
        nn.Linear(4 * 36, 3),
    )  # fmt: skip


def mlp(width=2, outputs=3):
    return nn.Sequential(nn.Linear(width, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, outputs))


def perturbed(path, model, count, **options):
    """A store of `count` random draws, and copies of the model that hold them."""
    torch.manual_seed(1)
    posterior = Posterior.create(path, model, **options)
    copies = []
    for _ in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.5)
        posterior.collect()
        copies.append(copy.deepcopy(model))
    return posterior, copies


def images(n=40):
    return torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(3))


def test_equals_the_mean_of_softmaxes_of_separate_models_with_batch_norm(tmp_path, device):
    model = conv_net().to(device)
    posterior, copies = perturbed(tmp_path / "a", model, 5)
    train, x = images(64).to(device), images(30).to(device)
    loader = DataLoader(TensorDataset(train, torch.zeros(64)), batch_size=16, shuffle=False)
    assert posterior.refresh_batchnorm(loader) == 5
    naive = []
    for single in copies:
        # torch's own cumulative rule; dropout is behind the only batch norm and cannot matter.
        torch.optim.swa_utils.update_bn(loader, single, device=device)
        naive.append(torch.softmax(single.eval()(x), dim=1).detach())
    expected = torch.stack(naive)
    torch.testing.assert_close(posterior.predict_proba(x), expected.mean(0))
    torch.testing.assert_close(posterior.sample_predictions(x), expected)
    assert torch.equal(posterior.predict(x), expected.mean(0).argmax(1))
    assert posterior.predict_proba(x).device.type == device.type


def test_probabilities_are_averaged_and_not_logits(tmp_path):
    model = nn.Linear(1, 2, bias=False)
    posterior = Posterior.create(tmp_path / "a", model)
    for row in ([[10.0], [-10.0]], [[-1.0], [1.0]]):
        with torch.no_grad():
            model.weight.copy_(torch.tensor(row))
        posterior.collect()
    expected = (torch.softmax(torch.tensor([10.0, -10]), 0) + torch.softmax(
        torch.tensor([-1.0, 1]), 0
    )) / 2  # fmt: skip
    torch.testing.assert_close(posterior.predict_proba(torch.ones(1, 1))[0], expected)


def test_every_kind_of_input_gives_the_same_numbers(tmp_path):
    posterior, _ = perturbed(tmp_path / "a", nn.Linear(2, 3), 3)
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    y = torch.arange(10)
    expected = posterior.predict_proba(x)
    kinds = [
        x.double().numpy(),
        {"input": x},
        DataLoader(TensorDataset(x, y), batch_size=3),
        DataLoader(TensorDataset(x), batch_size=4),
        [x[:5], x[5:]],
        [(x[:5], y[:5]), (x[5:].numpy(), y[5:])],
        [{"input": x[:5], "labels": y[:5]}, {"input": x[5:], "labels": y[5:]}],
        [({"input": x}, y)],
    ]
    for kind in kinds:
        torch.testing.assert_close(posterior.predict_proba(kind), expected)
    torch.testing.assert_close(posterior.predict_proba(x, batch_size=1), expected)
    assert posterior.predict_proba(x[:0]).shape == (0, 3)
    assert isinstance(posterior.predict_proba(np.ones((2, 2))), torch.Tensor)


class OtherData:
    """A loader that gives other data in each pass."""

    def __iter__(self):
        yield torch.randn(4, 2)


def test_data_that_changes_between_passes_is_refused(tmp_path):
    posterior, _ = perturbed(tmp_path / "a", nn.Linear(2, 3), 3)
    x = torch.randn(10, 2)
    with pytest.raises(ConfigError, match="shuffle=False"):
        posterior.predict_proba(DataLoader(TensorDataset(x), shuffle=True))
    with pytest.raises(ConfigError, match="other data at batch 0"):
        posterior.predict_proba(OtherData(), vectorize=False)
    with pytest.raises(ConfigError, match="list"):
        posterior.predict_proba(iter([x]))
    with pytest.raises(ConfigError, match="no batch"):
        posterior.predict_proba([])
    with pytest.raises(ConfigError, match="scalar"):
        posterior.predict_proba(torch.tensor(1.0))


@pytest.mark.parametrize("build", [mlp, nn.Linear, conv_net])
def test_many_samples_at_once_give_the_same_result(tmp_path, build):
    model = build() if build is not nn.Linear else nn.Linear(2, 3)
    posterior, _ = perturbed(tmp_path / "a", model, 70)
    x = images(20) if build is conv_net else torch.randn(20, 2)
    posterior.refresh_batchnorm([x])
    slow = posterior.sample_predictions(x, batch_size=7, vectorize=False)
    fast = posterior.sample_predictions(x, batch_size=7, vectorize=True)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(posterior.predict_proba(x, vectorize=True), slow.mean(0))


def test_tied_parameters_at_once(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    posterior, _ = perturbed(tmp_path / "a", model, 4)
    x = torch.randn(5, 3)
    torch.testing.assert_close(
        posterior.sample_predictions(x, vectorize=True),
        posterior.sample_predictions(x, vectorize=False),
    )


class Branches(nn.Module):
    """Control flow on values: vmap cannot."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 3)

    def forward(self, x):
        out = self.inner(x)
        return out if out.sum() > 0 else -out


class Hidden(nn.Module):
    """Weights behind a reference that vmap does not replace: its result would be wrong."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 3)
        self.kept = [self.inner.weight]

    def forward(self, x):
        return x @ self.kept[0].T


@pytest.mark.parametrize("build", [Branches, Hidden])
def test_falls_back_where_vmap_cannot(tmp_path, build):
    posterior, copies = perturbed(tmp_path / "a", build(), 3)
    x = torch.randn(5, 2)
    expected = torch.stack([torch.softmax(c(x), 1) for c in copies]).detach()
    torch.testing.assert_close(posterior.sample_predictions(x), expected)
    with pytest.raises(StateError, match="vectorize"):
        posterior.predict_proba(x, vectorize=True)


def test_the_model_comes_back_as_it_was_also_after_an_error(tmp_path):
    model = mlp()
    posterior, _ = perturbed(tmp_path / "a", model, 3)
    x = torch.randn(16, 2)
    posterior.refresh_batchnorm([x])
    model.train()
    model[1].eval()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.add_(1)  # unlike every sample
    before = copy.deepcopy(model.state_dict())
    ids = [id(p) for p in model.parameters()]
    loss = model(x).square().mean()
    for vectorize in (True, False):
        posterior.predict_proba(x, vectorize=vectorize)
        with pytest.raises(RuntimeError, match="shape"):
            posterior.predict_proba(torch.ones(4, 9), vectorize=vectorize)
    loss.backward()  # a graph that waited is still valid
    posterior.refresh_batchnorm([x], force=True)
    assert [module.training for module in model] == [True, False, True, True]
    assert model.training
    assert ids == [id(p) for p in model.parameters()]
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_output_maps_objects(tmp_path):
    class Net(nn.Linear):
        def forward(self, input):
            return {"logits": super().forward(input)}

    model = Net(2, 3)
    Posterior.create(tmp_path / "a", model).collect()
    with pytest.raises(ConfigError, match="output="):
        Posterior.open(tmp_path / "a", model).predict(torch.ones(1, 2))
    posterior = Posterior.open(tmp_path / "a", model, output=lambda result: result["logits"])
    assert posterior.predict(torch.ones(4, 2)).shape == (4,)


def test_a_single_logit_is_the_second_class(tmp_path):
    posterior, copies = perturbed(tmp_path / "a", nn.Linear(2, 1), 2)
    x = torch.randn(6, 2)
    expected = torch.stack([torch.sigmoid(c(x))[:, 0] for c in copies]).mean(0).detach()
    torch.testing.assert_close(posterior.predict_proba(x)[:, 1], expected)
    torch.testing.assert_close(posterior.predict_proba(x).sum(1), torch.ones(6))


@pytest.mark.parametrize("vectorize", [True, False])
def test_regression_is_the_mixture_of_the_samples(tmp_path, vectorize):
    posterior, copies = perturbed(tmp_path / "a", nn.Linear(2, 2), 5, likelihood="regression")
    x = torch.randn(9, 2)
    outs = torch.stack([c(x) for c in copies]).detach().double()
    means, noises = outs[..., 0], outs[..., 1].exp()
    result = posterior.predict_distribution(x, batch_size=4, vectorize=vectorize)
    torch.testing.assert_close(result.mean.double(), means.mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(result.aleatoric.double(), noises.mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        result.epistemic.double(), means.var(0, correction=0), rtol=1e-5, atol=1e-5
    )
    # Law of total variance: E[y²] − E[y]² of the mixture.
    second = (noises + means.square()).mean(0) - means.mean(0).square()
    torch.testing.assert_close(result.variance.double(), second, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(posterior.predict(x), result.mean)
    assert posterior.sample_predictions(x).shape == (5, 9, 2)


def test_regression_far_from_zero_keeps_its_small_spread(tmp_path):
    model = nn.Linear(1, 1)
    posterior = Posterior.create(tmp_path / "a", model, likelihood="regression")
    for shift in (0.0, 0.5, 1.0):
        with torch.no_grad():
            model.weight.zero_()
            model.bias.fill_(1e4 + shift)
        posterior.collect()
    result = posterior.predict_distribution(torch.zeros(2, 1), noise_variance=0.25)
    torch.testing.assert_close(result.epistemic, torch.full((2,), 1 / 6))
    torch.testing.assert_close(result.aleatoric, torch.full((2,), 0.25))
    with pytest.raises(ConfigError, match="noise_variance"):
        posterior.predict_distribution(torch.zeros(2, 1))
    with pytest.raises(StateError, match="predict_distribution"):
        posterior.predict_proba(torch.zeros(2, 1))


def test_calls_that_cannot_work_say_what_to_do(tmp_path):
    model = nn.Linear(2, 3)
    posterior = Posterior.create(tmp_path / "a", model)
    with pytest.raises(StateError, match="collect some first"):
        posterior.predict(torch.ones(1, 2))
    posterior.collect()
    with pytest.raises(StateError, match="roles='guide'"):
        posterior.predict(torch.ones(1, 2), roles="guide")
    with pytest.raises(StateError, match="predict_proba"):
        posterior.predict_distribution(torch.ones(1, 2))
    wide = Posterior.create(tmp_path / "b", nn.Linear(2, 3), likelihood="regression")
    wide.collect()
    with pytest.raises(ConfigError, match=r"\(1, 3\)"):
        wide.predict(torch.ones(1, 2))


def test_plain_models_can_be_refreshed_too():
    model = nn.BatchNorm1d(2)
    refresh_batchnorm(model, [torch.ones(4, 2)])
    assert torch.equal(model.running_mean, torch.ones(2))
