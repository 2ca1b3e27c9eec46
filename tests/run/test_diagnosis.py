"""The end of `emcmc sample`: what is said of the chain, and kept in `diagnostics.json`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from entropy_mcmc import Posterior, sample
from entropy_mcmc.diagnostics import gradient_variance
from entropy_mcmc.run.commands import sample_command
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.diagnose import _read, _variance, diagnose_run, inputs_of, thermometers
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.loaded_run import load_run
from entropy_mcmc.run.python_api import configured
from entropy_mcmc.run.runner import run
from run.workers import TRUSTED, tiny_config, tiny_data

QUIET = {"progress": False, "baseline": "none"}


def only_training():
    return tiny_data()[0]


def line():
    """A regression with a test set."""
    x = torch.linspace(-2, 2, 96)[:, None].repeat(1, 4)
    y = x[:, 0] ** 2 + torch.randn(96, generator=torch.Generator().manual_seed(0))
    return (x[::2], y[::2]), (x[1::2], y[1::2])


def two_outputs():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def long_noise(folder, **options):
    """Constant lr, so that the guide has the time to reach its distribution."""
    config = tiny_config(folder, "emcmc", kind="constant", samples_per_cycle=6)
    fast = {"lr": 0.4, "momentum": 0.0, "temperature": 0.01}
    return replace(with_parts(config, sampler=fast), **options)


def sampled(config, capsys):
    """What the command prints, and what it leaves."""
    sample_command(config, None, False)
    stored = json.loads((Path(config.run_dir) / "diagnostics.json").read_text(encoding="utf-8"))
    out = capsys.readouterr().out
    assert out.rstrip().endswith(stored["text"])
    return out, stored


def test_a_chain_with_a_guide_is_read(tmp_path, capsys):
    out, stored = sampled(long_noise(tmp_path / "a", chains=2), capsys)
    assert stored["temperature"] == 0.01
    assert stored["verdict"]["injected"] is not None
    assert stored["verdict"]["minibatch"] is not None
    assert "measured, 0.01 set" in out
    # Two chains of two cycles of six draws of each role.
    assert [r["role"] for r in stored["roles"]] == ["theta", "guide"]
    assert {(r["mixing"]["draws"], r["mixing"]["chains"]) for r in stored["roles"]} == {(24, 4)}
    # One event for each reading, and the thermometers of both chains hold the same ones.
    events = [e for e in Journal(tmp_path / "a").events() if e["kind"] == "thermometer"]
    kept = thermometers(tmp_path / "a")
    assert list(kept) == [0, 1]
    pairs = [(c, reading.observed) for c, t in kept.items() for reading in t.readings]
    assert [(e["chain"], e["observed"]) for e in events] == pairs
    assert len(pairs) >= 12


def test_rewinding_drops_later_readings(tmp_path):
    run(long_noise(tmp_path / "a"))
    journal = Journal(tmp_path / "a")
    steps = [e["step"] for e in journal.events() if e["kind"] == "thermometer"]
    journal.rewind(0, steps[2])
    assert [e["step"] for e in journal.events() if e["kind"] == "thermometer"] == steps[:3]


def test_the_variance_is_that_of_the_chains_gradients(tmp_path):
    """V from pairs at the samples against all mini-batches of epochs at those samples."""
    config = with_parts(long_noise(tmp_path / "a"), model={"name": f"{__name__}:two_outputs"})
    config = with_parts(config, data={"name": f"{__name__}:line"})
    run(config)
    loaded = load_run(tmp_path / "a", trust=TRUSTED)
    samples = _read(loaded, thermometers(loaded.folder))
    assert len(samples) == 8
    estimate = _variance(loaded, samples)
    limit, source = loaded.record.config.sampler.clip_norm, loaded.problem.source
    assert limit == 20.0
    model = loaded.problem.model
    each = []
    for index in samples:
        loaded.posterior.load(index, model)
        grads = []
        for step in range(60):
            x, y = source.micro(step, 0, 1)
            model.zero_grad()
            loaded.problem.loss(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), limit)
            grads.append([p.grad.clone() for p in model.parameters()])
        each.append(gradient_variance(grads, source.num_data).value)
    # 4 standard errors of the eight pairs: a false alarm once in 700 (Student, 7 degrees).
    assert abs(estimate.value - sum(each) / len(each)) < 4 * estimate.error


def test_clipped_gradients_of_noisy_steps_are_counted(tmp_path, monkeypatch):
    """Against the norms that the clipping returned, step by step."""
    norms, clip = [], nn.utils.clip_grad_norm_

    def spy(params, limit):
        norms.append(float(clip(params, limit)))
        return torch.tensor(norms[-1])

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", spy)
    limit, steps = 0.8, 40 * 4
    run(with_parts(tiny_config(tmp_path / "a", "sgld"), sampler={"clip_norm": limit}))
    # Two cycles whose first half is without noise.
    noisy = [n for step, n in enumerate(norms) if step % (steps // 2) >= steps // 4]
    assert (len(norms), len(noisy)) == (steps, steps // 2)
    share = sum(n > limit for n in noisy) / len(noisy)
    assert 0.1 < share < 0.9
    events = [e for e in Journal(tmp_path / "a").events() if e["kind"] == "train"]
    assert events[-1]["clipped"] == pytest.approx(share, abs=1e-6)
    assert "clipped" not in events[0]


@pytest.mark.parametrize(("limit", "said"), [(None, False), (float("inf"), False), (0.01, True)])
def test_clipping_while_sampling_is_said(tmp_path, capsys, limit, said):
    config = tiny_config(tmp_path / "a", "sgld", epochs=20)
    _, stored = sampled(with_parts(config, sampler={"clip_norm": limit}), capsys)
    texts = [item["text"] for item in stored["advice"] if item["severity"] == "warning"]
    assert any("clipped in 100% of the noisy steps" in text for text in texts) == said
    assert any("clipped" in item["text"] for item in stored["advice"]) == said


@pytest.mark.parametrize("method", ["sgld", "sghmc", "bsam", "entropy-sgld", "ensemble"])
def test_samples_without_a_guide(tmp_path, capsys, method):
    _, stored = sampled(tiny_config(tmp_path / "a", method, epochs=20), capsys)
    claimed = 0.02 if method in ("sgld", "sghmc") else None
    assert (stored["temperature"], stored["measured"], stored["verdict"]) == (claimed, None, None)
    assert [role["role"] for role in stored["roles"]] == ["theta"]
    contrast = stored["roles"][0]["weights"]
    assert contrast["within" if method == "bsam" else "between"] > 0


@pytest.mark.parametrize("method", ["sgd", "swa", "sam", "entropy-sgd"])
def test_one_network(tmp_path, capsys, method):
    out, stored = sampled(tiny_config(tmp_path / "a", method, epochs=10), capsys)
    assert stored == {
        "text": "one network: there is nothing to diagnose",
        "samples": 1,
        "severity": "ok",
    }
    assert "Diagnosis" not in out


class Vector(nn.Module):
    """Parameters that are the output, whatever the input."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(1000))

    def forward(self, x):
        return self.weights.expand(len(x), -1)


