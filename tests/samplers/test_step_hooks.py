"""Hooks and profiles of a sampler's step are those of any optimizer, and so is `zero_grad`."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from entropy_mcmc.samplers import SGLD, EntropyMCMC


def made(kind):
    theta = nn.Parameter(torch.ones(3))
    theta.grad = torch.ones(3)
    more = {"eta": 1.0} if kind is EntropyMCMC else {}
    return kind([theta], lr=0.1, num_data=10, seed=0, **more), theta


@pytest.mark.parametrize("kind", [SGLD, EntropyMCMC])
def test_hooks_are_called_from_the_moment_they_are_there(kind):
    sampler, _ = made(kind)
    sampler.step()
    seen = []
    before = sampler.register_step_pre_hook(lambda *_: seen.append("before"))
    after = sampler.register_step_post_hook(lambda *_: seen.append("after"))
    everywhere = register_optimizer_step_post_hook(lambda *_: seen.append("everywhere"))
    try:
        sampler.step()
        assert seen == ["before", "after", "everywhere"]
        assert sampler.param_groups[0]["step"] == 2
    finally:
        for handle in (before, after, everywhere):
            handle.remove()
    sampler.step()
    assert len(seen) == 3


@pytest.mark.parametrize("kind", ["before", "after", "before all", "after all"])
def test_a_hook_of_one_kind_alone_is_called(kind):
    sampler, _ = made(SGLD)
    register = {
        "before": sampler.register_step_pre_hook,
        "after": sampler.register_step_post_hook,
        "before all": register_optimizer_step_pre_hook,
        "after all": register_optimizer_step_post_hook,
    }[kind]
    seen = []
    handle = register(lambda *_: seen.append(kind))
    try:
        sampler.step()
    finally:
        handle.remove()
    assert seen == [kind]


def test_profiles_name_the_step_and_zero_grad():
    sampler, theta = made(EntropyMCMC)
    sampler.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        sampler.step()
        sampler.zero_grad()
    names = {event.key for event in profile.key_averages()}
    assert "Optimizer.step#EntropyMCMC.step" in names
    assert "Optimizer.zero_grad#EntropyMCMC.zero_grad" in names
    assert theta.grad is None


def test_gradients_are_forgotten_or_set_to_zero():
    sampler, theta = made(SGLD)
    sampler.zero_grad(set_to_none=False)
    assert torch.equal(theta.grad, torch.zeros(3))
    sampler.zero_grad()
    assert theta.grad is None


def test_copies_and_schedulers_still_step():
    sampler, _ = made(EntropyMCMC)
    twin = copy.deepcopy(sampler)
    for param in twin.param_groups[0]["params"]:
        param.grad = torch.ones(3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(twin, 0.5)
    twin.step()
    schedule.step()
    assert twin.param_groups[0]["lr"] == 0.05
    assert sampler.param_groups[0]["step"] == 0
