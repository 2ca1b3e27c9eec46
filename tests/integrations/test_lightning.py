"""Lightning's Trainer makes the samples of a plain loop, and resumes them bit for bit."""

import csv
import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from entropy_mcmc import SGHMC, EntropyMCMC, Posterior, recipes, schedules
from entropy_mcmc.errors import ConfigError, StateError

pl = pytest.importorskip("lightning.pytorch", reason="pip install -e .[examples]")
from entropy_mcmc.integrations.collector import SCHEDULE, Collector  # noqa: E402
from entropy_mcmc.integrations.lightning import CollectSamples  # noqa: E402

# Lightning's own: a deprecated class of torch, and its wishes for loaders and logging.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches"),
    pytest.mark.filterwarnings("ignore:.*exists and is not empty"),
]
ROWS, BATCH, EPOCHS = 48, 8, 4


def rows():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 3, generator=draw)
    return x, (x.sum(1) > 0).long()


def loader():
    return DataLoader(TensorDataset(*rows()), batch_size=BATCH)  # in order, as the plain loop


def network(norm):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5) if norm else nn.Tanh(), nn.Linear(5, 2))


def sampler_of(net):
    return EntropyMCMC(net.parameters(), lr=0.2, num_data=ROWS, eta=0.05, momentum=0.5, seed=3)


class Module(pl.LightningModule):
    def __init__(self, norm=False, optimizers=sampler_of):
        super().__init__()
        self.net, self.optimizers_of = network(norm), optimizers

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return self.optimizers_of(self)


