"""Trajectories against plain loops, their costs, and what methods share."""

import copy

import numpy as np
import pytest
import torch

from tournament import own, readouts, schedule, trajectory
from tournament.methods import METHODS, methods_of, trajectories
from tournament.settings import Settings
from tournament.tasks import TASKS
from tournament.trajectory import batch, network, run


def naive_sgd(settings, task):
    split, model = task.rows(settings.seed), network(settings)
    decay = 1 / (len(split.train.x) * settings.prior_variance)
    steps = schedule.steps_of(settings.passes, len(split.train.x), task.batch)
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    for step in range(steps):
        x, y = batch(split.train, task.batch, settings, step)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        lr = settings.lr * schedule.lr_factor(settings, step, steps)
        with torch.no_grad():
            for p, v, g in zip(model.parameters(), velocity, grads, strict=True):
                v.mul_(settings.momentum).add_(g + decay * p)
                p.sub_(lr * v)
    return readouts.ask(model, split)


def test_sgd_is_sgd(tiny):
    settings = Settings("tiny", 0, "sgd", 8, 0.05, prior_variance=0.5)
    last = run(settings).outputs["last"][0]
    np.testing.assert_allclose(last, naive_sgd(settings, tiny["tiny"]), atol=1e-5)


@pytest.mark.parametrize("name", ["tiny", "tiny-bn", "tiny-start"])
def test_every_method_has_the_task_s_budget(tiny, name):
    task = tiny[name]
    rows = len(task.rows(0).train.x)
    for method in methods_of(task):
        if method.optimizer == "start":
            continue
        runs = trajectories(method, task, 0, own.knobs(method, task))
        made = [run(settings) for settings in runs]
        spent, budget = sum(one.cost for one in made), task.passes * rows
        # Each chain may leave less than one batch (and a rounded row of refresh) unspent.
        assert budget - method.chains * (task.batch + 1) < spent <= budget + method.chains, method
        assert all(method.readout in one.outputs for one in made), method.name


def test_methods_of_one_trajectory_share_it(tiny):
    task = tiny["tiny"]
    runs = {
        name: trajectories(METHODS[name], task, 0, own.knobs(METHODS[name], task))
        for name in ("SGD", "iterates", "EMA", "Laplace")
    }
    assert len({tuple(value) for value in runs.values()}) == 1
    four = trajectories(METHODS["ensemble 4"], task, 0, own.knobs(METHODS["ensemble 4"], task))
    iterates = METHODS["iterates ×4"]
    assert four == trajectories(iterates, task, 0, own.knobs(iterates, task))


def test_chains_differ_and_seeds_change_the_split(tiny):
    first, second = (
        run(Settings("tiny", 0, "sghmc", 2, 0.05, chain=c, temperature=0.1)).outputs["last"]
        for c in (0, 1)
    )
    assert not np.allclose(first, second)
    splits = [tiny["tiny"].rows(seed) for seed in (0, 1)]
    assert not torch.equal(splits[0].train.y, splits[1].train.y)
    assert torch.equal(splits[0].test.y, splits[1].test.y)


def test_runs_repeat_bit_for_bit(tiny):
    settings = Settings("tiny", 1, "emcmc", 4, 0.1, temperature=0.02, horizon=0.2)
    first, second = run(settings), run(settings)
    assert set(first.outputs) == {"samples", "last", "guide", "both"}
    for name, values in first.outputs.items():
        assert np.array_equal(values, second.outputs[name])


def test_a_diverged_run_is_said_so(tiny):
    outcome = run(Settings("tiny", 0, "sgd", 8, 1e12, prior_variance=1e-6))
    assert outcome.diverged
    assert not outcome.outputs


def test_the_start_is_one_adamw_network_for_all_chains(tiny):
    start = run(Settings("tiny-start", 0, "start", 0, 0)).outputs["last"]
    frozen = [
        run(Settings("tiny-start", 0, "sgd", 4, 1e-12, chain=c)).outputs["last"] for c in (0, 1)
    ]
    np.testing.assert_allclose(frozen[0], start, atol=1e-6)
    np.testing.assert_allclose(frozen[1], start, atol=1e-6)


def test_the_average_is_refreshed(tiny):
    settings = Settings("tiny-bn", 0, "sgd", 4, 0.05)
    outputs = run(settings).outputs
    assert not np.allclose(outputs["ema"], outputs["last"])


def test_refresh_takes_the_statistics_of_its_rows():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2))
    x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)) * 3 + 1
    readouts.refresh(model, x, batch=500)
    torch.testing.assert_close(model[0].running_mean, x.mean(dim=0))
    assert model[0].momentum == 0.1


def test_batches_of_a_pass_hold_every_row_once(tiny):
    rows = tiny["tiny"].rows(0).train
    settings = Settings("tiny", 0, "sgd", 8, 0.05)
    seen = torch.cat([batch(rows, 8, settings, step)[0] for step in range(9)])
    assert len(torch.unique(seen, dim=0)) == len(rows.x) == 72
    assert trajectory.loss_of(torch.ones(2, 1), torch.tensor([1.0, 3.0]), True) == 1.0


def test_weights_go_through_a_vector_whatever_their_layout():
    """`Recorder` keeps weights as vectors: of a channels-last network too, number for number."""
    torch.manual_seed(0)
    model = TASKS["fashion-cnn"].network().eval()
    kernel = next(p for p in model.parameters() if p.ndim == 4 and p.shape[1] > 1)
    assert not kernel.is_contiguous()
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    usual = copy.deepcopy(model).to(memory_format=torch.contiguous_format)
    kept = readouts.vector(model)
    assert torch.equal(kept, torch.nn.utils.parameters_to_vector(usual.parameters()))
    other = TASKS["fashion-cnn"].network().eval()
    torch.nn.utils.vector_to_parameters(kept, other.parameters())
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
