"""Predicting from several threads at once, and what becomes of the user's model."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from entropy_mcmc.posterior import Posterior
from entropy_mcmc.posterior.model_tensors import layout
from entropy_mcmc.posterior.private_copy import _Backup, in_place, private_copy

THREADS, CALLS = 8, 50


def wide():
    """About 16,000 parameters: one sample after another."""
    return nn.Sequential(nn.Linear(4, 120), nn.BatchNorm1d(120), nn.ReLU(), nn.Linear(120, 120),
                         nn.Dropout(0.5), nn.Linear(120, 3))  # fmt: skip


def small():
    """Small enough for many samples at once."""
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 3))
    model[2].weight = model[0].weight
    model[3].weight.requires_grad_(False)
    return model


class Stateful(nn.Module):
    """Counts its calls, replaces a buffer in each of them, and has one that is not stored."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.calls = 0
        self.register_buffer("total", torch.zeros(()))
        self.register_buffer("scale", torch.full((), 0.5), persistent=False)

    def forward(self, x):
        self.calls += 1
        self.total = self.total + 1
        return self.inner(x) * self.scale


class Closure(nn.Module):
    """A function in a closure that no copy reaches: it always uses this very module."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.run = lambda x: self.inner(x)

    def forward(self, x):
        return self.run(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRU(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.cell(x[:, None])[0][:, 0])


def normed():
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 3))


def compiled():
    return torch.compile(small(), backend="eager")


MODELS = [wide, small, tied, Stateful, Closure, Recurrent, normed, compiled]


def sampled(path, model, count=3, **options):
    """A posterior of random weights; the model itself ends with weights that no sample has."""
    posterior = Posterior.create(path, model, **options)
    torch.manual_seed(0)
    for _ in range(count + 1):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_()
        if len(posterior) < count:
            posterior.collect()
    posterior.refresh_batchnorm([torch.randn(16, 4)])
    model.train()
    return posterior


def state(model):
    """All that a caller could miss: values, objects, modes, gradients asked for, hooks."""
    slots = layout(model).slots.values()
    modules = list(model.modules())
    return {
        "values": [slot.tensor.detach().clone() for slot in slots],
        "objects": [id(slot.tensor) for slot in slots],
        "modes": [module.training for module in modules],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
        "hooks": [dict(module._forward_hooks) for module in modules],
        "calls": [getattr(module, "calls", None) for module in modules],
    }


def assert_unchanged(model, before):
    after = state(model)
    for mine, yours in zip(after.pop("values"), before["values"], strict=True):
        assert torch.equal(mine, yours)
    assert after == {name: value for name, value in before.items() if name != "values"}


def in_threads(action, count=THREADS):
    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(action, n) for n in range(count)]]


def inputs(number):
    return torch.randn(7, 4, generator=torch.Generator().manual_seed(number))


@pytest.mark.parametrize("build", MODELS)
def test_threads_predict_what_one_thread_predicts(tmp_path, build):
    model = build()
    posterior = sampled(tmp_path / "a", model)
    expected = [posterior.sample_predictions(inputs(n)) for n in range(THREADS)]
    means = [posterior.predict_proba(inputs(n)) for n in range(THREADS)]
    assert not torch.equal(expected[0][0], expected[0][1])
    before = state(model)

    def work(number):
        for call in range(CALLS if build is wide else CALLS // 5):
            if call % 2:
                assert torch.equal(posterior.predict_proba(inputs(number)), means[number])
            else:
                each = posterior.sample_predictions(inputs(number))
                assert torch.equal(each, expected[number])

    in_threads(work)
    assert_unchanged(model, before)


def test_threads_predict_distributions(tmp_path):
    model = nn.Sequential(nn.Linear(4, 150), nn.Tanh(), nn.Linear(150, 150), nn.Linear(150, 2))
    posterior = sampled(tmp_path / "a", model, likelihood="regression")
    expected = [posterior.predict_distribution(inputs(n)) for n in range(THREADS)]

    def work(number):
        for _ in range(CALLS // 5):
            made = posterior.predict_distribution(inputs(number))
            assert torch.equal(made.mean, expected[number].mean)
            assert torch.equal(made.variance, expected[number].variance)

    in_threads(work)


def test_a_chain_goes_on_while_others_predict(tmp_path):
    model = wide()
    posterior = sampled(tmp_path / "a", model)
    expected = posterior.predict_proba(inputs(0))
    stop = threading.Event()

    def train():
        steps = 0
        while not stop.is_set():
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(1)
            steps += 1
        return steps

    before = model[0].bias.detach().clone()
    with ThreadPoolExecutor(1) as pool:
        trained = pool.submit(train)
        for _ in range(20):
            assert torch.equal(posterior.predict_proba(inputs(0)), expected)
        stop.set()
    final = before.clone()
    for _ in range(trained.result()):
        final += 1
    assert torch.equal(model[0].bias, final)


class Breaks(nn.Module):
    """Raises at its n-th call, whichever copy of it is called."""

    def __init__(self, error, at):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 150), nn.BatchNorm1d(150), nn.Linear(150, 3))
        self.plan = at, error
        self.counter = []

    def __deepcopy__(self, memo):
        made = Breaks(*reversed(self.plan))
        made.inner = copy.deepcopy(self.inner, memo)
        made.counter = self.counter
        return made

    def forward(self, x):
        self.counter.append(0)
        if len(self.counter) == self.plan[0]:
            raise self.plan[1]("stop")
        return self.inner(x)


def _raised(action):
    try:
        action()
    except BaseException as error:
        return error
    return None


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("copied", [True, False])
def test_the_model_is_as_before_after_any_exception(tmp_path, error, at, copied, monkeypatch):
    if not copied:
        monkeypatch.setattr("entropy_mcmc.posterior.private_copy.private_copy", lambda model: None)
    model = Breaks(error, 10**9)
    posterior = sampled(tmp_path / "a", model)
    before = state(model)
    for use in (
        lambda: posterior.predict_proba(inputs(0), batch_size=4, vectorize=False),
        lambda: posterior.refresh_batchnorm([inputs(0), inputs(1)], force=True),
    ):
        model.counter.clear()
        # The first call is made twice when it fails: watched, and by itself.
        model.plan = at, error
        raised = _raised(use)
        fails_again = at > 1 or not copied or not issubclass(error, Exception)
        assert type(raised) is (error if fails_again else type(None))
        assert_unchanged(model, before)
    posterior.predict_proba(inputs(0))  # no lock is left behind


def test_an_interrupted_restoration_is_finished(monkeypatch):
    model = small()
    before = state(model)
    restore, interrupts = _Backup.restore, [KeyboardInterrupt("first"), KeyboardInterrupt("second")]

    def interrupted(self):
        if interrupts:
            raise interrupts.pop(0)
        restore(self)

    monkeypatch.setattr(_Backup, "restore", interrupted)

    def use():
        with in_place(model) as work:
            for parameter in work.model.parameters():
                parameter.zero_()

    with pytest.raises(KeyboardInterrupt, match="second"):
        use()
    assert_unchanged(model, before)


class Recorder:
    def __init__(self):
        self.seen = []

    def hook(self, module, args, output):
        self.seen.append(output.detach().clone())


def test_hooks_stay_the_users_and_see_what_is_predicted(tmp_path):
    model = wide()
    posterior = sampled(tmp_path / "a", model)
    recorder, modules = Recorder(), []
    model[5].register_forward_hook(recorder.hook)
    model[0].register_forward_pre_hook(lambda module, args: modules.append(module))
    before = state(model)
    each = posterior.sample_predictions(inputs(0))
    assert torch.equal(torch.softmax(torch.stack(recorder.seen), -1), each)
    assert not set(modules) & set(model.modules())
    assert_unchanged(model, before)


def test_a_hook_that_changes_the_output_does_so_in_the_copy(tmp_path):
    model = nn.Linear(4, 3)
    posterior = sampled(tmp_path / "a", model)
    model.register_forward_hook(lambda module, args, out: out * 0 + module.bias)
    expected = torch.stack([torch.softmax(state["bias"], 0).expand(7, 3) for state in posterior])
    torch.testing.assert_close(posterior.sample_predictions(inputs(0)), expected)


def test_copies_share_no_memory_with_the_model():
    for build in MODELS[:-1]:
        model = build()
        made = private_copy(model)
        mine = {slot.tensor.data_ptr() for slot in layout(model).slots.values()}
        assert not mine & {slot.tensor.data_ptr() for slot in layout(made).slots.values()}
        assert layout(made).aliases == layout(model).aliases
        assert not made.training


def test_what_is_inside_a_graph_does_not_prevent_a_copy():
    model = Closure()
    model.last = model(torch.ones(1, 4))
    assert private_copy(model) is not None


def test_what_cannot_be_copied_is_used_in_place(tmp_path):
    model = small()
    model.handle = threading.Lock()  # deepcopy refuses it
    assert private_copy(model) is None
    posterior = sampled(tmp_path / "a", model)
    before = state(model)
    expected = [posterior.predict_proba(inputs(n)) for n in range(THREADS)]

    def work(number):
        for _ in range(5):
            assert torch.equal(posterior.predict_proba(inputs(number)), expected[number])

    in_threads(work)
    assert_unchanged(model, before)


def test_threads_collect_without_losing_samples(tmp_path):
    model = nn.Linear(4, 3)
    posterior = Posterior.create(tmp_path / "a", model)
    in_threads(lambda n: [posterior.collect(step=10 * n + k) for k in range(5)])
    assert len(posterior) == 5 * THREADS
    assert posterior.verify() == 5 * THREADS


def test_a_frozen_backbone_is_read_once_for_each_prediction(tmp_path, monkeypatch):
    model = nn.Sequential(nn.Linear(4, 200), nn.Linear(200, 3))
    sampler = torch.optim.SGD(model[1].parameters(), lr=0.1)
    posterior = Posterior.create(tmp_path / "a", model)
    for _ in range(3):
        with torch.no_grad():
            model[1].weight.normal_()
        posterior.collect(sampler)
    expected = torch.stack([torch.softmax(nn.Sequential.forward(_loaded(model, s), inputs(0)), 1)
                            for s in posterior]).detach()  # fmt: skip
    names = []
    placed = posterior._reader.fill.__func__.__globals__["place"]
    monkeypatch.setattr(
        "entropy_mcmc.posterior.sample_reader.place",
        lambda slot, value: (names.append(slot.name), placed(slot, value)),
    )
    torch.testing.assert_close(posterior.sample_predictions(inputs(0), vectorize=False), expected)
    assert names.count("0.weight") == 1
    assert names.count("1.weight") == 3


def _loaded(model, state):
    made = copy.deepcopy(model)
    made.load_state_dict(state)
    return made
