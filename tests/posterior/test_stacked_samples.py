"""Samples of small networks, stacked and kept: the same predictions, and every change is seen."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from entropy_mcmc.errors import DamagedFileError
from entropy_mcmc.models import MLP
from entropy_mcmc.posterior import Posterior, stacked_samples, store
from entropy_mcmc.posterior.stacked_samples import StackedSamples

X = torch.randn(11, 3, generator=torch.Generator().manual_seed(1))
CLOSE = {"rtol": 1e-5, "atol": 1e-6}  # batched products are rounded in another order


def plain():
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4))


def normed():
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2))


NETWORKS = {"plain": plain, "normed": normed, "mlp": lambda: MLP(3, 2, hidden=(5, 4))}


def change(model):
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))


def collected(folder, model, samples=5, **settings):
    torch.manual_seed(0)
    made = Posterior.create(folder, model, **settings)
    for step in range(samples):
        change(model)
        made.collect(step=step)
    made.refresh_batchnorm([X])
    return made


@pytest.fixture
def posterior(tmp_path):
    return collected(tmp_path / "run", plain())


@pytest.fixture
def general(monkeypatch):
    """How often the general way was gone."""
    calls = []
    original = StackedSamples.pieces

    def counted(self, model, samples, batches, transform, otherwise):
        return original(
            self, model, samples, batches, transform, lambda: calls.append(1) or otherwise()
        )

    monkeypatch.setattr(StackedSamples, "pieces", counted)
    return calls


@pytest.mark.parametrize("at_a_time", [2**17, 40])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("likelihood", ["classification", "regression"])
def test_predictions_are_those_of_one_sample_at_a_time(
    tmp_path, name, likelihood, at_a_time, general, monkeypatch
):
    monkeypatch.setattr(stacked_samples, "AT_A_TIME", at_a_time)
    monkeypatch.setattr(stacked_samples, "LEAST", 2)
    if likelihood == "regression" and name == "plain":
        pytest.skip("four outputs")
    made = collected(tmp_path / "run", NETWORKS[name](), likelihood=likelihood)
    alone = made.sample_predictions(X, vectorize=False, batch_size=4)
    torch.testing.assert_close(made.sample_predictions(X, batch_size=4), alone, **CLOSE)
    expected = made.predict(X, vectorize=False).float()
    torch.testing.assert_close(made.predict(X).float(), expected, **CLOSE)
    assert not general


def test_groups_of_samples_and_loaders(tmp_path, general, monkeypatch):
    monkeypatch.setattr(stacked_samples, "GROUP", 2)
    made = collected(tmp_path / "run", plain())
    loader = [(X[:5], torch.zeros(5)), (X[5:], torch.zeros(6))]
    expected = made.sample_predictions(loader, vectorize=False)
    torch.testing.assert_close(made.sample_predictions(loader), expected, **CLOSE)
    assert not general


def test_files_are_opened_once(posterior, monkeypatch):
    names, original = [], store._open_tensors
    monkeypatch.setattr(store, "_open_tensors", lambda p: names.append(p.name) or original(p))
    first = posterior.predict_proba(X)
    assert len(names) == 5
    assert torch.equal(posterior.predict_proba(X), first)
    assert len(names) == 5


def test_a_new_sample_is_seen_by_writer_and_reader(posterior):
    reader = Posterior.open(posterior.path, posterior.model)
    before = reader.predict_proba(X)
    torch.testing.assert_close(posterior.predict_proba(X), before)
    change(posterior.model)
    posterior.collect(step=9)
    for each in (posterior, reader):
        now = each.predict_proba(X)
        assert not torch.allclose(now, before)
        torch.testing.assert_close(now, each.predict_proba(X, vectorize=False), **CLOSE)


def test_new_statistics_are_seen(tmp_path):
    made = collected(tmp_path / "run", normed())
    before = made.predict_proba(X)
    made.refresh_batchnorm([5 * X + 3], force=True)
    now = made.predict_proba(X)
    assert not torch.allclose(now, before)
    torch.testing.assert_close(now, made.predict_proba(X, vectorize=False), **CLOSE)


def test_damage_is_seen_and_told_once(posterior):
    lenient = Posterior.open(posterior.path, posterior.model, skip_damaged=True)
    whole = lenient.predict_proba(X)
    path = posterior.path / "samples" / posterior.samples[1].file.name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DamagedFileError, match=path.name):
        posterior.predict_proba(X)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert not torch.allclose(lenient.predict_proba(X), whole)
    assert [w.category for w in told] == [RuntimeWarning]


def test_a_link_is_not_trusted(posterior, general):
    path = posterior.path / "samples" / posterior.samples[1].file.name
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target.name)
    posterior.predict_proba(X)
    assert general


def test_changes_of_the_model_are_seen(posterior, general):
    model = posterior.model
    posterior.predict_proba(X)
    model[1] = nn.Tanh()
    expected = posterior.predict_proba(X, vectorize=False)
    torch.testing.assert_close(posterior.predict_proba(X), expected, **CLOSE)
    model.double()
    assert posterior.predict_proba(X.double()).dtype == torch.float64
    assert not general
    seen = []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    posterior.predict_proba(X.double())
    assert seen
    assert general


def test_roles_and_views_have_their_own_samples(posterior):
    posterior.predict_proba(X)
    some = posterior.subset([0, 2])
    torch.testing.assert_close(
        some.predict_proba(X), some.predict_proba(X, vectorize=False), **CLOSE
    )
    assert not torch.allclose(some.predict_proba(X), posterior.predict_proba(X))


def test_errors_are_those_of_the_general_way(posterior):
    with pytest.raises(RuntimeError) as error:
        posterior.predict_proba(torch.zeros(2, 7))
    assert "must be what model(x) takes" in "".join(error.value.__notes__)


def test_what_is_too_large_is_not_kept(posterior, general, monkeypatch):
    monkeypatch.setattr(stacked_samples, "MOST", 5 * 4 * 51)
    posterior.predict_proba(X)
    assert general
    monkeypatch.setattr(stacked_samples, "MOST", 5 * 4 * 52)
    general.clear()
    posterior.predict_proba(X)
    assert not general
    assert sum(t.nbytes for t in posterior._stacked._kept.state.values()) == 5 * 4 * 52


def test_the_model_and_the_inputs_stay_as_they_are(posterior):
    before = {k: v.clone() for k, v in posterior.model.state_dict().items()}
    x = X.clone()
    posterior.model.train()
    posterior.predict_proba(x)
    assert posterior.model.training
    assert torch.equal(x, X)
    for name, value in posterior.model.state_dict().items():
        assert torch.equal(value, before[name])


def test_threads_share_the_stack_while_samples_come(posterior):
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(posterior.predict_proba, X) for _ in range(40)]
        for step in range(10, 14):
            change(posterior.model)
            posterior.collect(step=step)
        for call in calls:
            assert bool((call.result().sum(1) - 1).abs().max() < 1e-5)
    expected = posterior.predict_proba(X, vectorize=False)
    torch.testing.assert_close(posterior.predict_proba(X), expected, **CLOSE)
