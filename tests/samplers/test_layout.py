"""What a sampler keeps from step to step never hides a change by the user or a scheduler."""

import copy

import pytest
import torch

from entropy_mcmc.samplers import SGHMC, SGLD, EntropyMCMC
from entropy_mcmc.samplers.kernel import layout as layouts

SHAPES = [(3, 4), (5,), (), (2, 1), (7,), (3, 3)]
SETTINGS = {"num_data": 100, "temperature": 0.5, "weight_decay": 0.01, "seed": 3, "fused": False}


def network(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(s, generator=generator).to(dtype)) for s in SHAPES]


def emcmc(params, **changes):
    return EntropyMCMC(params, **{"lr": 0.5, "eta": 0.1, "momentum": 0.9, **SETTINGS, **changes})


def set_gradients(params):
    for i, p in enumerate(params):
        p.grad = p.detach() * ((i + 1) / 4) - 0.125


def states(sampler, params):
    kept = {}
    for i, p in enumerate(params):
        kept[i, "theta"] = p.detach().clone()
        kept |= {(i, name): value.clone() for name, value in sampler.state[p].items()}
    return kept


def chain(change, *, forget, steps=6, make=emcmc, dtype=torch.float32):
    """States after some steps with a change before the fourth; `forget` keeps nothing meanwhile."""
    params = network(dtype)
    sampler = make(params)
    for step in range(steps):
        if step == 3:
            sampler, params = change(sampler, params) or (sampler, params)
        if forget:
            sampler._known = None
        set_gradients([p for p in params if p.requires_grad])
        sampler.step()
    return states(sampler, params)


def entry(name, value):
    def change(sampler, params):
        sampler.param_groups[0][name] = value

    return change


def freeze(sampler, params):
    params[1].requires_grad_(False)
    params[1].grad = None


def add_group(sampler, params):
    extra = torch.nn.Parameter(torch.ones(6))
    sampler.add_param_group({"params": [extra], "lr": 0.25})
    return sampler, [*params, extra]


def load(sampler, params):
    other = emcmc(params, seed=9)
    other.load_state_dict(copy.deepcopy(sampler.state_dict()))
    return other, params


def load_into_itself(sampler, params):
    saved, thetas = copy.deepcopy(sampler.state_dict()), copy.deepcopy(params)
    set_gradients(params)
    sampler.step()
    sampler.load_state_dict(saved)
    for p, theta in zip(params, thetas, strict=True):
        p.data.copy_(theta)


def replace_variable(sampler, params):
    sampler.state[params[0]]["guide"] = torch.full((3, 4), 2.0)


def move_variable(sampler, params):
    sampler.state[params[0]]["guide"].data = torch.full((3, 4), 2.0)


def write_variable(sampler, params):
    sampler.state[params[0]]["guide"].fill_(2.0)


def forget_state(sampler, params):
    sampler.state.clear()


def replace_data(sampler, params):
    params[0].data = torch.full((3, 4), 0.5)


def turn_data(sampler, params):
    """The same memory, read in another order."""
    square = torch.arange(12.0).reshape(4, 3)
    params[0].data = square.t()


def turn_in_place(sampler, params):
    params[5].data = params[5].data.t()


def replace_state(sampler, params):
    old = sampler.state[params[0]]
    sampler.state[params[0]] = {**old, "guide": torch.full((3, 4), 2.0)}


def pop_state(sampler, params):
    """The state of one parameter begins anew, behind the others."""
    del sampler.state[params[0]]


def append_parameter(sampler, params):
    extra = torch.nn.Parameter(torch.ones(6))
    sampler.param_groups[0]["params"].append(extra)
    return sampler, [*params, extra]


def deep_copy(sampler, params):
    copied, params = copy.deepcopy((sampler, params))
    return copied, params


