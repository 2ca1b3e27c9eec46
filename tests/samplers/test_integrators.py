"""Integrators and the collapsed guide: what goes together, limits that are others, distributions.

A z-score over the bound of 4.5 has a false-alarm rate of 7e-6; seeds are fixed.
"""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from entropy_mcmc import SGHMC, SGLD, EntropyMCMC, theory
from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.samplers.coupled import TAKES_MOMENTUM
from scenarios import covariance_z

BOUND = 4.5
COMMON = {"lr": 0.3, "num_data": 10, "temperature": 0.7, "weight_decay": 0.05, "seed": 1}
GUIDE_UPDATES = ("euler", "exact", "gibbs", "collapsed")
COLLAPSED = {"eta": 0.2, "guide_update": "collapsed"}


def parameter(size=50, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return nn.Parameter(torch.randn(size, generator=generator, dtype=dtype))


def chain(kind, steps=12, rates=None, gradient=torch.sin, **options):
    """θ after a few steps, whose lr follows `rates` if there are some."""
    param = parameter()
    optimizer = kind([param], **options)
    for step in range(steps):
        if rates:
            optimizer.param_groups[0]["lr"] = rates[step]
        param.grad = gradient(param.detach())
        optimizer.step()
    return param.detach()


# What goes together.


@pytest.mark.parametrize("integrator", ["euler", "lm", "baoab"])
@pytest.mark.parametrize("guide_update", GUIDE_UPDATES)
def test_the_table_of_combinations_is_what_can_be_built(integrator, guide_update):
    options = {**COMMON, "eta": 0.2, "integrator": integrator, "guide_update": guide_update}
    pair = integrator, guide_update
    for momentum in (0.0, 0.5):
        if pair in TAKES_MOMENTUM and (TAKES_MOMENTUM[pair] or not momentum):
            chain(EntropyMCMC, steps=2, momentum=momentum, **options)
        else:
            what = "momentum" if pair in TAKES_MOMENTUM else "guide_update"
            with pytest.raises(ConfigError, match=rf"{what} must be .*; use "):
                EntropyMCMC([parameter()], momentum=momentum, **options)


def test_the_table_in_the_docstring_is_the_one_in_the_code():
    from entropy_mcmc.samplers import coupled

    rows = [line.split("  ") for line in coupled.__doc__.splitlines() if line.startswith('"')]
    for cells in ([part.strip() for part in row if part.strip()] for row in rows):
        for guide_update, cell in zip(GUIDE_UPDATES, cells[1:], strict=True):
            assert (cell != "–") == ((cells[0].strip('"'), guide_update) in TAKES_MOMENTUM)
    assert len(rows) == 3


@pytest.mark.parametrize("page", ["beyond.md", "samplers.md"])
def test_the_table_in_the_docs_is_the_one_in_the_code(page):
    """A dash for what does not exist; momentum is named where it is taken, and replicas are."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    table = text.partition('| `integrator` | `guide_update="euler"`')[2].split("\n\n")[0]
    rows = {line.split("`")[1].strip('"'): line for line in table.splitlines()[2:]}
    assert list(rows) == ["euler", "lm", "baoab"]
    for integrator, line in rows.items():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")[1:]]
        for guide_update, cell in zip(GUIDE_UPDATES, cells, strict=True):
            pair = integrator, guide_update
            assert (cell != "–") == (pair in TAKES_MOMENTUM)
            assert ("momentum" in cell) == TAKES_MOMENTUM.get(pair, False)
            assert ("replicas" in cell) == takes_replicas(*pair)


def takes_replicas(integrator, guide_update):
    options = {"integrator": integrator, "guide_update": guide_update, "replicas": 2}
    try:
        EntropyMCMC([parameter()], **COMMON, eta=0.2, **options)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda p: SGLD([p], **COMMON, integrator="baoab"), r"SGHMC\(.*integrator=\"baoab\"\)"),
        (lambda p: SGHMC([p], **COMMON, integrator="lm"), r"integrator=\"baoab\" \(at momentum=0"),
        (
            lambda p: EntropyMCMC([p], **COMMON, eta=0.2, integrator="lm", momentum=0.9),
            "momentum must be 0 with integrator='lm', got momentum=0.9; use integrator=\"baoab\"",
        ),
        (lambda p: SGLD([p], **COMMON, integrator="verlet"), "'euler', 'lm', 'baoab'"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_remedy(make, remedy):
    with pytest.raises(ConfigError, match=remedy):
        make(parameter())


@pytest.mark.parametrize("integrator", ["lm", "baoab"])
def test_the_coupling_has_the_limit_of_euler_but_no_heat_to_warn_of(integrator):
    options = {"lr": 0.5, "num_data": 100, "integrator": integrator}
    with pytest.raises(ConfigError, match="eta must be greater than"):
        EntropyMCMC([parameter()], eta=0.005, **options)
    EntropyMCMC([parameter()], eta=0.006, **options)  # lr/(ηN) = 0.83: Euler would warn


# Limits that are other rules.


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_baoab_without_noise_is_torch_sgd(momentum):
    ours = chain(
        SGHMC, 20, lr=0.1, num_data=10, momentum=momentum, temperature=0.0, integrator="baoab"
    )
    theirs = chain(torch.optim.SGD, 20, lr=0.1, momentum=momentum)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_baoab_without_momentum_is_averaged_noise():
    """Up to the first step: `lm` begins with the noise of a step before it, BAOAB at rest."""
    params = [parameter(), parameter()]
    lm = SGLD([params[0]], **COMMON, integrator="lm")
    baoab = SGHMC([params[1]], **COMMON, momentum=0.0, integrator="baoab")
    baoab.param_groups[0]["step"] = 1  # its new noise has the address of `lm`'s new noise
    for step in range(8):
        for param, sampler in zip(params, (lm, baoab), strict=True):
            sampler.param_groups[0]["lr"] = 0.3 / (1 + step)
            param.grad = torch.sin(param.detach())
            sampler.step()
        if step == 0:
            params[0].data.copy_(params[1].data)
    torch.testing.assert_close(params[0], params[1], rtol=1e-10, atol=1e-12)


ALONE = [
    (SGLD, {}),
    (SGLD, {"integrator": "lm"}),
    (SGHMC, {"momentum": 0.6}),
    (SGHMC, {"momentum": 0.6, "integrator": "baoab"}),
]


@pytest.mark.parametrize(("kind", "options"), ALONE)
def test_theta_of_a_collapsed_pair_is_the_chain_without_a_guide(kind, options):
    rates = [0.3 / (1 + step) for step in range(12)]
    alone = chain(kind, rates=rates, **COMMON, **options)
    pair = chain(EntropyMCMC, rates=rates, **COMMON, **COLLAPSED, **options)
    assert torch.equal(alone, pair)


# The distributions at the step size used.


@pytest.mark.parametrize(("kind", "options"), ALONE)
@pytest.mark.parametrize("temperature", [1.0, 0.01])
def test_distribution_of_a_collapsed_pair(kind, options, temperature):
    """Var θ, Cov and Var θ_a of 40,000 coordinates, with gradient noise of variance V."""
    n, lr, h, eta, V, size = 10, 0.6, 10.0, 0.2, 2.0 * temperature, 40_000
    param = nn.Parameter(torch.zeros(size))
    sampler = EntropyMCMC(
        [param], lr=lr, num_data=n, temperature=temperature, seed=3, eta=eta,
        guide_update="collapsed", **options,
    )  # fmt: skip
    g = torch.Generator().manual_seed(4)
    for _ in range(60):
        kick = torch.randn(size, generator=g) * math.sqrt(V) / n
        param.grad = h / n * param.detach() + kick
        sampler.step()
    theta = param.detach().double().numpy().copy()
    with sampler.guide():
        guide = param.detach().double().numpy().copy()
    settings = {"momentum": 0.0, "integrator": "euler", **options}
    moments = theory.collapsed_covariance(lr / n, h, eta, temperature, V, **settings)
    sigma = np.array([[moments.theta, moments.cross], [moments.cross, moments.guide]])
    assert np.abs(covariance_z(np.stack([theta, guide]), sigma)).max() < BOUND


@pytest.mark.parametrize(("integrator", "momentum"), [("lm", 0.0), ("baoab", 0.6), ("baoab", 0.95)])
def test_distribution_of_a_joint_pair_has_no_bias_at_a_large_step(integrator, momentum):
    """At 60 % of the largest step, where Euler's Var θ is 1.7 to 3.7 times T/h: T·A⁻¹ exactly."""
    h, eta, n = 1.0, 0.5, 1
    alpha = 0.6 * theory.max_step_size(h, eta, momentum=momentum)
    assert theory.momentum_covariance(alpha, h, eta, momentum).theta > 1.2
    param = nn.Parameter(torch.zeros(20_000))
    sampler = EntropyMCMC(
        [param], lr=alpha, num_data=n, eta=eta, momentum=momentum, integrator=integrator, seed=5
    )
    for _ in range(300):
        param.grad = h * param.detach()
        sampler.step()
    rows = np.stack([param.detach().double().numpy(), sampler.state[param]["guide"].double()])
    moments = theory.averaged_covariance(alpha, h, eta, momentum=momentum)
    sigma = np.array([[moments.theta, moments.cross], [moments.cross, moments.guide]])
    assert np.abs(covariance_z(rows, sigma)).max() < BOUND


# The collapsed guide.


def collapsed(**options):
    param = parameter()
    sampler = EntropyMCMC([param], **{**COMMON, **COLLAPSED, **options})
    return param, sampler


def stepped(steps=3, **options):
    param, sampler = collapsed(**options)
    for _ in range(steps):
        param.grad = torch.sin(param.detach())
        sampler.step()
    return param, sampler


def shown_guide(param, sampler):
    with sampler.guide():
        return param.detach().clone()


def test_guide_is_a_function_of_the_step_and_leaves_nothing_behind():
    param, sampler = stepped()
    before, state = param.detach().clone(), sampler.state_dict()
    first, second = shown_guide(param, sampler), shown_guide(param, sampler)
    assert torch.equal(first, second)
    assert torch.equal(param, before)
    assert sampler.state_dict() == state
    param.grad = torch.zeros_like(param)
    sampler.step()
    later = shown_guide(param, sampler) - param.detach()
    assert not torch.allclose(later, first - before), "two steps share the draw"


def test_guide_draws_are_independent_of_the_noise_of_the_steps():
    """Correlation of ξ with the noise of the step before and after: |z| < 4.5 each."""
    param = nn.Parameter(torch.zeros(40_000))
    sampler = EntropyMCMC([param], **{**COMMON, **COLLAPSED, "weight_decay": 0.0})
    rows = []
    for _ in range(3):
        before = param.detach().clone()
        param.grad = torch.zeros_like(param)
        sampler.step()
        rows += [param.detach() - before, shown_guide(param, sampler) - param.detach()]
    z = torch.corrcoef(torch.stack(rows)) * 40_000**0.5
    assert float((z - z.diag().diag()).abs().max()) < BOUND


def test_guide_is_theta_before_the_first_step_without_noise_and_at_zero_temperature():
    for param, sampler in (collapsed(), stepped(temperature=0.0), stepped()):
        if sampler.param_groups[0]["step"] and sampler.param_groups[0]["temperature"]:
            sampler.param_groups[0]["noise"] = False
        assert torch.equal(shown_guide(param, sampler), param.detach())


def test_guide_restores_theta_after_an_error_and_is_closed_inside():
    param, sampler = stepped()
    before = param.detach().clone()
    with sampler.guide():
        for call in (sampler.step, sampler.state_dict, lambda: sampler.guide().__enter__()):
            with pytest.raises(StateError, match="leave the block"):
                call()
    with pytest.raises(KeyError), sampler.guide():
        raise KeyError
    assert torch.equal(param, before)
    assert "guide" not in sampler.state.get(param, {})


def test_bfloat16_guides_are_drawn_around_the_float32_master():
    param = nn.Parameter(torch.zeros(1000, dtype=torch.bfloat16))
    sampler = EntropyMCMC([param], **{**COMMON, **COLLAPSED})
    param.grad = torch.ones_like(param)
    sampler.step()
    theta = param.detach().clone()
    master = sampler.state[param]["master"].clone()
    assert not torch.equal(shown_guide(param, sampler), theta)
    assert torch.equal(param, theta)
    assert torch.equal(sampler.state[param]["master"], master)


def test_memory_of_a_collapsed_pair_is_that_of_its_rule():
    for options, tensors in [({}, 0), ({"integrator": "lm"}, 0), ({"momentum": 0.9}, 1)]:
        param, sampler = stepped(**options)
        assert len(sampler.state.get(param, {})) == tensors


def test_explain_of_a_collapsed_pair_has_no_coupling():
    _, sampler = stepped()
    group = sampler.explain().groups[0]
    assert group.rule == "euler, guide collapsed"
    assert group.coupling is group.margin is group.horizon is None
    joint = EntropyMCMC([parameter()], **COMMON, eta=0.2, integrator="baoab", momentum=0.5)
    assert joint.explain().groups[0].margin == pytest.approx(0.3 / (0.2 * 10) / 1.5)
    assert "baoab, guide euler" in str(joint.explain())


def test_state_of_an_earlier_version_has_the_euler_integrator():
    param, sampler = stepped(guide_update="euler")
    state = sampler.state_dict()
    for group in state["param_groups"]:
        del group["integrator"]
    other = EntropyMCMC([param], **COMMON, eta=0.2, integrator="lm")
    other.load_state_dict(state)
    assert other.param_groups[0]["integrator"] == "euler"


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("integrator", "guide_update"),
    [pair for pair in itertools.product(("lm", "baoab"), ("euler", "collapsed"))],
)
def test_compiled_steps_and_draws_equal_eager_ones(integrator, guide_update, device):
    shown = []
    for fused in (False, True):
        param = parameter(300, torch.float32)
        options = {"integrator": integrator, "guide_update": guide_update, "fused": fused}
        sampler = EntropyMCMC([param], **COMMON, eta=0.2, **options)
        for _ in range(4):
            param.grad = torch.sin(param.detach())
            sampler.step()
        shown.append((param.detach().clone(), shown_guide(param, sampler)))
    for eager, compiled in zip(*shown, strict=True):
        torch.testing.assert_close(eager, compiled, rtol=1e-5, atol=1e-5)
