"""SAM, bSAM, IVON, the nested methods and augmentation in the tournament's engine."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from entropy_mcmc import BSAM, EntropySGLD
from tournament import data, own, readouts, schedule, tasks, trajectory
from tournament.augmentation import augmented
from tournament.ivon import IVON
from tournament.methods import AUGMENTED, METHODS, RIVALS, by_name, trajectories
from tournament.settings import Settings
from tournament.store import Store
from tournament.trajectory import batch, network, run

RESULTS = Path(__file__).parents[2] / "results" / "tournament" / "own"
PICTURES = torch.randn(120, 2, 8, 8, generator=torch.Generator().manual_seed(0))
# Mean |output| of the samples of runs before the rivals were built in.
BEFORE = {
    ("tiny", "sgd"): 1.475143,
    ("tiny", "adamw"): 0.153604,
    ("tiny", "sgld"): 0.338991,
    ("tiny", "sghmc"): 1.577802,
    ("tiny", "emcmc"): 1.480646,
    ("tiny-bn", "sgd"): 0.612725,
    ("tiny-bn", "sghmc"): 0.647453,
    ("tiny-bn", "emcmc"): 0.584075,
}
OPTIONS = {
    "sgd": {"lr": 0.05, "prior_variance": 0.5},
    "adamw": {"lr": 1e-3, "weight_decay": 1e-2},
    "sgld": {"lr": 0.1, "prior_variance": 0.5, "temperature": 0.02, "momentum": 0.0},
    "sghmc": {"lr": 0.05, "prior_variance": 0.5, "temperature": 0.02},
    "emcmc": {
        "lr": 0.05, "prior_variance": 0.5, "temperature": 0.02, "horizon": 0.2, "coupled": "noisy",
    },
}  # fmt: skip


@pytest.fixture
def pictures(tiny, monkeypatch):
    def rows(seed):
        y = (PICTURES.mean(dim=(1, 2, 3)) > 0).long()
        test = data.Rows(PICTURES[:20], y[:20])
        split = data.drawn(data.Rows(PICTURES[20:], y[20:]), test, 72, 28, seed)
        return data.Data(split.train, split.validation, split.test, (), -torch.ones(1, 2, 1, 1))

    def small():
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(128, 2))

    tiny["pictures"] = tasks.Task("pictures", "paper", rows, 72, small, 8, 8, 2)
    return tiny["pictures"]


@pytest.mark.parametrize(("task", "method"), [("wine-red", "SGLD"), ("digits", "EMCMC x4")])
def test_committed_runs_keep_their_keys(task, method):
    slug = method.replace(" ", "-")
    record = json.loads((RESULTS / task / f"{slug}-3.json").read_text())
    declared = METHODS[method.replace("x", "×")]
    made = trajectories(declared, tasks.TASKS[task], 3, own.knobs(declared, tasks.TASKS[task]))
    assert [settings.key for settings in made] == record["runs"]


@pytest.mark.parametrize(
    ("task", "method", "key"),
    [
        ("cifar", "EMCMC", "0865ac184dab53f9"),
        ("cifar", "ensemble 4", "da7a1d56a03fb959"),
        ("fashion-mlp", "SGD", "a2c108abc65c5bfa"),
        ("fashion-cnn", "SGHMC ×4", "01896250e0917edb"),  # with warm-up
        ("digits", "AdamW", "6d0f0513f5214508"),
    ],
)
def test_keys_of_known_settings_are_pinned(task, method, key):
    chosen = tasks.TASKS[task]
    runs = trajectories(METHODS[method], chosen, 0, own.knobs(METHODS[method], chosen))
    assert runs[-1].key == key


@pytest.mark.parametrize(("task", "optimizer"), BEFORE)
def test_runs_give_the_numbers_of_before(tiny, task, optimizer):
    made = run(Settings(task, 0, optimizer, 8, chain=1, **OPTIONS[optimizer]))
    assert np.abs(made.outputs["samples"]).mean() == pytest.approx(
        BEFORE[task, optimizer], abs=2e-5
    )
    assert made.cost == pytest.approx(576)


@pytest.mark.parametrize("name", ["tiny", "tiny-bn"])
@pytest.mark.parametrize("method", RIVALS)
def test_rivals_have_the_task_s_gradients(tiny, monkeypatch, name, method):
    task, counted, loss_of = tiny[name], [], trajectory.loss_of
    chosen = RIVALS[method]
    (settings,) = trajectories(chosen, task, 0, own.knobs(chosen, task))
    monkeypatch.setattr(
        trajectory, "loss_of", lambda o, y, r: (counted.append(len(y)), loss_of(o, y, r))[1]
    )
    made = run(settings)
    refresh = 72 / 3 if name == "tiny-bn" else 0
    assert made.cost == sum(counted) + refresh
    unspent = settings.gradients_per_step * task.batch
    assert task.passes * 72 - unspent < made.cost <= task.passes * 72
    # The nested run has 14 steps, of which the last quarter is noisy.
    kept = {"draws": 8, "last": 1, "samples": 3}[chosen.readout]
    assert len(made.outputs[chosen.readout]) == kept
    again = run(settings)
    assert np.array_equal(made.outputs[chosen.readout], again.outputs[chosen.readout])


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def gradient(model, split, task, settings, step):
    x, y = batch(split.train, task.batch, settings, step)
    return torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))


def test_sam_is_its_equations(tiny):
    task = tiny["tiny"]
    settings = Settings("tiny", 0, "sam", 8, 0.05, prior_variance=0.5, rho=0.1, samples=1)
    split, model = task.rows(0), network(settings)
    steps, decay = 36, 1 / (72 * 0.5)  # 72 gradients
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    for step in range(steps):
        lr = settings.lr * schedule.lr_factor(settings, step, steps)
        grads = gradient(model, split, task, settings, step)
        norm = torch.sqrt(sum(g.square().sum() for g in grads))
        theta = weights(model)
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads, strict=True):
                p.add_(settings.rho * g / norm)
        climbed = gradient(model, split, task, settings, step)
        with torch.no_grad():
            for p, t, v, g in zip(model.parameters(), theta, velocity, climbed, strict=True):
                v.mul_(0.9).sub_(lr * (g + decay * t))
                p.copy_(t + v)
    wanted = readouts.ask(model, split)
    np.testing.assert_allclose(run(settings).outputs["last"][0], wanted, atol=2e-4)


@pytest.mark.parametrize("optimizer", ["bsam", "entropy-sgld"])
def test_steps_are_those_of_the_library_s_sampler(tiny, optimizer):
    """A loop written out, with the library's sampler and its arguments by name."""
    task, nested = tiny["tiny"], optimizer == "entropy-sgld"
    options = {"lr": 0.2, "inner_steps": 3} if nested else {"lr": 0.3, "rho": 0.01, "scale": 2.0}
    settings = Settings(
        "tiny", 0, optimizer, 8, prior_variance=0.5, temperature=0.1, samples=1, **options
    )
    split, model = task.rows(0), network(settings)
    common = {"num_data": 72, "weight_decay": 1 / 36, "temperature": 0.1, "seed": 0}
    if nested:
        peak = 10 * 3 * 0.2  # ηN: the outer step goes to the inner mean
        inner = {"inner_lr": 0.2, "inner_steps": 3, "eta": peak / 72}
        sampler = EntropySGLD(model.parameters(), peak, **inner, **common)
    else:
        peak = 0.3
        sampler = BSAM(model.parameters(), peak, rho=0.01, initial_scale=2.0, **common)
    each, fresh = (3, 3) if nested else (2, 1)
    steps = 72 // each
    for step in range(steps):
        sampler.param_groups[0]["lr"] = peak * schedule.lr_factor(settings, step, steps)
        sampler.param_groups[0]["noise"] = 2 * step >= steps
        calls = []

        def closure(step=step, calls=calls):
            x, y = batch(split.train, 8, settings, fresh * step + len(calls) % fresh)
            calls.append(1)
            sampler.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        sampler.step(closure)
        assert len(calls) == each
    made = run(settings)
    np.testing.assert_allclose(made.outputs["last"][0], readouts.ask(model, split), atol=1e-5)
    if not nested:
        with sampler.sampled(7):
            drawn = readouts.ask(model, split)
        np.testing.assert_allclose(made.outputs["draws"][7], drawn, atol=1e-5)