def quadratic(output, target):
    """Curvature 1 of the mean loss, N of the energy; the mini-batches differ by `target`."""
    return (output - target).square().sum(1).mean() / 2


@pytest.mark.parametrize(
    ("method", "lr", "factor"),
    [("emcmc", 0.06, 1.0), ("emcmc", 1 / 3, 1.2), ("sgld", 1.024, 2.05), ("sghmc", 0.02, 1.0)],
)
def test_a_too_large_lr_is_found(tmp_path, method, lr, factor):
    """Variance 1.2 and 2.05 times that of the target: the coupling thermometer sees neither."""
    posterior = sample(
        Vector(), (torch.zeros(100, 1), torch.zeros(100, 1)), method=method, loss=quadratic,
        likelihood="classification", run_dir=tmp_path / "a", lr=lr, temperature=1.0,
        weight_decay=0.0, epochs=160, batch_size=20, kind="constant",
        cycles=1, burn_in=0.2, samples_per_cycle=12,
        **({"eta": 0.2, "momentum": 0.0} if method == "emcmc" else {}),
    )  # fmt: skip
    diagnosis = posterior.diagnosis
    reading = diagnosis.theta_temperature.reading
    assert abs(reading.value - factor) < 4 * reading.error + 0.05 * factor * (method == "emcmc")
    (said,) = [a for a in diagnosis.advice if a.text.startswith("θ is") or "θ's own" in a.text]
    assert said.severity == ("ok" if factor == 1 else "warning")
    assert "12 samples × 5 mini-batch gradients" in said.text
    assert ("divide lr by" in said.change) == (factor > 1)


