"""K modules trained at once are the K modules trained one after the other."""

import warnings
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from entropy_mcmc.chains.stack import samplers
from entropy_mcmc.chains.stacked_modules import StackedModules, StackedSampler, stack_or_explain
from entropy_mcmc.errors import ConfigError, NonFiniteError
from entropy_mcmc.models import build
from entropy_mcmc.samplers.hyper_parameters import hyper_parameters

SEEDS = [5, 17, 2**40]


def mlp(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def cnn(seed):
    torch.manual_seed(seed)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)]
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), *head)


KINDS = {"mlp": (mlp, (4,)), "cnn": (cnn, (1, 6, 6))}


def batches(shape, steps):
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        yield (
            torch.randn(3, 16, *shape, generator=generator),
            torch.randint(3, (3, 16), generator=generator),
        )


def settings(kind):
    """Settings of a sampler, for PSGLD with an ε far above the rounding of gradients.

    A bias in front of batch norm has the gradient 0: at ε = 1e-5 its rounding would decide steps.
    """
    common = {"lr": 0.1, "num_data": 50, "temperature": 0.5, "weight_decay": 0.01}
    own = {"eta": 0.5, "epsilon": 0.5, "freeze_after": 6}
    return common | {name: value for name, value in own.items() if name in hyper_parameters(kind)}


def one_after_the_other(make, shape, kind, rates, **changes):
    modules = [make(seed) for seed in SEEDS]
    for k, module in enumerate(modules):
        sampler = kind(module.parameters(), seed=SEEDS[k], **settings(kind), **changes)
        for lr, (x, y) in zip(rates, batches(shape, len(rates)), strict=True):
            sampler.param_groups[0]["lr"] = lr
            sampler.zero_grad()
            F.cross_entropy(module(x[k]), y[k]).backward()
            sampler.step()
    return modules


def all_at_once(make, shape, kind, rates, **changes):
    modules = [make(seed) for seed in SEEDS]
    stacked = StackedModules(modules)
    sampler = StackedSampler(stacked, kind, SEEDS, **settings(kind), **changes)
    for lr, (x, y) in zip(rates, batches(shape, len(rates)), strict=True):
        sampler.group["lr"] = lr
        sampler.zero_grad()
        losses = F.cross_entropy(stacked(x).flatten(0, 1), y.flatten(), reduction="none")
        losses.view(3, -1).mean(1).sum().backward()
        sampler.step()
    stacked.write_back()
    return modules


@pytest.mark.parametrize("name", samplers())
@pytest.mark.parametrize("network", KINDS)
def test_stacked_chains_are_those_one_after_the_other(network, name):
    """Twelve steps with noise and a learning rate that falls: to 1e-4, batch norm included."""
    make, shape = KINDS[network]
    rates = [0.1 / (1 + step) for step in range(12)]
    stacked = all_at_once(make, shape, samplers()[name], rates)
    alone = one_after_the_other(make, shape, samplers()[name], rates)
    for one, other in zip(stacked, alone, strict=True):
        for key, value in one.state_dict().items():
            torch.testing.assert_close(value, other.state_dict()[key], rtol=1e-4, atol=1e-5)
        assert int(one[1].num_batches_tracked) == 12


def test_keys_are_made_anew_after_a_block(monkeypatch):
    monkeypatch.setattr("entropy_mcmc.chains.stack_noise.KEYS_AT_A_TIME", 4)
    test_stacked_chains_are_those_one_after_the_other("mlp", "emcmc")


@pytest.mark.parametrize(
    "changes",
    [{"integrator": "lm"}, {"integrator": "lm", "guide_update": "collapsed"}],
    ids=["joint", "collapsed"],
)
def test_rules_that_average_noise_are_stacked(changes, monkeypatch):
    """They take the normals of two steps, across the blocks in which keys are made, too."""
    monkeypatch.setattr("entropy_mcmc.chains.stack_noise.KEYS_AT_A_TIME", 4)
    make, shape = KINDS["mlp"]
    rates = [0.1 / (1 + step) for step in range(6)]
    stacked, alone = (
        run(make, shape, samplers()["emcmc"], rates, **changes)
        for run in (all_at_once, one_after_the_other)
    )
    for one, other in zip(stacked, alone, strict=True):
        for key, value in one.state_dict().items():
            torch.testing.assert_close(value, other.state_dict()[key], rtol=1e-4, atol=1e-5)


