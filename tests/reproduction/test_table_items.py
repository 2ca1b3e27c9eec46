"""Logistic regression, UCI and Fashion-MNIST at smoke scale; stacks against single problems."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from entropy_mcmc.errors import ConfigError
from entropy_mcmc_reproduction import fashion, logistic, stacks, uci, uci_view
from entropy_mcmc_reproduction.items import item
from entropy_mcmc_reproduction.jobs import Place, ordered, read
from entropy_mcmc_reproduction.running import reproduce
from entropy_mcmc_reproduction.text import FAILS, HOLDS, UNDECIDED
from entropy_mcmc_reproduction.trials import latin

ITEMS = ["logistic", "uci", "fashion"]
GAIN = re.compile(r"(better|worse) by ([\d.]+)(?: ± ([\d.]+))?")


def make(name, base):
    reproduce([name], "smoke", results=base / "results", work=base / "work")
    return json.loads((base / "results" / "smoke" / "items" / f"{name}.json").read_text())


def decided_by(way, gain, error):
    """The decision that the shown numbers imply: 4.303 standard errors for three seeds."""
    if error is None or float(gain) <= 4.303 * float(error):
        return UNDECIDED
    return HOLDS if way == "better" else FAILS


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Every item once, without interruption."""
    base = tmp_path_factory.mktemp("table-items")
    return {name: make(name, base) for name in ITEMS} | {"base": base}


@pytest.mark.parametrize("name", ITEMS)
def test_smoke_scale_gives_a_table_a_figure_and_verdicts(whole, name):
    found = whole[name]
    assert found["rows"]
    assert all(len(row) == len(found["columns"]) for row in found["rows"])
    assert not any("nan" in cell or "inf" in cell for row in found["rows"] for cell in row)
    assert found["verdicts"]
    for verdict in found["verdicts"]:
        if shown := GAIN.match(verdict["measured"]):
            assert verdict["decision"] == decided_by(*shown.groups())
    assert found["runs"] == found["wanted_runs"]
    assert found["versions"]["torch"] == [torch.__version__]
    for figure in found["figures"]:
        path = whole["base"] / "results" / "smoke" / "items" / f"{figure}.png"
        assert path.stat().st_size > 5_000