def no_loss(output, target):
    """The posterior is the prior."""
    return 0 * output.sum()


@pytest.mark.parametrize("prior", [{"prior_variance": 0.01}, {"weight_decay": 1.0}])
def test_a_prior_is_part_of_the_energy_however_it_is_stated(tmp_path, prior):
    """T/(1 − lr·λ/2) = 1.053 with λ = 1, from the prior alone; ± 4 standard errors."""
    posterior = sample(
        Vector(), (torch.zeros(100, 1), torch.zeros(100, 1)), method="sgld", loss=no_loss,
        likelihood="classification", run_dir=tmp_path / "a", lr=0.1, temperature=1.0, **prior,
        epochs=80, batch_size=20, kind="constant", cycles=1, burn_in=0.2, samples_per_cycle=8,
    )  # fmt: skip
    reading = posterior.diagnosis.theta_temperature.reading
    assert abs(reading.value - 1 / 0.95) < 4 * reading.error


def test_n_may_be_stated(tmp_path):
    """Five tokens in each of 100 rows: the chain is that of N = 500."""
    options = {"num_data": 500, "epochs": 4, "batch_size": 20, "cycles": 1, "samples_per_cycle": 1}
    posterior = sample(
        Vector(), (torch.zeros(100, 1), torch.zeros(100, 1)), method="sgld", loss=quadratic,
        likelihood="classification", run_dir=tmp_path / "a", **options,
    )  # fmt: skip
    (meta,) = (posterior.path / "checkpoint" / "chain-0").glob("*.json")
    (group,) = json.loads(meta.read_text(encoding="utf-8"))["numbers"]["groups"]
    assert group["num_data"] == 500


def test_sample_gives_the_diagnosis_of_the_command(tmp_path, capsys):
    """From the same finished run; printed only with progress."""
    x, y = tiny_data()[0]
    options = {"epochs": 20, "batch_size": 16, "run_dir": tmp_path / "b"}
    torch.manual_seed(0)
    network = nn.Linear(4, 3)
    posterior = sample(network, (x, y), **options)
    text = str(posterior.diagnosis)
    assert text.startswith("Diagnosis")
    assert posterior.diagnosis is posterior.diagnosis
    assert capsys.readouterr().out == ""
    done = run(
        with_parts(replace(configured(options), run_dir=str(tmp_path / "b")), output=QUIET),
        model=network,
        data=(x, y),
    )
    assert diagnose_run(done) == text
    sample(network, (x, y), **options, progress=True)
    assert text in capsys.readouterr().out
    assert sample(network, (x, y), method="sgd", epochs=20, batch_size=16).diagnosis is None
    assert Posterior.open(tmp_path / "b", network).diagnosis is None


def test_regression(tmp_path, capsys):
    config = with_parts(long_noise(tmp_path / "a"), model={"name": f"{__name__}:two_outputs"})
    out, stored = sampled(with_parts(config, data={"name": f"{__name__}:line"}), capsys)
    assert "root mean square difference of means" in out
    assert stored["roles"][0]["predictions"]["between"] > 0


def test_without_a_test_set_training_rows_are_used(tmp_path, capsys):
    config = with_parts(long_noise(tmp_path / "a"), data={"name": f"{__name__}:only_training"})
    out, stored = sampled(config, capsys)
    assert "no test data were given" in out
    assert stored["roles"][0]["mixing"]["draws"] == 12
    assert torch.equal(inputs_of(load_run(tmp_path / "a", trust=TRUSTED)), only_training()[0])


def test_double_precision_and_again(tmp_path, capsys):
    config = with_parts(long_noise(tmp_path / "a"), compute={"precision": "64-true"})
    _, stored = sampled(config, capsys)
    assert sampled(config, capsys)[1] == stored
    assert diagnose_run(load_run(tmp_path / "a", trust=TRUSTED)) == stored["text"]
