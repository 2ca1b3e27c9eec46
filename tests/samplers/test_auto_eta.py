"""`eta="auto"`: a horizon in steps, fitted to the cycles of the schedule, kept as a number."""

import copy
import io

import pytest
import torch

from entropy_mcmc import SGLD, EntropyMCMC, EntropySGD, EntropySGLD, schedules, units
from entropy_mcmc.errors import ConfigError

OPTIONS = {"lr": 0.2, "num_data": 500, "eta": "auto", "seed": 0}


def parameter(size=3):
    return torch.nn.Parameter(torch.ones(size))


def horizon(sampler, number=0):
    group = sampler.param_groups[number]
    return units.horizon(group["lr"], group["num_data"], group["eta"])


def cyclical(sampler, **options):
    lr = [group["lr"] for group in sampler.param_groups]
    made = schedules.Cyclical(sampler, **options)
    for group, peak in zip(sampler.param_groups, lr, strict=True):
        group["lr"] = peak  # as at the first step
    return made


def relaxation(schedule, sampler):
    """Σ 2·lr/((1−μ)ηN) over the noisy part of the first cycle."""
    group = sampler.param_groups[0]
    length = schedule.total_steps // schedule.cycles
    rates = [group["lr"] * schedule.lr_factor(s) for s in range(length) if schedule.is_noisy(s)]
    pull = sum(rates) / (group["eta"] * group["num_data"])
    return 2 * pull / (1 - group["momentum"])


