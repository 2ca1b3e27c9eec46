"""The Trainer of transformers makes the samples of a plain loop, and resumes them bit for bit."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from entropy_mcmc import EntropyMCMC, Posterior, schedules
from entropy_mcmc.errors import ConfigError

transformers = pytest.importorskip("transformers", reason="pip install -e .[examples]")
pytest.importorskip("accelerate", reason="pip install -e .[examples]")
from transformers.modeling_outputs import SequenceClassifierOutput  # noqa: E402

from entropy_mcmc.integrations.transformers import CollectSamples  # noqa: E402

ROWS, BATCH, EPOCHS = 48, 8, 4
STEPS = EPOCHS * ROWS // BATCH


class Rows(Dataset):
    def __init__(self):
        self.x = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))
        self.y = (self.x.sum(1) > 0).long()

    def __len__(self):
        return ROWS

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.y[i]}


class Network(nn.Module):
    """Returns an object with logits, as the models of transformers do."""

    def __init__(self, norm=False):
        super().__init__()
        torch.manual_seed(0)
        middle = nn.BatchNorm1d(5) if norm else nn.Tanh()
        self.net = nn.Sequential(nn.Linear(3, 5), middle, nn.Linear(5, 2))

    def forward(self, x, labels=None):
        logits = self.net(x)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class Crash(transformers.TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise RuntimeError("crash")


def sampler_of(model):
    return EntropyMCMC(model.parameters(), lr=0.2, num_data=ROWS, eta=0.05, momentum=0.5, seed=3)


def train(folder, model=None, *, callbacks=(), resume=None, settings=None, **options):
    model = model or Network()
    sampler = sampler_of(model)
    collect = CollectSamples(
        sampler, folder / "run", **{"cycles": 2, "burn_in": 0.5, **(settings or {})}
    )
    arguments = {
        "num_train_epochs": EPOCHS,
        "per_device_train_batch_size": BATCH,
        "save_strategy": "steps",
        "save_steps": 6,
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "max_grad_norm": 0.0,
        "train_sampling_strategy": "sequential",
        **options,
    }
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(output_dir=str(folder), **arguments),
        train_dataset=Rows(),
        optimizers=(sampler, None),
        callbacks=[collect, *callbacks],
    )
    trainer.train(resume_from_checkpoint=resume)
    return collect.posterior


def assert_same(one, other):
    keys = [(s.step, s.role, s.cycle) for s in one.samples]
    assert keys == [(s.step, s.role, s.cycle) for s in other.samples]
    for state, expected in zip(one, other, strict=True):
        assert all(torch.equal(state[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", ["constant", "linear"])
def test_samples_are_those_of_a_plain_loop(tmp_path, kind):
    """Whatever the Trainer's own scheduler does, the cycle has the last word on lr."""
    posterior = train(tmp_path, lr_scheduler_type=kind)
    model, data = Network(), Rows()
    sampler = sampler_of(model)
    cycle = schedules.Cyclical(sampler, STEPS, cycles=2, burn_in=0.5)
    plain = Posterior.create(tmp_path / "plain", model)
    for step in range(STEPS):
        rows = slice(BATCH * step % ROWS, BATCH * step % ROWS + BATCH)
        sampler.zero_grad()
        model(data.x[rows], data.y[rows]).loss.backward()
        sampler.step()
        if cycle.step():
            plain.collect(sampler, cycle=cycle.cycle(step))
    assert len(posterior) == 8  # 2 cycles of 2 samples, θ and its guide
    assert_same(posterior, plain)
    assert posterior.predict_proba({"x": data.x}).shape == (ROWS, 2)


@pytest.mark.parametrize("crash", [9, 14])
def test_a_resumed_training_has_the_samples_of_an_uninterrupted_one(tmp_path, crash):
    """Checkpoints every 6 steps; the crash comes later, once after a sample beyond it."""
    whole = train(tmp_path / "whole")
    with pytest.raises(RuntimeError, match="crash"):
        train(tmp_path / "cut", callbacks=[Crash(crash)])
    assert_same(train(tmp_path / "cut", resume=True), whole)


def test_a_resumed_training_keeps_its_length(tmp_path):
    with pytest.raises(RuntimeError, match="crash"):
        train(tmp_path, callbacks=[Crash(7)])
    with pytest.raises(ConfigError, match="total_steps=24, got total_steps=30"):
        train(tmp_path, resume=True, num_train_epochs=5)


def test_batch_norm_is_refreshed_from_the_training_data(tmp_path):
    posterior = train(tmp_path, Network(norm=True))
    assert {sample.batchnorm for sample in posterior.samples} == {"fresh"}
    state = posterior[0]
    hidden = F.linear(Rows().x, state["net.0.weight"], state["net.0.bias"])
    torch.testing.assert_close(state["net.1.running_mean"], hidden.mean(0))


def test_accumulated_gradients_count_steps(tmp_path):
    posterior = train(tmp_path, gradient_accumulation_steps=2, settings={"roles": "theta"})
    assert posterior.roles == ("theta",) * 4
    assert posterior.samples[-1].step == STEPS // 2