def test_a_collapsed_guide_of_a_stack_is_that_of_each_module():
    common = {"lr": 0.1, "num_data": 9, "eta": 0.5, "guide_update": "collapsed"}
    modules = [nn.Linear(2, 2) for _ in SEEDS]
    twins = [nn.Linear(2, 2) for _ in SEEDS]
    for module, twin in zip(modules, twins, strict=True):
        twin.load_state_dict(module.state_dict())
    stacked = StackedModules(modules)
    sampler = StackedSampler(stacked, samplers()["emcmc"], SEEDS, **common)
    for k, twin in enumerate(twins):
        alone = samplers()["emcmc"](twin.parameters(), seed=SEEDS[k], **common)
        twin(torch.ones(1, 2)).sum().backward()
        alone.step()
        with alone.guide():
            twins[k] = [p.detach().clone() for p in twin.parameters()]
    stacked(torch.ones(3, 1, 2)).sum().backward()
    sampler.step()
    for i, guides in enumerate(sampler.copy("guide")):
        for k in range(3):
            torch.testing.assert_close(guides[k], twins[k][i], rtol=1e-5, atol=1e-6)


@pytest.mark.soak
def test_compiled_noise_is_the_eager_one():
    make, shape = KINDS["mlp"]
    eager, compiled = (
        all_at_once(make, shape, samplers()["emcmc"], [0.1] * 6, fused=fused)
        for fused in (False, True)
    )
    for one, other in zip(eager, compiled, strict=True):
        for key, value in one.state_dict().items():
            torch.testing.assert_close(value, other.state_dict()[key], rtol=1e-4, atol=1e-5)


def test_frozen_parameters_stay_and_guides_can_be_read():
    modules = [mlp(seed) for seed in SEEDS]
    for module in modules:
        module[0].weight.requires_grad_(False)
    before = [module[0].weight.clone() for module in modules]
    stacked = StackedModules(modules)
    sampler = StackedSampler(stacked, samplers()["emcmc"], SEEDS, lr=0.1, num_data=9, eta=0.5)
    stacked(torch.ones(3, 16, 4)).sum().backward()
    sampler.step()
    stacked.write_back()
    for module, weight in zip(modules, before, strict=True):
        assert torch.equal(module[0].weight, weight)
    assert sampler.copy("guide")[0].shape == (3, 8)


def test_a_module_that_diverges_is_named():
    stacked = StackedModules([nn.Linear(1, 1) for _ in SEEDS])
    common = {"lr": 0.1, "num_data": 9, "eta": 0.5, "check_every": 2}
    sampler = StackedSampler(stacked, samplers()["emcmc"], SEEDS, **common)
    weight = torch.tensor([1.0, float("inf"), 1.0])[:, None, None]
    for look in (False, True):
        sampler.zero_grad()
        (weight * stacked(torch.ones(3, 2, 1))).sum().backward()
        expected = pytest.raises(NonFiniteError, match=r"module 1 .*lr=0\.1")
        with expected if look else nullcontext():
            sampler.step()


def test_models_of_the_library_are_stacked():
    torch.manual_seed(0)
    modules = [build("mlp", in_features=4, outputs=3) for _ in SEEDS]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stack_or_explain(modules, torch.randn(3, 5, 4)) is not None


class Branching(nn.Linear):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        ([nn.Linear(4, 4), nn.Linear(4, 5)], "module 1 differs"),
        ([nn.Linear(4, 4), nn.Linear(4, 4).eval()], "module 1 differs"),
        ([nn.Sequential(nn.Linear(4, 4), nn.Dropout()) for _ in range(2)], "random"),
        ([Branching(4, 4) for _ in range(2)], "data-dependent"),
    ],
)
def test_what_cannot_be_stacked_says_why(modules, reason):
    with pytest.warns(RuntimeWarning, match=f"one after the other.*{reason}"):
        assert stack_or_explain(modules, torch.randn(2, 5, 4)) is None


def test_bad_calls_are_refused():
    with pytest.raises(ConfigError, match="at least one module"):
        StackedModules([])
    stacked = StackedModules([mlp(0), mlp(1)])
    with pytest.raises(ConfigError, match="each of the 2 modules, got 1"):
        StackedSampler(stacked, samplers()["sgld"], [0], lr=0.1, num_data=9)
