"""Batch-norm refresh: torch's cumulative rule, every sample its own, nothing else touched."""

import copy
import io
import json

import pytest
import torch
from torch import nn

from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.posterior import Posterior, refresh_batchnorm


def net():
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.BatchNorm1d(5))


def batches(count=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(8 + i, 3, generator=generator) for i in range(count)]


def test_is_the_plain_average_of_the_batches():
    torch.manual_seed(0)
    model = net()
    reference = copy.deepcopy(model)
    for _ in range(5):
        model(torch.randn(9, 3) * 7)  # old statistics must leave no trace
    torch.optim.swa_utils.update_bn(batches(), reference)
    refresh_batchnorm(model, batches())
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, msg=name)


def test_a_layer_used_twice_averages_over_its_calls():
    layer = nn.BatchNorm1d(1, affine=False)
    model = nn.Sequential(layer, layer)
    reference = copy.deepcopy(model)
    data = [batch[:, :1] * 3 + 1 for batch in batches()]
    torch.optim.swa_utils.update_bn(data, reference)
    refresh_batchnorm(model, data)
    torch.testing.assert_close(layer.running_mean, reference[0].running_mean)
    torch.testing.assert_close(layer.running_var, reference[0].running_var)
    assert int(layer.num_batches_tracked) == 8


def test_bfloat16_statistics_are_added_in_float64():
    model = nn.BatchNorm1d(1, affine=False).bfloat16()
    # A running bfloat16 average of 1000 batches loses the small terms; the mean is exactly 0.5.
    refresh_batchnorm(model, [torch.full((4, 1), float(i % 2)).bfloat16() for i in range(1000)])
    assert model.running_mean.item() == 0.5


def test_instance_norm_that_tracks_is_refreshed():
    model = nn.InstanceNorm1d(2, track_running_stats=True)
    x = torch.randn(6, 2, 9) + 4
    refresh_batchnorm(model, [x])
    torch.testing.assert_close(model.running_mean, x.mean((0, 2)))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x,
        lambda x: (x, torch.zeros(len(x))),
        lambda x: [x, {"a": [1]}],
        lambda x: {"input": x, "labels": torch.zeros(len(x))},
        lambda x: ({"input": x}, 0),
        lambda x: x.numpy(),
    ],
)
def test_nested_and_dict_batches(wrap):
    torch.manual_seed(0)
    model, plain = net(), net()
    plain.load_state_dict(model.state_dict())
    refresh_batchnorm(plain, batches())
    refresh_batchnorm(model, [wrap(batch) for batch in batches()])
    torch.testing.assert_close(model[3].running_var, plain[3].running_var)


def test_modes_momentum_gradients_and_dropout_are_left_alone():
    model = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm1d(3, momentum=0.3), nn.BatchNorm1d(3))
    model.train()
    model[2].eval()
    refresh_batchnorm(model, batches())
    expected = torch.stack([b.mean(0) for b in batches()]).mean(0)
    torch.testing.assert_close(model[1].running_mean, expected)  # no dropout in front
    assert [m.training for m in model] == [True, True, False]
    assert model[1].momentum == 0.3
    assert not model[1]._forward_hooks
    assert model[1].weight.grad is None


def test_a_failing_loader_leaves_the_old_statistics():
    def broken():
        yield batches()[0]
        raise OSError("disk")

    model = net()
    model(batches()[1])
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(OSError, match="disk"):
        refresh_batchnorm(model, broken())
    with pytest.raises(ConfigError, match="no batch"):
        refresh_batchnorm(model, [])
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_without_batch_norm_nothing_is_read(tmp_path):
    def never():
        raise AssertionError("read")
        yield

    model = nn.Linear(3, 2)
    refresh_batchnorm(model, never())
    posterior = Posterior.create(tmp_path / "a", model)
    posterior.collect()
    assert posterior.samples[0].batchnorm == "none"
    assert posterior.refresh_batchnorm(never()) == 0


