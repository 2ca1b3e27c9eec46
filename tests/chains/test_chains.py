"""Vectorised chains against the optimizers, naive loops and closed forms."""

import shutil
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

from entropy_mcmc import chains, noise
from entropy_mcmc.chains import compilation, noise_and_batches, sampling
from entropy_mcmc.chains.energy import Energy
from entropy_mcmc.chains.row_layout import Layout
from entropy_mcmc.samplers import SGHMC, SGLD, EntropyMCMC
from entropy_mcmc.samplers.kernel import compiled

METHODS = [
    ("sgld", SGLD, {}),
    ("sghmc", SGHMC, {"momentum": 0.7}),
    ("emcmc", EntropyMCMC, {"eta": 0.5}),
    ("emcmc", EntropyMCMC, {"eta": 0.5, "momentum": 0.6}),
    ("emcmc", EntropyMCMC, {"eta": 0.5, "guide_update": "exact"}),
    ("emcmc", EntropyMCMC, {"eta": 0.5, "guide_update": "gibbs"}),
    ("sgld", SGLD, {"integrator": "lm"}),
    ("sghmc", SGHMC, {"momentum": 0.7, "integrator": "baoab"}),
    ("emcmc", EntropyMCMC, {"eta": 0.5, "integrator": "lm"}),
    ("emcmc", EntropyMCMC, {"eta": 0.5, "integrator": "baoab", "momentum": 0.6}),
    ("emcmc", EntropyMCMC, {"eta": 0.5, "guide_update": "collapsed"}),
    ("emcmc", EntropyMCMC, {"eta": 0.5, "guide_update": "collapsed", "integrator": "lm"}),
]


def problem():
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(40, 3, generator=generator)
    y = (x.sum(1) > 0).long()
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)), x, y


@pytest.mark.parametrize(("name", "kind", "settings"), METHODS)
def test_chain_zero_is_the_optimizer_step_for_step(name, kind, settings):
    net, x, y = problem()
    common = {"lr": 0.3, "num_data": 40, "temperature": 0.5, "weight_decay": 0.01, "seed": 8}
    draws = chains.run(
        net,
        data=(x, y),
        loss=F.cross_entropy,
        sampler=name,
        steps=19,
        chains=3,
        **common,
        **settings,
    )
    sampler = kind(net.parameters(), **common, **settings)
    for step in range(19):
        sampler.zero_grad()
        F.cross_entropy(net(x), y).backward()
        sampler.step()
        for key, p in net.named_parameters():
            torch.testing.assert_close(draws.theta[key][0, step], p.detach(), rtol=1e-4, atol=1e-5)
        with sampler.guide() if name == "emcmc" else nullcontext():
            for key, p in net.named_parameters():
                if name != "emcmc":
                    continue
                guide = p.detach()
                torch.testing.assert_close(draws.guide[key][0, step], guide, rtol=1e-4, atol=1e-5)
    assert (draws.guide is None) == (name != "emcmc")