class StopAfter(pl.Callback):
    """A crash in the middle."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self.step:
            raise RuntimeError("crash")


def fit(folder, module=None, *, callbacks=(), collect=None, resume=None, **options):
    collect = collect or CollectSamples(folder / "run", cycles=2, burn_in=0.5)
    trainer = pl.Trainer(
        **{"max_epochs": EPOCHS, "logger": False, "enable_checkpointing": False, **options},
        callbacks=[collect, *callbacks],
        default_root_dir=folder,
        accelerator="cpu",
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    again = {"ckpt_path": resume, "weights_only": True} if resume else {}
    trainer.fit(module or Module(), loader(), **again)
    return collect


def contents(posterior):
    return [(s.step, s.role, s.cycle) for s in posterior.samples], list(posterior)


def assert_same(one, other):
    (keys, states), (other_keys, other_states) = contents(one), contents(other)
    assert keys == other_keys
    for state, expected in zip(states, other_states, strict=True):
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], expected[name]) for name in state)


def test_samples_are_those_of_a_plain_loop(tmp_path):
    posterior = fit(tmp_path).posterior
    module = Module()
    sampler = sampler_of(module)
    steps = EPOCHS * len(loader())
    cycle = schedules.Cyclical(sampler, steps, cycles=2, burn_in=0.5)
    plain = Posterior.create(tmp_path / "plain", module)
    for step in range(steps):
        x, y = list(loader())[step % len(loader())]
        sampler.zero_grad()
        F.cross_entropy(module(x), y).backward()
        sampler.step()
        if cycle.step():
            plain.collect(sampler, cycle=cycle.cycle(step))
    assert len(posterior) == 8  # 2 cycles of 2 samples, θ and its guide
    assert_same(posterior, plain)


def test_a_recipe_drives_it_as_it_drives_a_loop(tmp_path):
    made = recipes.from_scratch(network(False), ROWS, BATCH, EPOCHS)

    def optimizer(module):
        return EntropyMCMC(module.parameters(), **made.sampler_options(), seed=3)

    collect = CollectSamples(tmp_path / "run", roles=made.roles, **made.cycle_options())
    fit(tmp_path, Module(optimizers=optimizer), collect=collect)
    module = Module()
    sampler = optimizer(module)
    cycle = schedules.Cyclical(sampler, **made.schedule_options())
    plain = Posterior.create(tmp_path / "plain", module, roles=made.roles)
    for step in range(made.steps):
        x, y = list(loader())[step % len(loader())]
        sampler.zero_grad()
        F.cross_entropy(module(x), y).backward()
        sampler.step()
        if cycle.step():
            plain.collect(sampler, cycle=cycle.cycle(step))
    assert len(plain) == made.samples
    assert_same(collect.posterior, plain)


def test_a_training_of_an_earlier_version_was_always_coupled(tmp_path):
    collector = Collector(tmp_path, cycles=2)
    net = network(False)
    collector.begin(net, sampler_of(net), 24, 0)
    began = json.loads((tmp_path / SCHEDULE).read_text())
    assert began.pop("coupled") == "always"
    (tmp_path / SCHEDULE).write_text(json.dumps(began))
    again = network(False)
    collector.begin(again, sampler_of(again), 24, 3)
    with pytest.raises(ConfigError, match="coupled=always, got coupled=noisy"):
        Collector(tmp_path, cycles=2, coupled="noisy").begin(again, sampler_of(again), 24, 3)


@pytest.mark.parametrize("crash", [9, 14])
def test_a_resumed_training_has_the_samples_of_an_uninterrupted_one(tmp_path, crash):
    """A checkpoint per epoch of 6 steps; the crash comes later, once after a sample beyond it."""
    whole = fit(tmp_path / "whole").posterior
    keep = pl.callbacks.ModelCheckpoint(tmp_path, save_last=True)
    with pytest.raises(RuntimeError, match="crash"):
        fit(tmp_path, callbacks=[keep, StopAfter(crash)], enable_checkpointing=True)
    options = {"callbacks": [keep], "enable_checkpointing": True}
    resumed = fit(tmp_path, resume=tmp_path / "last.ckpt", **options).posterior
    assert_same(resumed, whole)


def test_a_resumed_training_keeps_its_length(tmp_path):
    keep = pl.callbacks.ModelCheckpoint(tmp_path, save_last=True)
    with pytest.raises(RuntimeError, match="crash"):
        fit(tmp_path, callbacks=[keep, StopAfter(7)], enable_checkpointing=True)
    options = {"callbacks": [keep], "enable_checkpointing": True, "max_epochs": 5}
    with pytest.raises(ConfigError, match="total_steps=24, got total_steps=30"):
        fit(tmp_path, resume=tmp_path / "last.ckpt", **options)


def test_batch_norm_is_refreshed_from_the_training_data(tmp_path):
    posterior = fit(tmp_path, Module(norm=True)).posterior
    assert {sample.batchnorm for sample in posterior.samples} == {"fresh"}
    assert posterior.predict_proba(rows()[0]).shape == (ROWS, 2)
    x, state = rows()[0], posterior[0]
    hidden = F.linear(x, state["net.0.weight"], state["net.0.bias"])
    torch.testing.assert_close(state["net.1.running_mean"], hidden.mean(0))
    collect = CollectSamples(tmp_path / "stale", cycles=2, refresh_batchnorm=False)
    fit(tmp_path, Module(norm=True), collect=collect)
    with pytest.raises(StateError, match="refresh_batchnorm"):
        collect.posterior.predict_proba(x)


def test_accumulated_gradients_count_steps(tmp_path):
    posterior = fit(tmp_path, accumulate_grad_batches=2).posterior
    assert [sample.step for sample in posterior.samples][-1] == EPOCHS * len(loader()) // 2
    assert len(posterior) == 8


def test_options_reach_the_posterior_and_readings_the_logger(tmp_path):
    collect = CollectSamples(tmp_path / "run", cycles=1, samples_per_cycle=3, roles="guide")
    logger = pl.loggers.CSVLogger(tmp_path, name="log")
    fit(tmp_path, collect=collect, logger=logger)
    assert collect.posterior.roles == ("guide",) * 3
    with (tmp_path / "log/version_0/metrics.csv").open() as file:
        assert [float(row["emcmc/samples"]) for row in csv.DictReader(file)] == [1, 2, 3]


def test_logged_is_what_the_step_of_a_sample_used(tmp_path):
    """Also at the end of a cycle, where the next lr is already that of the restart."""
    collect = CollectSamples(tmp_path / "run", cycles=2, burn_in=0.5, samples_per_cycle=2)
    fit(tmp_path, collect=collect, logger=pl.loggers.CSVLogger(tmp_path, name="log"))
    with (tmp_path / "log/version_0/metrics.csv").open() as file:
        logged = list(csv.DictReader(file))
    total = EPOCHS * len(loader())
    cycle = schedules.Cyclical(sampler_of(network(False)), total, cycles=2, burn_in=0.5)
    due = [step for step in range(total) if cycle.is_due(step)]
    assert [int(row["step"]) for row in logged] == due
    assert [float(row["emcmc/lr"]) for row in logged] == pytest.approx(
        [0.2 * cycle.lr_factor(step) for step in due]
    )
    assert {row["emcmc/noise"] for row in logged} == {"1.0"}


def test_a_sampler_without_guide(tmp_path):
    def hamiltonian(net):
        return SGHMC(net.parameters(), lr=0.1, num_data=ROWS, momentum=0.9, seed=0)

    assert fit(tmp_path, Module(optimizers=hamiltonian)).posterior.roles == ("theta",) * 4


def two(net):
    return [sampler_of(net.net[0]), sampler_of(net.net[2])], []


def scheduled(net):
    sampler = sampler_of(net)
    return [sampler], [torch.optim.lr_scheduler.StepLR(sampler, 1)]


@pytest.mark.parametrize(
    ("make", "words"), [(two, "got 2 optimizers"), (scheduled, "no lr scheduler, got StepLR")]
)
def test_other_optimizers_are_refused(tmp_path, make, words):
    module = Module(optimizers=make)
    module.automatic_optimization = make is scheduled
    with pytest.raises(ConfigError, match=words):
        fit(tmp_path, module)


def test_an_endless_training_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="max_steps"):
        fit(tmp_path, max_epochs=-1)


def test_there_is_no_posterior_before_the_training(tmp_path):
    with pytest.raises(StateError, match="when the training begins"):
        CollectSamples(tmp_path).posterior  # noqa: B018


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads
def test_two_ranks_write_one_posterior(tmp_path):
    fit(tmp_path, Module(norm=True), devices=2, strategy="ddp_fork", use_distributed_sampler=True)
    posterior = Posterior.open(tmp_path / "run", Module(norm=True))
    assert len(posterior) == 8
    assert posterior.samples[-1].step == EPOCHS * len(loader()) // 2
    assert posterior.verify() == 8
