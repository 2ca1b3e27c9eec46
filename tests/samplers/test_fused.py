"""The compiled step: same numbers and distribution as the eager one, one compilation for all.

Compilations cost seconds each: almost all tests here share the three kernels of `euler`.
"""

import shutil
import warnings

import pytest
import torch

from entropy_mcmc import noise
from entropy_mcmc.samplers import SGLD, EntropyMCMC, entropy_mcmc, sghmc, sgld
from entropy_mcmc.samplers.kernel import advance as eager
from entropy_mcmc.samplers.kernel import compiled as fused
from entropy_mcmc.samplers.kernel.tensor_buckets import Slot
from entropy_mcmc.samplers.rule import Update

SHAPES = [(150, 300), (64,), (7, 3), (), (1,)]


def network(device):
    generator = torch.Generator().manual_seed(1)
    params = [torch.nn.Parameter(torch.randn(s, generator=generator).to(device)) for s in SHAPES]
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(device)
    return params


def emcmc(params, **changes):
    settings = {"lr": 0.5, "num_data": 100, "eta": 0.02, "weight_decay": 0.01, "seed": 3}
    return EntropyMCMC(params, **{**settings, **changes})


def states(sampler, params):
    return [p.detach().clone() for p in params] + [
        sampler.state[p]["guide"].clone() for p in params
    ]


def chain(device, steps, **changes):
    params = network(device)
    sampler = emcmc(params, **changes)
    for _ in range(steps):
        sampler.step()
    return states(sampler, params)


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_fused_equals_eager(device, temperature):
    eager = chain(device, 3, fused=False, temperature=temperature)
    compiled = chain(device, 3, fused=True, temperature=temperature)
    for a, b in zip(eager, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_other_versions_of_torch_go_through_torch_compile(monkeypatch):
    cpu = torch.device("cpu")
    direct = chain(cpu, 3, fused=True)
    monkeypatch.setattr(fused, "KNOWN_TORCH", "another version")
    fused._ready.cache_clear()
    try:
        guarded = chain(cpu, 3, fused=True)
    finally:
        fused._ready.cache_clear()
    for a, b in zip(direct, guarded, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.01])
@pytest.mark.parametrize("path", [False, True])
def test_acceptance_a_on_both_paths(device, path, temperature):
    """Variances T[A(I − αA/2)]⁻¹ of the Euler chain, each ± 4.5 % (false alarm 2e-5)."""
    theta = torch.nn.Parameter(torch.zeros(20_000, device=device))
    settings = {"num_data": 1, "eta": 0.5, "temperature": temperature, "seed": 11, "fused": path}
    sampler = EntropyMCMC([theta], lr=0.1, **settings)
    for _ in range(300):
        theta.grad = theta.detach().clone()
        sampler.step()
    x, guide = theta.detach(), sampler.state[theta]["guide"]
    for value, variance in [(x, 1.059603), (guide, 1.556291), (x - guide, 0.629139)]:
        assert float(value.var()) / temperature == pytest.approx(variance, rel=0.045)


def test_the_same_chain_with_one_and_two_threads():
    cpu, before = torch.device("cpu"), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = chain(cpu, 2, fused=True)
        torch.set_num_threads(2)
        two = chain(cpu, 2, fused=True)
    finally:
        torch.set_num_threads(before)
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a, b)


def test_a_resumed_fused_chain_is_the_chain(device):
    whole = chain(device, 4, fused=True)
    params = network(device)
    first = emcmc(params, fused=True)
    first.step()
    first.step()
    resumed = emcmc(params, fused=True, seed=99)
    resumed.load_state_dict(first.state_dict())
    resumed.step()
    resumed.step()
    for a, b in zip(whole, states(resumed, params), strict=True):
        assert torch.equal(a, b)


def move(path, sizes, start, device):
    """One Euler step of tensors of these sizes that begin at element `start`."""
    slots = tuple(Slot(5 + i, start, size) for i, size in enumerate(sizes))
    generator = torch.Generator().manual_seed(2)
    columns = [[torch.randn(n, generator=generator).to(device) for n in sizes] for _ in range(3)]
    coefficients = entropy_mcmc.Euler(0.1, 0.01, 0.2, 0.0, 1.0)
    update = Update(entropy_mcmc.euler, entropy_mcmc.Coupled, coefficients, normals=2)
    schedule = noise.step_schedule(7, 10**9)
    eager.advance(update, columns[:2], columns[2:], schedule, slots, fused=path)
    return columns[0] + columns[1]