GAUSSIAN = {
    "num_data": 50, "initial_scale": 0.5, "weight_decay": 0.01, "beta2": 0.999, "seed": 3,
}  # fmt: skip


def quadratic(p, x):
    return ((p - x).square() * torch.tensor([1.0, 3.0, 0.5, 2.0])).mean()


def test_ivon_is_its_equations():
    p = torch.nn.Parameter(torch.tensor([1.0, -1.0, 0.5, 2.0]))
    optimizer = IVON([p], 0.1, **GAUSSIAN)
    draws = torch.Generator().manual_seed(6)
    mean, g, h = p.detach().double(), torch.zeros(4).double(), torch.full((4,), 0.5).double()
    for t in range(1, 6):
        x = torch.full((4,), 0.1 * t)

        def closure(x=x):
            optimizer.zero_grad()
            loss = quadratic(p, x)
            loss.backward()
            return loss

        optimizer.step(closure)
        variance = 1 / (50 * (h + 0.01))
        theta = mean + variance.sqrt() * torch.randn(4, generator=draws).double()
        slope = 2 * (theta - x) * torch.tensor([1.0, 3.0, 0.5, 2.0]) / 4
        seen = slope * (theta - mean) / variance
        g = 0.9 * g + 0.1 * slope
        h = 0.999 * h + 1e-3 * seen + 0.5e-6 * (h - seen) ** 2 / (h + 0.01)
        mean = mean - 0.1 * 0.51 * (g / (1 - 0.9**t) + 0.01 * mean) / (h + 0.01)
        torch.testing.assert_close(p.detach().double(), mean, rtol=1e-5, atol=1e-6)
    with optimizer.sampled(0):
        assert not torch.allclose(p.detach().double(), mean)
    torch.testing.assert_close(p.detach().double(), mean, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="weight_decay must be positive"):
        IVON([p], 0.1, **{**GAUSSIAN, "weight_decay": 0.0})