def test_without_a_schedule_the_horizon_is_a_number_of_steps():
    sampler = EntropyMCMC([parameter()], **OPTIONS)
    assert horizon(sampler) == pytest.approx(units.UNKNOWN_HORIZON)
    assert isinstance(sampler.param_groups[0]["eta"], float)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("burn_in", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("cycles", [1, 4])
def test_a_schedule_fits_it_to_its_cycles(momentum, burn_in, cycles):
    """A part of the cycle, less where θ_a could not relax twice; never so short to oscillate."""
    sampler = EntropyMCMC([parameter()], **OPTIONS, momentum=momentum)
    plan = {"total_steps": 20_000, "cycles": cycles, "burn_in": burn_in}
    schedule = cyclical(sampler, **plan)
    length = 20_000 // cycles
    actual, most = horizon(sampler), units.HORIZON * length
    assert actual <= most * (1 + 1e-12)
    if actual < most * 0.999 and actual > units.LEAST_HORIZON:
        # The sum over steps against the integral of the cosine.
        assert relaxation(schedule, sampler) == pytest.approx(2 * units.RELAXED, rel=0.01)
    elif actual > units.LEAST_HORIZON:
        assert relaxation(schedule, sampler) > 1.99 * units.RELAXED


def test_short_cycles_have_the_shortest_horizon_that_does_not_oscillate():
    sampler = EntropyMCMC([parameter()], **OPTIONS)
    cyclical(sampler, total_steps=8, cycles=1, samples_per_cycle=1)
    assert horizon(sampler) == pytest.approx(units.LEAST_HORIZON)


def test_without_noise_only_the_cycle_counts():
    sampler = EntropyMCMC([parameter()], **OPTIONS, temperature=0.0)
    cyclical(sampler, total_steps=1000, cycles=1, burn_in=0.99, samples_per_cycle=1)
    assert horizon(sampler) == pytest.approx(units.HORIZON * 1000)


def test_each_group_has_the_horizon_of_its_own_lr():
    groups = [{"params": [parameter()]}, {"params": [parameter()], "lr": 0.02}]
    sampler = EntropyMCMC(groups, **OPTIONS)
    sampler.add_param_group({"params": [parameter()], "eta": 0.5})
    assert horizon(sampler, 0) == pytest.approx(horizon(sampler, 1))
    cyclical(sampler, total_steps=1000, cycles=1, burn_in=0.5)
    assert horizon(sampler, 0) == pytest.approx(horizon(sampler, 1))
    assert sampler.param_groups[2]["eta"] == 0.5


def test_explain_says_what_was_chosen():
    sampler = EntropyMCMC([parameter()], **OPTIONS, momentum=0.9)
    assert f"auto: the guide averages over {units.UNKNOWN_HORIZON:g} steps" in str(
        sampler.explain()
    )
    cyclical(sampler, total_steps=1000, cycles=1, burn_in=0.5)
    steps = units.auto_horizon(1000, 0.5, 0.9)
    assert f"auto: the guide averages over {steps:.3g} steps, " in str(sampler.explain())
    plain = EntropyMCMC([parameter()], **{**OPTIONS, "eta": 0.01})
    assert "η                                 0.01\n" in str(plain.explain())
    assert "η " not in str(SGLD([parameter()], lr=0.1, num_data=10).explain())


def train(sampler, param, steps):
    for _ in range(steps):
        param.grad = param.detach().clone()
        sampler.step()


def test_a_schedule_made_after_the_first_step_changes_nothing():
    param = parameter()
    sampler = EntropyMCMC([param], **OPTIONS)
    train(sampler, param, 1)
    before = sampler.param_groups[0]["eta"]
    schedules.Cyclical(sampler, total_steps=1000)
    assert sampler.param_groups[0]["eta"] == before


@pytest.mark.parametrize("schedule_first", [True, False])
def test_it_resumes_bit_for_bit_in_any_order(schedule_first):
    """Whether the schedule is built before or after the state is loaded."""
    plan = {"total_steps": 40, "cycles": 2, "burn_in": 0.5}
    param = parameter()
    sampler = EntropyMCMC([param], **OPTIONS)
    cycle = schedules.Cyclical(sampler, **plan)
    for step in range(40):
        if step == 15:
            file = io.BytesIO()
            torch.save([sampler.state_dict(), cycle.state_dict(), param.detach()], file)
        train(sampler, param, 1)
        cycle.step()
    file.seek(0)
    states = torch.load(file, weights_only=True)
    assert isinstance(states[0]["param_groups"][0]["eta"], float)
    again = torch.nn.Parameter(states[2].clone())
    resumed = EntropyMCMC([again], **OPTIONS)
    if schedule_first:
        rest = schedules.Cyclical(resumed, **plan)
    resumed.load_state_dict(states[0])
    if not schedule_first:
        rest = schedules.Cyclical(resumed, **plan)
    rest.load_state_dict(states[1])
    for _ in range(25):
        train(resumed, again, 1)
        rest.step()
    assert torch.equal(again, param)


def test_a_loaded_eta_is_not_said_to_be_chosen_here():
    other = EntropyMCMC([parameter()], **{**OPTIONS, "eta": 0.5})
    sampler = EntropyMCMC([parameter()], **OPTIONS)
    sampler.load_state_dict(other.state_dict())
    assert "auto" not in str(sampler.explain())
    cyclical(sampler, total_steps=1000)
    assert sampler.param_groups[0]["eta"] == 0.5


def test_copies_keep_the_number():
    sampler = EntropyMCMC([parameter()], **OPTIONS)
    assert copy.deepcopy(sampler).param_groups[0]["eta"] == sampler.param_groups[0]["eta"]


@pytest.mark.parametrize("make", [EntropySGD, EntropySGLD])
def test_the_well_of_nested_samplers_is_wider_than_their_chain(make):
    options = {"lr": 1.0, "inner_lr": 0.1, "inner_steps": 7, "num_data": 500, "seed": 0}
    sampler = make([parameter()], eta="auto", **options)
    expected = units.eta_of_horizon(units.nested_horizon(7), 0.1, 500)
    assert sampler.param_groups[0]["eta"] == pytest.approx(expected)
    cyclical(sampler, total_steps=1000)
    assert sampler.param_groups[0]["eta"] == pytest.approx(expected)
    assert "inner steps wide" in str(sampler.explain())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, r'lr must be greater than 0, got lr=0.0; eta="auto" follows from lr'),
        ({"num_data": None}, "num_data must be"),
        ({"eta": "automatic"}, r'eta must be a Python number, got eta=\'automatic\'; .*eta="auto"'),
    ],
)
def test_what_it_needs_is_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        EntropyMCMC([parameter()], **{**OPTIONS, **changes})
