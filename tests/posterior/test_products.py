"""One network, one module and files of a posterior, against its own predictions."""

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from entropy_mcmc.decisions import TemperatureScaling
from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.posterior import Posterior, refresh_batchnorm

PLAIN = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.GRU(2, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.inner(x.reshape(len(x), 2, 2))[0][:, -1])


class Masked(nn.Module):
    """Takes a dict, returns an object."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, values, mask):
        return SimpleNamespace(logits=self.inner(values * mask))


def mlp(outputs=3):
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, outputs))


def conv_net():
    return nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(4, 3),
    )  # fmt: skip


def transformer():
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (1, 4)), layer, nn.Flatten(), nn.Linear(4, 3))


def drawn(path, model, count=3, seed=1, params=None, **options):
    """A store of random draws of the parameters."""
    torch.manual_seed(seed)
    posterior = Posterior.create(path, model, **options)
    params = list(model.parameters()) if params is None else list(params)
    for step in range(count):
        with torch.no_grad():
            for parameter in params:
                parameter.normal_(0, 0.5)
        posterior.collect(torch.optim.SGD(params, lr=0.1), step=step)
    posterior.refresh_batchnorm([PLAIN])
    return posterior


MODELS = {
    "mlp": (mlp, PLAIN, {}),
    "one logit": (lambda: mlp(1), PLAIN, {}),
    "batch norm": (conv_net, PLAIN, {}),
    "recurrent": (Recurrent, PLAIN, {}),
    "transformer": (transformer, PLAIN, {}),
    "dict": (
        Masked,
        {"values": PLAIN, "mask": (PLAIN > 0).float()},
        {"output": lambda result: result.logits},
    ),
    "regression": (lambda: mlp(2), PLAIN, {"likelihood": "regression"}),
    "mean only": (lambda: mlp(1), PLAIN, {"likelihood": "regression"}),
}


def predicted(posterior, x):
    """The posterior's own prediction in the layout of the module."""
    if posterior.likelihood == "classification":
        return posterior.predict_proba(x)
    if posterior.sample_predictions(x).ndim == 2:
        return posterior.predict(x)
    distribution = posterior.predict_distribution(x)
    return torch.stack([distribution.mean, distribution.variance], dim=1)


@pytest.mark.parametrize("name", MODELS)
def test_the_module_is_the_posterior(tmp_path, name):
    make, x, options = MODELS[name]
    posterior = drawn(tmp_path / "a", make(), **options)
    module = posterior.as_module()
    torch.testing.assert_close(module(x), predicted(posterior, x), rtol=1e-6, atol=1e-6)
    module.train()  # stays in eval mode: no dropout, no batch statistics
    torch.testing.assert_close(module(x), predicted(posterior, x), rtol=1e-6, atol=1e-6)
    assert not any(p.requires_grad for p in module.parameters())


FILES = [(name, ".pt2") for name in ("mlp", "batch norm", "dict", "regression")]
FILES += [("batch norm", ".onnx"), ("dict", ".onnx")]


@pytest.mark.parametrize(("name", "suffix"), FILES)
def test_files_give_the_posteriors_predictions(tmp_path, name, suffix):
    if suffix == ".onnx":
        pytest.importorskip("onnxruntime", reason="pip install 'entropy-mcmc[onnx]'")
        pytest.importorskip("onnxscript", reason="pip install 'entropy-mcmc[onnx]'")
    make, x, options = MODELS[name]
    posterior = drawn(tmp_path / "a", make(), count=2, **options)
    path = tmp_path / f"posterior{suffix}"
    first = {k: v[:1] for k, v in x.items()} if isinstance(x, dict) else x[:1]
    posterior.export(path, first)  # one row, and the file takes any number
    torch.testing.assert_close(run_file(path, x), predicted(posterior, x), rtol=1e-5, atol=1e-5)
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == [path.name]


def run_file(path, x):
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(x)
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    values = x.values() if isinstance(x, dict) else [x]
    names = [entry.name for entry in session.get_inputs()]
    inputs = {name: value.numpy() for name, value in zip(names, values, strict=True)}
    return torch.as_tensor(session.run(None, inputs)[0])