@pytest.mark.parametrize("start", [0, 2**30 - 100, 2**31 - 100, 2**32 - 100, 2**41])
def test_counters_far_out_and_across_carries(device, start):
    eager, compiled = (move(path, [300], start, device) for path in (False, True))
    for a, b in zip(eager, compiled, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_one_compilation_serves_all_sizes(device):
    move(True, [2**15], 0, device)
    move(True, [50, 50], 0, device)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for size in (64, 65, 100, 128, 1000, 4096, 2**15, 2**15 + 1, 2**16 + 8, 10**5):
        move(True, [size], 0, device)
        move(True, [size // 3, size - size // 3], 0, device)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before


@pytest.mark.parametrize("size", [1, 2, 5, 8, fused.LEAST - 1])
def test_tiny_tensors_take_the_eager_path(device, size):
    for a, b in zip(move(False, [size], 0, device), move(True, [size], 0, device), strict=True):
        assert torch.equal(a, b)


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    fused.available.cache_clear()
    yield
    fused.available.cache_clear()


def test_without_a_compiler_one_notice_and_the_eager_chain(no_compiler):
    cpu = torch.device("cpu")
    with pytest.warns(RuntimeWarning, match="compiler") as notices:
        got = chain(cpu, 3, fused=True)
    assert len(notices) == 1
    for a, b in zip(got, chain(cpu, 3, fused=False), strict=True):
        assert torch.equal(a, b)


def test_the_compiler_named_by_cxx_is_the_one_looked_for(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    fused.available.cache_clear()
    with pytest.warns(RuntimeWarning, match="no-such-compiler"):
        assert not fused.available("cpu")
    fused.available.cache_clear()


def test_auto_never_compiles_small_models_or_short_runs(monkeypatch):
    def refuse(*args):
        raise AssertionError("compiled")

    monkeypatch.setattr(fused, "run", refuse)
    chain(torch.device("cpu"), 5, fused="auto")
    small = torch.nn.Parameter(torch.zeros(100))
    sampler = SGLD([small], lr=0.1, num_data=10, seed=0)
    sampler.param_groups[0]["step"] = 10**12 // 2
    small.grad = torch.ones(100)
    sampler.step()
    assert float(small.detach().abs().sum()) > 0


def test_the_step_at_which_auto_switches_is_a_function_of_the_size(monkeypatch):
    monkeypatch.setattr(fused, "available", lambda device_type: True)
    for size in (1, 2**16 - 1, 2**16, 269_322, 11_173_962, 10**9, 10**10):
        first = fused.switch_step("auto", size)
        for step in {0, 1, 10**9, first or 0, max(0, (first or 0) - 1)}:
            pays = size >= 2**16 and size * step >= 10**9
            assert fused.wanted("auto", size, step, "cpu") == pays
            assert fused.wanted(True, size, step, "cpu")
            assert not fused.wanted(False, size, step, "cpu")
    sampler = SGLD([torch.nn.Parameter(torch.zeros(2**16))], lr=0.1, num_data=10)
    assert sampler.compiled_from == fused.switch_step("auto", 2**16) == 15259


def test_auto_compiles_where_it_pays(monkeypatch):
    used = []
    monkeypatch.setattr(fused, "run", lambda *args: used.append(args))
    param = torch.nn.Parameter(torch.zeros(2**16))
    sampler = SGLD([param], lr=0.1, num_data=10, seed=0)
    for step in (0, 10**9 // 2**16, 10**9 // 2**16 + 1):
        sampler.param_groups[0]["step"] = step
        param.grad = torch.ones(2**16)
        sampler.step()
    assert len(used) == 1


KINDS = [
    (dtype, noisy, slots)
    for dtype in (torch.float32, torch.float64)
    for noisy in (False, True)
    for slots in ((Slot(0, 0, 500),), (Slot(0, 0, 200), Slot(1, 0, 300)))
]
EULER = (entropy_mcmc.euler, entropy_mcmc.Coupled, entropy_mcmc.Euler)
OTHER_RULES = [
    (entropy_mcmc.exact, entropy_mcmc.Coupled, entropy_mcmc.Exact),
    (entropy_mcmc.gibbs, entropy_mcmc.Coupled, entropy_mcmc.Gibbs),
    (entropy_mcmc.euler_momentum, entropy_mcmc.Moving, entropy_mcmc.Euler),
    (sgld.langevin, sgld.Variables, sgld.Coefficients),
    (sghmc.hamiltonian, sghmc.Variables, sghmc.Coefficients),
]


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_every_rule_and_every_kind_in_one_process(device):
    """Dynamo gives up after 8 compilations of one code object; none of ours comes near."""
    cases = [(EULER, *kind) for kind in KINDS] + [(rule, *KINDS[2]) for rule in OTHER_RULES]
    for (rule, variables, coefficients), dtype, noisy, slots in cases:
        count = len(variables._fields) + 1
        values = torch.rand(count, 500, dtype=dtype, device=device)
        twin = values.clone()
        numbers = coefficients(*(0.1 for _ in coefficients._fields))
        update = Update(rule, variables, numbers, normals=2 if noisy else 0)
        schedule = noise.step_schedule(1, 2) if noisy else None
        fused.run(update, list(values), schedule, slots)
        eager.run_eager(update, list(twin), schedule, slots)
        torch.testing.assert_close(values, twin, rtol=1e-5, atol=1e-5)


def test_no_warning_escapes_a_compiled_step():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chain(torch.device("cpu"), 1, fused=True)
    assert [str(w.message) for w in caught] == []