def test_interrupted_between_jobs_it_continues_to_the_same_table(whole, tmp_path, monkeypatch):
    calls, compute = [], logistic.compute

    def stops(settings, place):
        calls.append(settings["method"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return compute(settings, place)

    monkeypatch.setattr(logistic, "compute", stops)
    with pytest.raises(KeyboardInterrupt):
        make("logistic", tmp_path)
    assert calls == ["emcmc", "sgld"]
    found = make("logistic", tmp_path)
    assert calls[2:] == ["sgld", "entropy-sgd", "entropy-sgld"]  # what was finished is kept
    assert found["rows"] == whole["logistic"]["rows"]
    assert found["verdicts"] == whole["logistic"]["verdicts"]


def test_killed_it_continues_to_the_same_table(whole, tmp_path):
    command = [sys.executable, "-m", "entropy_mcmc", "reproduce", "uci", "--scale", "smoke"]
    command += ["--results", str(tmp_path / "results"), "--work", str(tmp_path / "work")]
    runs = tmp_path / "results" / "smoke" / "runs" / "uci"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=_one_thread())
    try:
        while process.poll() is None and not list(runs.glob("*.json")):
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*.json")}
    assert 1 <= len(before) < 4
    found = make("uci", tmp_path)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert found["rows"] == whole["uci"]["rows"]
    assert found["verdicts"] == whole["uci"]["verdicts"]


def _one_thread():
    return {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}


def test_damaged_or_changed_results_are_refused(whole, tmp_path):
    place = Place(tmp_path, tmp_path / "work")
    job = logistic.jobs("smoke", place)[0]
    stored = (whole["base"] / "results/smoke/runs/logistic/emcmc.json").read_text()
    path = place.result_file(job.name)
    path.parent.mkdir(parents=True)
    path.write_text(stored)
    assert read(place, job)["rows"] == 271
    path.write_text(stored[: len(stored) // 2])
    with pytest.raises(ConfigError, match=r"emcmc\.json is damaged .* delete it"):
        read(place, job)
    changed = json.loads(stored)
    changed["settings"]["trials"] = 7
    path.write_text(json.dumps(changed))
    with pytest.raises(ConfigError, match=r"other settings \(trials: 7 → 2\)"):
        read(place, job)


@pytest.mark.parametrize("name", ITEMS)
def test_without_data_it_says_what_is_missing(name, tmp_path):
    reason = item(name).unavailable("laptop", Place(tmp_path, tmp_path, None))
    assert "EMCMC_DATA" in reason
    assert item(name).unavailable("laptop", Place(tmp_path, tmp_path, "data")) is None


@pytest.mark.parametrize("name", ITEMS)
def test_laptop_jobs_have_equal_trials_for_every_method(name, tmp_path):
    jobs = item(name).jobs("laptop", Place(tmp_path, tmp_path, "data"))
    if name == "fashion":
        counts = {len(job.settings["candidates"]) for job in jobs}
        assert len(jobs) == 15
        trials = [j for j in ordered(jobs) if "-trial" in j.name]
        assert all(j.settings["config"]["data"]["options"]["validation"] for j in trials)
    else:
        counts = {job.settings["trials"] for job in jobs}
        assert len(jobs) == {"logistic": 4, "uci": 36}[name]
    assert len(counts) == 1


def test_fashion_gives_every_method_the_same_gradients(tmp_path):
    chosen = fashion.sized("laptop")
    for job in fashion.jobs("laptop", Place(tmp_path, tmp_path, "data")):
        run = job.settings["candidates"][0]["run"]
        epochs = run["config"]["schedule"]["epochs"] * run["config"]["chains"]
        warm = [a for a in job.after if a.name.startswith("fashion/warm")]
        shared = sum(a.settings["config"]["schedule"]["epochs"] for a in warm)
        assert epochs + shared == chosen.epochs


def test_fashion_takes_the_trial_of_the_lowest_validation_nll(whole, tmp_path, monkeypatch):
    folder = whole["base"] / "results/smoke"
    place = Place(folder, tmp_path)
    job = fashion.jobs("smoke", place)[0]
    monkeypatch.setattr(fashion.tasks, "sample", lambda settings, place: {"ran": settings})
    found = fashion.best(job.settings, place)
    scores = found["chosen"]["validation_nll"]
    index = scores.index(min(scores))
    assert len(scores) == 2
    assert found["ran"] == job.settings["candidates"][index]["run"]


def test_stacked_logistic_gradient_is_that_of_each_seed():
    problem = logistic.Problems({"data": "digits"}, None)
    theta = torch.randn(3, 65, generator=torch.Generator().manual_seed(0)).requires_grad_()
    rows = torch.randint(len(problem.targets), (3, 7), generator=torch.Generator().manual_seed(1))
    problem.loss(theta, rows).backward()
    for seed in range(3):
        one = theta[seed].detach().clone().requires_grad_()
        logits = problem.inputs[rows[seed]] @ one
        F.binary_cross_entropy_with_logits(logits, problem.targets[rows[seed]]).backward()
        torch.testing.assert_close(theta.grad[seed], one.grad)
    # All 7s and 9s of the embedded digits, a column of ones for the bias.
    assert len(problem.targets) + len(problem.test_targets) == 179 + 180
    assert problem.inputs[:, -1].eq(1).all()


def test_mean_over_time_is_the_trapezoid_rule_and_marks_divergence():
    curve = np.array([[1.0, 1.0], [0.5, np.nan], [0.25, 0.1]])
    first, second = logistic._area(curve)
    assert first == pytest.approx((0.75 + 0.375) / 2)
    assert second > 100


def naive_scores(means, noise, targets, unit):
    """Log-likelihood, RMSE and coverage of a mixture, row by row."""
    total, squares, covered = 0.0, 0.0, 0
    for row, target in enumerate(targets):
        gaps = [target - m[row] for m in means]
        parts = [
            math.exp(-g * g / (2 * v)) / math.sqrt(2 * math.pi * v)
            for g, v in zip(gaps, noise, strict=True)
        ]
        total += math.log(sum(parts) / len(parts)) - math.log(unit)
        squares += (sum(gaps) / len(gaps)) ** 2
        level = sum(
            0.5 * (1 + math.erf(g / math.sqrt(2 * v))) for g, v in zip(gaps, noise, strict=True)
        )
        covered += 0.025 <= level / len(gaps) <= 0.975
    count = len(targets)
    return total / count, unit * math.sqrt(squares / count), covered / count


def small_splits():
    values, test = uci.read("diabetes", None, 2)
    return stacks.Splits.of(values, test)


def test_scores_of_a_mixture_are_those_of_the_naive_version():
    splits = small_splits()
    settings = next(iter(uci.jobs("smoke", None))).settings
    draws = stacks.sample("ensemble", {"lr": 0.02}, splits, {**settings, "steps": 80}, 0)
    found = stacks.judge(draws, splits)
    for split in range(2):
        means = [m[split].tolist() for part, _ in draws for m in part]
        noise = [float(v[split]) for _, part in draws for v in part]
        assert len(means) == len(noise) == 4
        wanted = naive_scores(
            means, noise, splits.judged_targets[split].tolist(), float(splits.units[split])
        )
        got = [found[name][split] for name in uci_view.SCORES]
        assert got == pytest.approx(wanted, rel=1e-5)


def test_stacked_regression_gradient_is_that_of_each_network():
    networks = stacks.Networks(small_splits(), 5, 2, seed=3)
    state = networks.draws.get_state()
    networks.backward(6)
    networks.draws.set_state(state)
    rows = torch.randint(networks.splits.inputs.shape[1], (4, 6), generator=networks.draws)
    for index in range(4):
        flat = networks.theta.detach()[index].clone().requires_grad_()
        sizes = [math.prod(shape) for shape in networks.shapes]
        first, shift, second, bias, log_noise = torch.split(flat, sizes)
        split = index // 2
        inputs = networks.splits.inputs[split, rows[index]]
        targets = networks.splits.targets[split, rows[index]]
        hidden = torch.relu(inputs @ first.view(10, 5) + shift)
        mean = (hidden @ second.view(5, 1)).squeeze(1) + bias
        F.gaussian_nll_loss(mean, targets, log_noise.exp().expand(6)).backward()
        wanted = flat.grad * min(1.0, stacks.CLIP / float(flat.grad.norm()))
        torch.testing.assert_close(networks.theta.grad[index], wanted, rtol=1e-4, atol=1e-6)


def test_test_rows_never_take_part_in_the_choice(monkeypatch):
    settings = {**uci.jobs("smoke", None)[0].settings, "steps": 60}
    values, test = uci.read("diabetes", None, 2)
    spoilt = values.copy()
    spoilt[test.any(0), -1] *= -50
    # Only what both splits hold out is spoilt, so that the training rows stay as they are.
    both = np.stack([test[0] | test[1]] * 2)
    monkeypatch.setattr(uci, "read", lambda *_: (spoilt, both))
    found = uci.compute(settings, Place(None, None))
    monkeypatch.setattr(uci, "read", lambda *_: (values, both))
    wanted = uci.compute(settings, Place(None, None))
    assert found["chosen"] == wanted["chosen"]
    assert found["validation_log_likelihood"] == wanted["validation_log_likelihood"]
    assert found["rmse"] != wanted["rmse"]


def test_trials_cover_every_range_evenly():
    found = latin("emcmc", {"lr": (0.01, 1.0), "horizon": (1.0, 100.0)}, 4)
    for name, low in (("lr", 0.01), ("horizon", 1.0)):
        steps = sorted(math.log10(trial[name] / low) for trial in found)
        assert steps == pytest.approx([0.25, 0.75, 1.25, 1.75], abs=1e-3)
    assert found == latin("emcmc", {"lr": (0.01, 1.0), "horizon": (1.0, 100.0)}, 4)
