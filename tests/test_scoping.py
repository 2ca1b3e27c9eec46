"""η as a schedule, wide to narrow: its values, its stability, the target of the samples.

A z-score over the bound of 4.5 has a false-alarm rate of 7e-6; seeds are fixed.
"""

import numpy as np
import pytest
import torch

from entropy_mcmc import SGLD, EntropyMCMC, schedules, theory
from entropy_mcmc.diagnostics import Thermometer, judge
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.methods import build
from entropy_mcmc.run.runner import run
from entropy_mcmc.run.step_schedule import Plan
from run.workers import tiny_config
from scenarios import covariance_z


def make(size=3, **options):
    param = torch.nn.Parameter(torch.zeros(size))
    options = {"lr": 0.5, "num_data": 10, "eta": 0.8, "seed": 1, **options}
    return param, EntropyMCMC([param], **options)


def test_values_of_eta_are_those_of_the_definition():
    _, sampler = make()
    cycle = schedules.Cyclical(sampler, 20, 2, 0.4, 2, eta_end=0.2)
    etas = []
    for _ in range(20):
        etas.append(sampler.param_groups[0]["eta"])
        cycle.step()
    falling = [0.8 * 0.25 ** (j / 4) for j in range(4)]
    assert etas == pytest.approx([*falling, *[0.2] * 6] * 2)


def test_every_group_starts_at_its_own_eta_and_auto_is_planned_first():
    params = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    groups = [{"params": params[:1], "eta": 0.8}, {"params": params[1:], "eta": "auto"}]
    sampler = EntropyMCMC(groups, lr=0.1, num_data=10, eta="auto", seed=0)
    cycle = schedules.Cyclical(sampler, 1000, 1, 0.5, 1, eta_end=0.05)
    planned = sampler.param_groups[1]["eta"]
    assert planned == pytest.approx(30.3 * 0.1 / 10, rel=1e-2)  # `units.auto_horizon`
    for _ in range(250):
        cycle.step()
    etas = [group["eta"] for group in sampler.param_groups]
    assert etas == pytest.approx([(0.8 * 0.05) ** 0.5, (planned * 0.05) ** 0.5])


def test_stability_is_checked_at_every_value_before_the_first_step():
    """η = 0.04 is stable at the lr of the noisy part, and not at lr₀ (0.05 = lr₀/N)."""
    _, sampler = make(eta=0.8)
    schedules.Cyclical(sampler, 100, 1, 0.9, 1, eta_end=0.04)  # the cosine has fallen by then
    with pytest.raises(ConfigError, match=r"eta must be greater than .* = 0.04\d*.*diverges below"):
        schedules.Cyclical(make(eta=0.8)[1], 100, 1, 0.2, 1, eta_end=0.04)
    with pytest.warns(UserWarning, match="oscillate"):
        _, close = make(eta=0.055)
    with pytest.raises(ConfigError, match="eta must be greater"):  # in the middle of the fall
        schedules.Cyclical(close, 100, 1, 0.6, 1, eta_end=0.02)


def test_the_limit_is_that_of_the_whole_schedule():
    """The narrowest eta_end that is accepted is where lr/η first reaches N(1+μ)."""
    length, end = 100, 20

    def accepted(eta_end):
        try:
            schedules.Cyclical(make()[1], length, 1, end / length, 1, eta_end=eta_end)
        except ConfigError:
            return False
        return True

    def naive(eta_end):
        lrs = 0.25 * (1 + np.cos(np.pi * np.arange(length) / length))
        etas = [0.8 * (eta_end / 0.8) ** min(j / end, 1) for j in range(length)]
        return all(eta > lr / 10 for lr, eta in zip(lrs, etas, strict=True))

    with pytest.warns(UserWarning, match="oscillate"):
        results = [(accepted(e), naive(e)) for e in np.linspace(0.03, 0.06, 31)]
    assert all(a == b for a, b in results)
    assert len({a for a, _ in results}) == 2