CHANGES = {
    "lr": entry("lr", 0.125),
    "temperature": entry("temperature", 0.125),
    "noise": entry("noise", False),
    "eta": entry("eta", 0.5),
    "momentum": entry("momentum", 0.0),
    "seed": entry("seed", 4),
    "step": entry("step", 40),
    "coupled": entry("coupled", False),
    "requires_grad": freeze,
    "new group": add_group,
    "load_state_dict": load,
    "load_state_dict into itself": load_into_itself,
    "state replaced": replace_variable,
    "state moved": move_variable,
    "state written": write_variable,
    "state cleared": forget_state,
    "data replaced": replace_data,
    "data turned": turn_data,
    "data turned in place": turn_in_place,
    "states replaced": replace_state,
    "one state forgotten": pop_state,
    "parameter appended": append_parameter,
    "deepcopy": deep_copy,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_as_by_a_sampler_that_keeps_nothing(name):
    kept = chain(CHANGES[name], forget=False)
    fresh = chain(CHANGES[name], forget=True)
    assert kept.keys() == fresh.keys()
    for key, value in kept.items():
        assert torch.equal(value, fresh[key]), key


UNCHANGING = ("load_state_dict", "load_state_dict into itself", "deepcopy")


@pytest.mark.parametrize("name", [name for name in CHANGES if name not in UNCHANGING])
def test_a_change_matters(name):
    """Otherwise the test above would show nothing."""
    kept = chain(CHANGES[name], forget=False)
    without = chain(lambda sampler, params: None, forget=False)
    assert any(k not in without or not torch.equal(kept[k], without[k]) for k in kept)


@pytest.mark.parametrize("name", UNCHANGING)
def test_copies_and_saved_states_go_on(name):
    changed = chain(CHANGES[name], forget=False)
    for key, value in chain(lambda sampler, params: None, forget=False).items():
        assert torch.equal(changed[key], value), key


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", [SGLD, SGHMC, EntropyMCMC])
def test_side_by_side_is_one_tensor_at_a_time(kind, dtype, monkeypatch):
    """Small tensors joined, against `advance` with each tensor a bucket of its own."""

    def make(params):
        more = {"eta": 0.1} if kind is EntropyMCMC else {}
        return kind(params, lr=0.5, **SETTINGS, **more)

    joined = chain(lambda s, p: None, forget=False, make=make, dtype=dtype)
    monkeypatch.setattr(
        layouts, "plan", lambda slots: [layouts.Bucket((i,), (s,)) for i, s in enumerate(slots)]
    )
    for key, value in chain(lambda s, p: None, forget=False, make=make, dtype=dtype).items():
        assert torch.equal(joined[key], value), key


def test_a_scheduler_is_seen():
    params = network()
    sampler = SGLD(params, lr=1.0, **{**SETTINGS, "temperature": 0.0, "weight_decay": 0.0})
    schedule = torch.optim.lr_scheduler.StepLR(sampler, step_size=1, gamma=0.5)
    start, total = params[0].detach().clone(), 0.0
    for step in range(4):
        for p in params:
            p.grad = torch.ones_like(p)
        sampler.step()
        schedule.step()
        total += 0.5**step
    torch.testing.assert_close(params[0].detach(), start - total)


def test_no_normals_are_drawn_while_the_noise_is_off(monkeypatch):
    from entropy_mcmc import noise

    def refuse(*args, **kwargs):
        raise AssertionError("drew normals")

    for name in ("step_schedule", "normal_pair", "counters"):
        monkeypatch.setattr(noise, name, refuse)
    params = network()
    sampler = emcmc(params)
    sampler.param_groups[0]["noise"] = False
    before = params[0].detach().clone()
    set_gradients(params)
    sampler.step()
    assert not torch.equal(params[0], before)


def test_a_sparse_gradient_among_small_ones_is_refused_by_name():
    params = network()
    sampler = SGLD(params, lr=0.1, **SETTINGS)
    set_gradients(params)
    params[0].grad = torch.eye(3, 4).to_sparse()
    with pytest.raises(ValueError, match="gradients must be dense"):
        sampler.step()


def test_no_gradient_is_kept_after_the_step():
    import weakref

    params = network()
    sampler = emcmc(params)
    set_gradients(params)
    kept = [weakref.ref(p.grad) for p in params]
    sampler.step()
    sampler.zero_grad()
    assert [ref() for ref in kept] == [None] * len(params)


def test_a_parameter_of_another_size_is_seen():
    def resize(sampler, params):
        params[0].data = torch.full((2, 2), 0.5)

    def make(params):
        return SGLD(params, lr=0.5, **SETTINGS)

    kept = chain(resize, forget=False, make=make)
    for key, value in chain(resize, forget=True, make=make).items():
        assert torch.equal(kept[key], value), key