def collected(path, count=3):
    model = net()
    posterior = Posterior.create(path, model)
    for _ in range(count):
        with torch.no_grad():
            model[0].weight.normal_()
        posterior.collect()
    return posterior, model


def test_predicting_unrefreshed_is_refused_with_the_remedy(tmp_path):
    posterior, _ = collected(tmp_path / "a")
    for call in (posterior.predict_proba, posterior.predict, posterior.sample_predictions):
        with pytest.raises(StateError, match=r"refresh_batchnorm\(train_loader\)"):
            call(batches()[0])
    posterior.refresh_batchnorm(batches())
    posterior.collect()
    with pytest.raises(StateError, match="1 of 4 samples"):
        posterior.predict_proba(batches()[0])


def test_an_interrupted_refresh_goes_on_where_it_was(tmp_path):
    class Flaky:
        """Fails in its second pass."""

        passes = 0

        def __iter__(self):
            self.passes += 1
            if self.passes == 2:
                raise OSError("gone")
            return iter(batches())

    posterior, model = collected(tmp_path / "a")
    loader = Flaky()
    with pytest.raises(OSError, match="gone"):
        posterior.refresh_batchnorm(loader)
    assert [s.batchnorm for s in posterior.samples] == ["fresh", "stale", "stale"]
    posterior.close()
    posterior = Posterior.open(tmp_path / "a", model, append=True)
    assert posterior.refresh_batchnorm(loader) == 2
    assert loader.passes == 4
    assert posterior.refresh_batchnorm(loader) == 0
    first = posterior[0]["1.running_mean"]
    assert posterior.refresh_batchnorm(batches(seed=5), force=True) == 3
    assert not torch.equal(posterior[0]["1.running_mean"], first)
    assert posterior.verify() == 3
    assert len(list((tmp_path / "a" / "samples").glob("*.safetensors"))) == 3
    on_disk = json.loads((tmp_path / "a" / "samples" / "manifest.json").read_text())
    assert on_disk["samples"][0]["file"]["name"] == "0000000000-theta-bn2.safetensors"


def test_a_reader_may_not_refresh_but_sees_it(tmp_path):
    posterior, _ = collected(tmp_path / "a")
    reader = Posterior.open(tmp_path / "a", net())
    with pytest.raises(StateError, match="append=True"):
        reader.refresh_batchnorm(batches())
    states = iter(reader)
    next(states)
    posterior.refresh_batchnorm(batches())  # every file gets a new name under the reader
    assert len(list(states)) == 2
    assert reader.predict_proba(batches()[0]).shape == (8, 5)


def test_max_batches_reads_that_many_and_no_more():
    torch.manual_seed(0)
    model, short = net(), net()
    short.load_state_dict(model.state_dict())
    read = []

    class Loader:
        def __iter__(self):
            for batch in batches():
                read.append(len(batch))
                yield batch

    refresh_batchnorm(model, Loader(), max_batches=2)
    refresh_batchnorm(short, batches()[:2])
    assert len(read) == 2
    for name, value in short.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    with pytest.raises(ConfigError, match=r"max_batches must be .* got max_batches=0"):
        refresh_batchnorm(model, batches(), max_batches=0)


def test_samples_are_refreshed_with_that_many_batches(tmp_path, capsys):
    model = net()
    posterior = Posterior.create(tmp_path, model)
    for step in range(2):
        posterior.collect(step=step)
    assert posterior.refresh_batchnorm(batches(), max_batches=3, progress=True) == 2
    refresh_batchnorm(model, batches()[:3])
    for state in posterior:
        assert int(state["1.num_batches_tracked"]) == 3
        assert torch.equal(state["3.running_var"], model[3].running_var)
    assert capsys.readouterr() == ("", "")  # a bar is for terminals


def test_a_terminal_sees_how_many_samples_are_done(tmp_path, monkeypatch):
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", screen)
    posterior = Posterior.create(tmp_path, net())
    posterior.collect()
    posterior.refresh_batchnorm(batches(), progress=True)
    assert "batch norm: 100%" in screen.getvalue()
    assert "1/1" in screen.getvalue()