def test_samples_have_the_distribution_of_the_narrow_eta():
    """Var(θ−θ_a) of 20,000 coordinates at the end of a noisy part of constant lr.

    e^{-4·60·0.04/0.4} of the start is left of it; and the thermometer reads T.
    """
    h, T = 1.0, 0.3
    param, sampler = make(20_000, eta=2.0, temperature=T)
    cycle = schedules.Cyclical(sampler, 240, 2, 0.5, 1, floor=0.8, eta_end=0.4)
    thermometer = Thermometer(sampler)
    for _ in range(240):
        param.grad = h / 10 * param.detach()
        sampler.step()
        thermometer.step()
        cycle.step()
    gap = param.detach().double().numpy() - sampler.state[param]["guide"].double().numpy()
    moments = theory.euler_covariance(0.4 / 10, h, 0.4, T)
    expected = moments.theta + moments.guide - 2 * moments.cross
    assert np.abs(covariance_z(gap[None], np.array([[expected]]))).max() < 4.5
    reading = thermometer.read(curvature=h)
    assert abs(reading.ratio - 1) < 4.5 * reading.error
    assert judge([reading]).kind == "right"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eta_end": 0.9}, "eta_end must be at most eta=0.8.*from wide to narrow"),
        ({"eta_end": -1.0}, "eta_end must be"),
        ({"eta_end": 0.2, "burn_in": 0.0}, "eta_end needs a burn-in"),
        ({"eta_end": 0.2, "coupled": "noisy"}, 'use coupled="always"'),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ConfigError, match=message):
        schedules.Cyclical(make()[1], 20, 2, **{"burn_in": 0.5, **options})


def test_a_sampler_without_eta_is_refused():
    sampler = SGLD([torch.nn.Parameter(torch.zeros(2))], lr=0.4, num_data=10)
    with pytest.raises(ConfigError, match="eta_end must be None for a sampler without η"):
        schedules.Cyclical(sampler, 20, 2, eta_end=0.1)


def test_state_goes_on_and_that_of_an_earlier_version_has_no_scoping():
    _, sampler = make()
    cycle = schedules.Cyclical(sampler, 20, 2, 0.4, 2, eta_end=0.2)
    for _ in range(12):
        cycle.step()
    _, other = make()
    again = schedules.Cyclical(other, 20, 2, 0.4, 2, eta_end=0.5)
    again.load_state_dict(cycle.state_dict())
    assert other.param_groups[0]["eta"] == sampler.param_groups[0]["eta"]
    state = {k: v for k, v in cycle.state_dict().items() if k not in ("eta_end", "base_etas")}
    again.load_state_dict(state)
    assert again.eta_end is None


def run_config(folder, **schedule):
    config = tiny_config(folder, "emcmc", epochs=10)
    sampler = {"fused": "no", "eta": 0.5, "lr": 0.1}
    return with_parts(config, sampler=sampler, schedule={"eta_end": 0.05, **schedule})


def test_a_run_ends_at_the_narrow_eta_and_its_plan_is_a_function_of_the_step(tmp_path):
    """A resumed run asks the same plan, so that nothing of the schedule has to be saved."""
    made = run(run_config(tmp_path / "run"))
    assert "eta_end: 0.05" in (tmp_path / "run" / "config.yaml").read_text()
    param = torch.nn.Parameter(torch.zeros(2))
    sampler = build(made.record.config, [param], 64, 0)
    plan = Plan(made.record.config, sampler, made.record.cycle_steps, made.record.cycles)
    etas = []
    for step in (*range(plan.total), *reversed(range(plan.total))):
        plan.apply(step)
        etas.append(sampler.param_groups[0]["eta"])
    assert etas == etas[::-1]
    assert (etas[0], etas[plan.total - 1]) == (0.5, 0.05)
    meta = sorted((tmp_path / "run").rglob("checkpoint/**/*.json"))[-1]
    assert '"eta": 0.05' in meta.read_text()


def test_a_run_refuses_a_value_that_its_own_schedule_makes_unstable(tmp_path):
    """With kind=constant lr does not fall: η = 1.4e-3 < lr/N = 0.1/64."""
    config = run_config(tmp_path / "run", eta_end=1.4e-3, kind="constant", burn_in=0.9)
    config = with_parts(config, schedule={"samples_per_cycle": 1}, sampler={"momentum": 0.0})
    with pytest.raises(ConfigError, match="eta must be greater than"):
        run(config)