def naive_sgld(x, seed, chain, steps, rows):
    """One chain of SGLD for the mean of x, from the addresses in the module docstring."""
    theta, out = torch.zeros(2), []
    for step in range(steps):
        position = torch.arange(rows, dtype=torch.int32)
        high = torch.tensor(chain * 2**10, dtype=torch.int32)
        schedule = noise.step_schedule(seed, step, stream=255)
        bits, _ = noise.threefry2x32(schedule, position, high, noise.ELEMENT_ROUNDS)
        batch = x[[(int(b) % 2**32) * len(x) // 2**32 for b in bits]]
        counters = noise.counters(chain, 0, 2, torch.device("cpu"))
        eps, _ = noise.normal_pair(noise.step_schedule(seed, step), *counters)
        theta = theta - 0.1 * (theta - batch).mean(0) + (2 * 0.1 / len(x)) ** 0.5 * eps
        out.append(theta)
    return torch.stack(out)


def test_every_chain_equals_a_naive_loop_with_mini_batches():
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    draws = chains.run(
        lambda t, batch: (t - batch).square().sum(1).mean() / 2,
        torch.zeros(2),
        data=(x,),
        batch_size=4,
        sampler="sgld",
        steps=21,
        chains=3,
        lr=0.1,
        num_data=50,
        seed=6,
    )
    for chain in range(3):
        torch.testing.assert_close(draws.theta[chain], naive_sgld(x, 6, chain, 21, 4))


@pytest.mark.parametrize("version", [compilation.KNOWN_TORCH, "another version"])
def test_compiled_chains_are_the_eager_ones(monkeypatch, version):
    """Two groups, of which the second overlaps, and a last call that runs past the end.

    In a version of torch that we do not know, the kernel is called through `torch.compile`.
    """
    monkeypatch.setattr(compilation, "KNOWN_TORCH", version)
    monkeypatch.setattr(sampling, "UNROLL", 4)  # compiles in a quarter of the time
    monkeypatch.setattr(noise_and_batches, "LONGEST", 8)  # three sets of keys
    monkeypatch.setattr(sampling, "LONGEST", 8)
    monkeypatch.setattr(sampling, "CACHE", 2 * 8 * 12)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))

    def energy(theta, batch):
        return F.softplus(-(batch @ theta)).mean()

    common = {"data": (x,), "batch_size": 8, "chains": 3, "lr": 0.2, "num_data": 50, "eta": 0.1}
    draws = [
        chains.run(energy, torch.zeros(3), steps=22, seed=1, compile=use, **common)
        for use in (False, True)
    ]
    torch.testing.assert_close(draws[0].theta, draws[1].theta, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(draws[0].guide, draws[1].guide, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["tensor", "number"])
def test_what_the_energy_closes_over_may_change(monkeypatch, kind):
    """A kernel that was made for the first value must not be used for the second."""
    monkeypatch.setattr(sampling, "UNROLL", 2)
    centre = torch.zeros(2) if kind == "tensor" else 0.0

    def energy(theta):
        return (theta - centre).square().sum()

    assert (compilation.constants(energy) is None) == (kind == "tensor")

    common = {"steps": 6, "lr": 0.2, "num_data": 1, "eta": 0.5, "chains": 2, "seed": 3}
    for value in (0.0, 5.0):
        centre = centre.fill_(value) if kind == "tensor" else value
        eager, fast = (
            chains.run(energy, torch.zeros(2), compile=use, **common) for use in (False, True)
        )
        torch.testing.assert_close(fast.theta, eager.theta, rtol=1e-4, atol=1e-5)


def test_thinning_and_burn_in_pick_states_of_the_same_chain():
    common = {"lr": 0.1, "num_data": 1, "eta": 0.5, "chains": 2, "seed": 3}
    whole = chains.run(lambda t: t.square().sum(), torch.zeros(2), steps=30, **common)
    part = chains.run(
        lambda t: t.square().sum(), torch.zeros(2), steps=30, burn_in=7, thin=5, **common
    )
    assert torch.equal(part.theta, whole.theta[:, 7::5])
    assert torch.equal(part.guide, whole.guide[:, 7::5])


@pytest.mark.parametrize("temperature", [1.0, 0.01])
def test_acceptance_a(temperature):
    """Variances T[A(I − αA/2)]⁻¹ of a quadratic energy, each ± 4.5 % (false alarm 2e-5)."""
    draws = chains.run(
        lambda t: t.square().sum() / 2,
        torch.zeros(1),
        steps=300,
        burn_in=299,
        chains=20_000,
        lr=0.1,
        num_data=1,
        eta=0.5,
        temperature=temperature,
        seed=12,
    )
    theta, guide = draws.theta[:, 0, 0], draws.guide[:, 0, 0]
    for value, variance in [(theta, 1.059603), (guide, 1.556291), (theta - guide, 0.629139)]:
        assert float(value.var()) / temperature == pytest.approx(variance, rel=0.045)


FLAT, SHARP = torch.tensor([2.0, 1.0]), torch.tensor([-2.0, -1.0])


def mixture(theta):
    """Energy of ½N([−2,−1], 0.5 I) + ½N([2,1], I)."""
    flat = -(theta - FLAT).square().sum() / 2
    sharp = -(theta - SHARP).square().sum() - 2 * torch.tensor(0.5).sqrt().log()
    return -torch.logaddexp(flat, sharp)


def near_flat(x):
    return ((x - FLAT).square().sum(-1) < (x - SHARP).square().sum(-1)).double().mean()


@pytest.mark.soak
def test_acceptance_c():
    """Joint starts stay: flat mass .494 ± .015, Var(θ−θ_a) .505 ± .006."""
    generator = torch.Generator().manual_seed(5)
    coin = torch.rand(20_000, 1, generator=generator) < 0.5
    normal = torch.randn(20_000, 2, generator=generator)
    start = torch.where(coin, FLAT + normal, SHARP + 0.5**0.5 * normal)
    common = {"lr": 0.005, "num_data": 1, "eta": 0.5, "seed": 5}
    draws = chains.run(mixture, start, steps=4000, burn_in=2000, thin=20, **common)
    assert float(near_flat(draws.theta)) == pytest.approx(0.494, abs=0.015)
    assert float((draws.theta - draws.guide).var()) == pytest.approx(0.505, abs=0.006)


def test_acceptance_d():
    """Fractions near the flat mode after 1000 iterations, measured once elsewhere, ± .035."""
    start = torch.tensor([-0.2, -0.2])
    common = {"steps": 1000, "burn_in": 999, "chains": 4000, "lr": 0.005, "num_data": 1, "seed": 7}
    sgld = chains.run(mixture, start, sampler="sgld", **common)
    emcmc = chains.run(mixture, start, eta=0.5, **common)
    assert float(near_flat(sgld.theta)) == pytest.approx(0.416, abs=0.035)
    assert float(near_flat(emcmc.theta)) == pytest.approx(0.398, abs=0.035)
    assert float(near_flat(emcmc.guide)) == pytest.approx(0.394, abs=0.035)


@pytest.mark.parametrize("number", [1, 5, 6])
def test_groups_cover_all_chains_with_one_size(number, monkeypatch):
    """At two chains a group: 5 chains are three groups, of which the last overlaps."""
    monkeypatch.setattr(sampling, "CACHE", 2 * 4 * 12)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    energy = Energy(torch.sum, Layout((), (torch.Size([3]),)), (torch.zeros(9, 3),), 4)
    groups = sampling._groups(energy, torch.zeros(number, 3), True)
    assert {g.stop - g.start for g in groups} == {min(number, 2)}
    assert {c for g in groups for c in range(number)[g]} == set(range(number))
    assert sampling._groups(energy, torch.zeros(number, 3), False) == [slice(0, number)]


def test_grouped_chains_are_the_chains_of_one_group(monkeypatch):
    """Three groups of two, overlapping, one burn-in that is no multiple of a call."""
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    common = {"data": (x,), "batch_size": 8, "chains": 5, "lr": 0.2, "num_data": 50, "eta": 0.1}
    common |= {"steps": 37, "burn_in": 3, "thin": 4, "seed": 1, "compile": False}

    def draws():
        return chains.run(lambda t, rows: (t - rows).square().mean(), torch.zeros(3), **common)

    whole = draws()
    split = [slice(0, 2), slice(2, 4), slice(3, 5)]
    monkeypatch.setattr(sampling, "_groups", lambda *_: split)
    torch.testing.assert_close(draws().theta, whole.theta)
    torch.testing.assert_close(draws().guide, whole.guide)
    assert whole.theta.shape == (5, 9, 3)


def test_without_a_compiler_the_notice_names_the_option_of_chains(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    compiled.available.cache_clear()
    with pytest.warns(RuntimeWarning, match="pass compile=False to silence"):
        chains.run(
            lambda t: t.square().sum() / 2,
            torch.zeros(2),
            **{"chains": 2, "steps": 4, "lr": 0.1, "num_data": 1, "eta": 0.5, "compile": True},
        )
    compiled.available.cache_clear()
