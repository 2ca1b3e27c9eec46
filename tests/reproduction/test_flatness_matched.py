"""Flatness at equal training NLL: which checkpoints are kept, matched and compared."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from entropy_mcmc_reproduction import flatness_matched as matching
from entropy_mcmc_reproduction import flatness_view as view
from entropy_mcmc_reproduction.jobs import Place
from entropy_mcmc_reproduction.text import FAILS, HOLDS, NOT_RUN
from tournament import methods, own, schedule, trajectory
from tournament.readouts import vector
from tournament.tasks import TASKS

SETTINGS = matching.jobs("smoke", Place(None, None))[1].settings


@pytest.fixture(scope="module")
def runs():
    return {name: matching.checkpoints(name, SETTINGS) for name in ("SGD", "SAM", "EMCMC")}


def settings_of(name):
    method, task = methods.by_name(name), TASKS["digits"]
    (made,) = methods.trajectories(method, task, 1, own.knobs(method, task), SETTINGS["share"])
    return made


def test_the_last_checkpoint_is_the_end_of_the_tournaments_run(runs):
    state, _ = trajectory._ended(settings_of("SGD"))
    model = TASKS["digits"].network()
    model.load_state_dict(state)
    assert torch.equal(runs["SGD"]["SGD"][-1].weights, vector(model))
    assert len(runs["SGD"]["SGD"]) == SETTINGS["checkpoints"]
    # SAM takes two gradients per step: half of the steps.
    assert runs["SAM"]["SAM"][-1].step == runs["SGD"]["SGD"][-1].step // 2


def test_a_noisy_method_has_checkpoints_only_while_it_is_noisy(runs):
    made, kept = settings_of("EMCMC"), runs["EMCMC"]
    steps = schedule.steps_of(made.passes, TASKS["digits"].train, TASKS["digits"].batch)
    assert all(schedule.is_noisy(made, each.step - 1, steps) for each in kept["EMCMC"])
    assert kept["EMCMC"][-1].step == steps
    assert len(kept["guide"]) == len(kept["EMCMC"]) < SETTINGS["checkpoints"]
    assert not torch.equal(kept["guide"][-1].weights, kept["EMCMC"][-1].weights)


def test_training_nll_is_that_of_the_weights(runs):
    split, model = trajectory.data_of("digits", 1), TASKS["digits"].network().eval()
    for kept in (runs["SGD"]["SGD"][3], runs["EMCMC"]["guide"][0]):
        nn.utils.vector_to_parameters(kept.weights, model.parameters())
        with torch.no_grad():
            logs = model(split.train.x).log_softmax(1)[range(len(split.train.y)), split.train.y]
        assert kept.train_nll == pytest.approx(-logs.mean().item(), rel=1e-5)


def test_the_level_is_reached_by_all_and_the_match_is_the_nearest():
    draws = np.random.default_rng(0)
    curves = {name: draws.uniform(0.1, 2.0, size=9).tolist() for name in "abc"}
    aim = matching.level(curves)
    assert all(min(curve) <= aim for curve in curves.values())
    assert any(min(curve) == aim for curve in curves.values())
    for curve in curves.values():
        ratios = [max(value / aim, aim / value) for value in curve]
        assert ratios[matching.nearest(curve, aim)] == min(ratios)


def results_of(lambda_max, train_nll=0.1):
    """Ten seeds whose roles differ in log λ_max; the guide's checkpoints may not match."""
    made = {}
    for seed in range(10):
        noise = 0.01 * (-1) ** seed * (seed + 1)
        roles = {
            role: {
                "step": 5,
                "train_nll": train_nll if role == "guide" else 0.1,
                "last_train_nll": 0.01,
                "measures": {"nll": 0.3, "lambda_max": value + noise * place},
            }
            for place, (role, value) in enumerate(lambda_max.items())
        }
        made[view.job_name(seed)] = {"level": 0.1, "roles": roles}
    return made


def test_smaller_curvature_is_flatter():
    values = {"SGD": 2.0, "SAM": 0.0, "EMCMC": 1.0}
    shown = view.show(results_of(values), "laptop")
    run = [v for v in shown.verdicts if v.decision != NOT_RUN]
    decided = {v.claim: v.decision for v in run if v.measure == "lambda_max"}
    assert decided == {
        "EMCMC, θ is flatter, by λ_max, than SGD at equal training NLL": HOLDS,
        "EMCMC, θ is flatter, by λ_max, than SAM at equal training NLL": FAILS,
    }
    assert {v.measure for v in run} == {"nll", "lambda_max"}  # nobody has LLC
    assert shown.rows[0][view.COLUMNS.index("λ_max")].startswith(f"{math.exp(2.0):.2f}"[:3])
    assert shown.verdicts[0].measure == "nll"


def test_what_is_not_matched_is_left_out_and_counted():
    shown = view.show(results_of({"SGD": 2.0, "guide": 1.0}, train_nll=0.2), "laptop")
    assert [row[0] for row in shown.rows] == ["SGD"]
    assert {v.decision for v in shown.verdicts} == {NOT_RUN}
    assert "10 of 20 are farther than 25 %" in shown.notes[0]