def test_ivon_is_that_of_its_authors():
    ivon = pytest.importorskip("ivon", reason="ivon-opt is not installed: .[test] has it")
    ours, theirs = (torch.nn.Parameter(torch.tensor([1.0, -1.0, 0.5, 2.0])) for _ in range(2))
    mine = IVON([ours], 0.1, **GAUSSIAN)
    options = {"ess": 50, "hess_init": 0.5, "weight_decay": 0.01, "beta2": 0.999}
    other = ivon.IVON([theirs], lr=0.1, **options)
    x = torch.full((4,), 0.3)
    with torch.random.fork_rng():
        torch.manual_seed(6)  # the stream of our training draws
        for _ in range(5):
            with other.sampled_params(train=True):
                other.zero_grad()
                quadratic(theirs, x).backward()
            other.step()

            def closure():
                mine.zero_grad()
                loss = quadratic(ours, x)
                loss.backward()
                return loss

            mine.step(closure)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def naive_crop(picture, top, left, mirror, padding):
    """One picture, pixel by pixel; black is −1."""
    channels, height, width = picture.shape
    made = torch.empty_like(picture)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                row, column = i + top - padding, j + left - padding
                inside = 0 <= row < height and 0 <= column < width
                column = width - 1 - column if mirror else column
                made[c, i, j] = picture[c, row, column] if inside else -1.0
    return made


def test_augmentation_crops_and_flips():
    from entropy_mcmc.data.augment import draws

    made = augmented(PICTURES[:16], -torch.ones(1, 2, 1, 1), seed=5, step=3)
    top, left, mirror = draws(16, seed=5, step=3, padding=1)
    for i in range(16):
        wanted = naive_crop(PICTURES[i], top[i], left[i], mirror[i], 1)
        torch.testing.assert_close(made[i], wanted, atol=1e-6, rtol=0)
    assert 0 < mirror.sum() < 16
    with pytest.raises(ValueError, match="augmented needs pictures"):
        augmented(torch.zeros(3, 4), None, 0, 0)


@pytest.mark.parametrize("name", AUGMENTED)
def test_augmented_methods_differ_in_that_only(pictures, name):
    plain, method = METHODS[name.removesuffix(", augmented")], by_name(name)
    pairs = [trajectories(m, pictures, 0, own.knobs(m, pictures)) for m in (plain, method)]
    settings = [chains[-1] for chains in pairs]
    assert [s.augmented for s in settings] == [False, True]
    first, second, again = (run(s) for s in (*settings, settings[1]))
    assert first.cost == second.cost
    read = method.readout
    assert not np.allclose(first.outputs[read], second.outputs[read])
    assert np.array_equal(second.outputs[read], again.outputs[read])


def test_rivals_are_stored_once_and_read_again(tiny, tmp_path):
    store, task = Store(tmp_path), tiny["tiny"]
    wanted = [s for m in RIVALS.values() for s in trajectories(m, task, 0, own.knobs(m, task))]
    assert all(store.make(s) for s in store.missing(wanted))
    assert not store.missing(wanted)
    assert not any(store.make(s) for s in wanted)
    record = store.read(wanted[0]).record
    assert record["settings"]["rho"] == 0.05
    assert "inner_steps" not in record["settings"]  # left out where it says nothing


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="inner_steps must be positive for"):
        Settings("digits", 0, "entropy-sgd", 48, 0.1)
    with pytest.raises(ValueError, match="method must be one of"):
        by_name("SAN")


def test_tasks_of_all_pictures():
    for name in ("fashion-mlp-60k", "fashion-cnn-60k"):
        task = tasks.TASKS[name]
        assert task.half == tasks.PAPER
        assert task.train == 59_000