def test_a_temperature_is_part_of_the_file(tmp_path):
    posterior = drawn(tmp_path / "a", mlp())
    scaling = TemperatureScaling(2.5, 10, 1.0, 0.9)
    module = posterior.export(tmp_path / "scaled.pt2", PLAIN, temperature=scaling)
    expected = torch.as_tensor(scaling(posterior.predict_proba(PLAIN)), dtype=torch.float32)
    torch.testing.assert_close(module(PLAIN), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(run_file(tmp_path / "scaled.pt2", PLAIN), expected)


class Counted(nn.Module):
    """A frozen backbone that counts its calls."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm = nn.Linear(4, 16), nn.BatchNorm1d(16)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.tanh(self.norm(self.inner(x)))


def last_layer(path, count=5):
    model = nn.Sequential(Counted(), nn.Linear(16, 3)).eval()
    refresh_batchnorm(model, [PLAIN])
    torch.manual_seed(0)
    posterior = Posterior.create(path, model)
    head = torch.optim.SGD(model[1].parameters(), lr=0.1)
    for step in range(count):
        nn.init.normal_(model[1].weight)
        posterior.collect(head, step=step, frozen_batchnorm=True)
    return posterior


def test_a_frozen_backbone_is_there_once_and_runs_once(tmp_path):
    posterior = last_layer(tmp_path / "a")
    module = posterior.as_module()
    backbones = {id(m) for m in module.modules() if isinstance(m, Counted)}
    (backbone,) = [m for m in module.modules() if isinstance(m, Counted)]
    assert len(backbones) == 1
    backbone.calls = 0
    for call in (1, 2):
        torch.testing.assert_close(module(PLAIN), posterior.predict_proba(PLAIN))
        assert backbone.calls == call
    x = PLAIN.clone()
    module(x)
    with torch.no_grad():
        x.add_(1)  # the same object with other values
    torch.testing.assert_close(module(x), posterior.predict_proba(x))
    sizes = sum(p.numel() for p in module.parameters())
    assert sizes == 4 * 16 + 16 + 2 * 16 + 5 * 16 * 3 + 3  # the heads' bias was not sampled
    torch.testing.assert_close(copy.deepcopy(module)(x), module(x))


def test_the_exported_backbone_is_there_once(tmp_path):
    posterior = last_layer(tmp_path / "a")
    posterior.export(tmp_path / "a.pt2", PLAIN)
    program = torch.export.load(tmp_path / "a.pt2")
    linear = [node for node in program.graph.nodes if "linear" in str(node.target)]
    assert len(linear) == 1 + 5
    torch.testing.assert_close(program.module()(PLAIN), posterior.predict_proba(PLAIN))


def test_threads_share_a_module(tmp_path):
    posterior = last_layer(tmp_path / "a")
    module = posterior.as_module()
    inputs = [torch.randn(50, 4, generator=torch.Generator().manual_seed(i)) for i in range(40)]
    expected = [posterior.predict_proba(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for made, wanted in zip(pool.map(module, inputs), expected, strict=True):
            torch.testing.assert_close(made, wanted)


def test_frozen_batch_norm_must_be_in_eval_mode(tmp_path):
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    posterior = Posterior.create(tmp_path / "a", model)
    with pytest.raises(ConfigError, match=r"eval mode.*0"):
        posterior.collect(frozen_batchnorm=True)
    model[0].eval()
    posterior.collect(frozen_batchnorm=True)
    assert posterior.samples[0].batchnorm == "none"
    assert posterior.predict_proba(PLAIN).shape == (6, 3)


def test_the_best_sample_is_the_one_of_lowest_nll(tmp_path):
    model = mlp()
    posterior = drawn(tmp_path / "a", model, count=6)
    losses = []
    for state in posterior:
        alone = copy.deepcopy(model).eval()
        alone.load_state_dict(state)
        losses.append(F.cross_entropy(alone(PLAIN), LABELS).item())
    loader = DataLoader(TensorDataset(PLAIN, LABELS), batch_size=4)
    for data in ((PLAIN, LABELS), (PLAIN.numpy(), LABELS.tolist()), loader):
        assert posterior.sample_losses(data).tolist() == pytest.approx(losses, rel=1e-5)
        best = posterior.best_single(data)
        assert F.cross_entropy(best(PLAIN), LABELS).item() == pytest.approx(min(losses), rel=1e-5)
    assert not best.training
    before = model[0].weight.clone()
    with torch.no_grad():
        best[0].weight.zero_()
    assert torch.equal(model[0].weight, before)  # a copy


def test_losses_of_regressions(tmp_path):
    y = torch.linspace(-1, 1, 6)
    posterior = drawn(tmp_path / "a", mlp(2), likelihood="regression")
    for loss, (mean, variance) in zip(
        posterior.sample_losses((PLAIN, y)),
        (each.unbind(1) for each in posterior.sample_predictions(PLAIN)),
        strict=True,
    ):
        expected = F.gaussian_nll_loss(mean, y, variance, full=True)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    alone = drawn(tmp_path / "b", mlp(1), likelihood="regression")
    squares = [0.5 * F.mse_loss(each, y).item() for each in alone.sample_predictions(PLAIN)]
    assert alone.sample_losses((PLAIN, y)).tolist() == pytest.approx(squares, rel=1e-5)


def test_the_mean_of_a_mode_has_its_own_statistics(tmp_path):
    model = conv_net()
    posterior = Posterior.create(tmp_path / "a", model)
    kept = []
    torch.manual_seed(2)
    for cycle in range(2):
        for _ in range(3):
            for parameter in model.parameters():
                nn.init.normal_(parameter, std=0.5)
            posterior.collect(cycle=cycle)
            kept.append({n: p.detach().clone() for n, p in model.named_parameters()})
    for mode, part in ((None, kept[3:]), ((0, 0), kept[:3])):
        network = posterior.mean_network([PLAIN], mode=mode)
        naive = copy.deepcopy(model)
        with torch.no_grad():
            for name, parameter in naive.named_parameters():
                parameter.copy_(torch.stack([state[name] for state in part]).mean(0))
        torch.optim.swa_utils.update_bn([PLAIN], naive)
        torch.testing.assert_close(network(PLAIN), naive.eval()(PLAIN))
    with pytest.raises(ConfigError, match=r"one of \(0, 0\), \(0, 1\), got \(1, 0\)"):
        posterior.mean_network([PLAIN], mode=(1, 0))
    with pytest.raises(ConfigError, match="pass the training data"):
        posterior.mean_network()
    with pytest.raises(StateError, match="roles='guide'"):
        posterior.mean_network([PLAIN], roles="guide")


def test_scaling_and_abstaining_are_those_of_the_probabilities(tmp_path):
    posterior = drawn(tmp_path / "a", mlp())
    x = torch.randn(900, 4, generator=torch.Generator().manual_seed(5))
    probs = posterior.predict_proba(x)
    y = torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(6))[:, 0]
    scaling = posterior.scale_temperature((x, y))
    assert scaling == TemperatureScaling.fit(probs, y)
    rule = posterior.abstain((x, y), risk=0.6, temperature=scaling)
    assert rule.errors / rule.answered <= rule.bound <= 0.6


@pytest.mark.parametrize("targets", [["cat", "dog"] * 3, np.array(["a", "b"] * 3)])
def test_words_as_targets(tmp_path, targets):
    posterior = drawn(tmp_path / "a", mlp(), count=2)
    with pytest.raises(ConfigError, match=r"targets must be numbers, got .*return_inverse"):
        posterior.best_single((PLAIN, targets))
    with pytest.raises(ConfigError, match="targets must be numbers"):
        posterior.scale_temperature([(PLAIN, targets)])


def test_wrong_data_are_said(tmp_path):
    posterior = drawn(tmp_path / "a", mlp(), count=2)
    for data, words in (
        (PLAIN.numpy(), "a batch of"),
        (iter([(PLAIN, LABELS)]), "got list_iterator"),
        ([], "no batch"),
        ({"x": PLAIN}, "targets as one of"),
        ((PLAIN, LABELS[:3]), "one entry for each of 6 rows, got 3"),
        ((PLAIN, LABELS + 1), "between 0 and 2"),
        ((PLAIN, LABELS.float()), "whole numbers"),
    ):
        with pytest.raises(ConfigError, match=words):
            posterior.best_single(data)


class Branching(nn.Module):
    """Looks at values, which no trace can follow."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        return self.inner(x) if float(x.detach().sum()) > 0 else self.inner(-x)


def test_what_cannot_be_exported_is_said(tmp_path, monkeypatch):
    posterior = drawn(tmp_path / "a", Branching(), count=2)
    with pytest.raises(StateError, match=r"torch\.export cannot take this network"):
        posterior.export(tmp_path / "a.pt2", PLAIN)
    with pytest.raises(ConfigError, match=r"\.pt2 or \.onnx"):
        posterior.export(tmp_path / "a.pt", PLAIN)
    monkeypatch.setattr("entropy_mcmc.posterior.exporting.PACKAGES", ("no_such_package",))
    with pytest.raises(ConfigError, match=r"pip install 'entropy-mcmc\[onnx\]'"):
        posterior.export(tmp_path / "a.onnx", PLAIN)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_a_file_that_would_predict_something_else_is_not_written(tmp_path, monkeypatch):
    posterior = drawn(tmp_path / "a", mlp(), count=2)
    monkeypatch.setattr("entropy_mcmc.posterior.exporting.TOLERANCE", -1.0)
    with pytest.raises(StateError, match="it was not written"):
        posterior.export(tmp_path / "a.pt2", PLAIN)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


def test_a_compiled_model_is_refused(tmp_path):
    model = mlp()
    drawn(tmp_path / "a", model, count=2).close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = Posterior.open(tmp_path / "a", torch.compile(model))
    with pytest.raises(StateError, match="plain model"):
        posterior.as_module()
