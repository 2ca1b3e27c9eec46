"""The engine on one device: what it counts, what it stores, what it accepts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import entropy_mcmc
from entropy_mcmc import metrics, recipes, samplers, schedules
from entropy_mcmc.errors import ConfigError, StateError
from entropy_mcmc.evaluation.sets import shuffled
from entropy_mcmc.run import sample
from entropy_mcmc.run.config import METHODS, RunConfig, differences, from_dict, to_dict, with_parts
from entropy_mcmc.run.devices import check_precision
from entropy_mcmc.run.evaluate import evaluate, table
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.loaded_run import load_run
from entropy_mcmc.run.methods import METHODS as TABLE
from entropy_mcmc.run.methods import choose_eta, fill, gradients_per_step
from entropy_mcmc.run.predict import predict_file, prepare
from entropy_mcmc.run.runner import run
from entropy_mcmc.run.step_schedule import Plan, cycle_steps
from entropy_mcmc.run.training_batches import source_of
from run.workers import TRUSTED, tiny_config, tiny_data, tiny_model

SHORT = {"epochs": 4, "cycles": 1, "batch_size": 16, "samples_per_cycle": 1, "burn_in": 0.5}


def test_table_has_every_method():
    assert tuple(sorted(TABLE)) == tuple(sorted(METHODS))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_spends_the_same_gradients(tmp_path, monkeypatch, method):
    """Count backward passes instead of trusting the method's own number."""
    calls = []
    config = tiny_config(tmp_path / "run", method, epochs=20)

    def counted(output, target):
        calls.append(1)
        return nn.functional.cross_entropy(output, target)

    run(config, loss=counted)
    chains = 2 if method == "ensemble" else 1
    assert len(calls) == 20 * 4 * chains
    last = Journal(tmp_path / "run").events()[-1]
    assert last["gradients"] == 20 * 4


def test_engine_equals_a_loop_written_by_hand(tmp_path):
    """EMCMC through the engine against the loop of the README."""
    torch.manual_seed(3)
    network = nn.Linear(4, 3)
    start = {name: value.clone() for name, value in network.state_dict().items()}
    data = tiny_data()[0]
    options = {"lr": 0.1, "eta": 0.05, "temperature": 0.01, "weight_decay": 1e-3, "momentum": 0.5}
    course = {"cycles": 2, "burn_in": 0.8, "samples_per_cycle": 2, "coupled": "noisy"}
    posterior = sample(
        network,
        data,
        **{"run_dir": tmp_path, "epochs": 10, "batch_size": 16, "seed": 4, "roles": "both"},
        **options,
        **course,
    )
    network.load_state_dict(start)
    source = source_of(data, 16, _derived(4, "order"), False)
    sampler = samplers.EntropyMCMC(
        network.named_parameters(), num_data=64, seed=_derived(4, "noise"), **options
    )
    cycle = schedules.Cyclical(sampler, 40, **course)
    expected = []
    for step in range(40):
        x, y = source.micro(step, 0, 1)
        sampler.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        sampler.step()
        if cycle.step():
            expected.append({k: v.clone() for k, v in network.state_dict().items()})
            with sampler.guide():
                expected.append({k: v.clone() for k, v in network.state_dict().items()})
    assert len(posterior) == len(expected) == 8
    for stored, wanted in zip(posterior, expected, strict=True):
        assert all(torch.equal(stored[name], wanted[name]) for name in wanted)


def _derived(seed, name):
    from entropy_mcmc.run.seeds import derive

    return derive(seed, name, 0)


def test_swa_stores_the_mean_of_the_due_weights(tmp_path, monkeypatch):
    config = tiny_config(tmp_path / "run", "swa", samples_per_cycle=5)
    seen = []
    original = samplers.SGHMC.step

    def spy(self, closure=None):
        result = original(self, closure)
        seen.append([p.detach().double().clone() for p in self.param_groups[0]["params"]])
        return result

    monkeypatch.setattr(samplers.SGHMC, "step", spy)
    posterior = run(config).posterior
    cyclical = schedules.Cyclical(
        samplers.SGLD([nn.Parameter(torch.ones(1))], 0.1, num_data=1), len(seen), 1, 0.5, 5
    )
    due = [weights for step, weights in enumerate(seen) if cyclical.is_due(step)]
    mean = [torch.stack(parts).mean(0) for parts in zip(*due, strict=True)]
    assert len(posterior) == 1
    assert len(due) == 5
    stored = [posterior[0][name].double() for name, _ in posterior.model.named_parameters()]
    for one, two in zip(stored, mean, strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5)


def test_chains_start_apart_and_are_stored_apart(tmp_path):
    posterior = sample(
        tiny_model, tiny_data()[0], run_dir=tmp_path, method="sgld", chains=2, **SHORT
    )
    assert [s.chain for s in posterior.samples] == [0, 1]
    first, second = (posterior[i]["0.weight"] for i in range(2))
    assert not torch.allclose(first, second, atol=1e-2)


def test_bsam_samples_are_draws(tmp_path):
    config = tiny_config(tmp_path / "run", "bsam")
    result = run(config)
    state = result.posterior[len(result.posterior) - 1]
    weights = dict(result.posterior.model.named_parameters())
    assert not torch.equal(state["0.weight"], weights["0.weight"])


def test_running_statistics_are_not_touched_but_samples_have_their_own(tmp_path):
    network = tiny_model()
    posterior = sample(network, tiny_data()[0], run_dir=tmp_path, **SHORT)
    assert network[1].running_mean.abs().max() == 0
    assert network[1].track_running_stats
    assert posterior[0]["1.running_mean"].abs().max() > 0
    assert {s.batchnorm for s in posterior.samples} == {"fresh"}


def test_temporary_run_folder_lives_as_long_as_the_posterior():
    posterior = sample(tiny_model, tiny_data()[0], **SHORT)
    folder = posterior.path
    assert folder.exists()
    del posterior
    assert not folder.exists()


def test_regression_is_in_the_units_of_the_targets(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator)
    y = 1000 + 50 * x[:, 0] + 5 * torch.randn(200, generator=generator)
    np.savez(
        tmp_path / "table.npz",
        **{"x_train": x[:150], "y_train": y[:150], "x_test": x[150:], "y_test": y[150:]},
    )
    config = RunConfig(run_dir=str(tmp_path / "run"))
    config = with_parts(
        config,
        data={"name": "npz", "folder": str(tmp_path / "table.npz"), "batch_size": 30},
        schedule={"epochs": 150},
        compute={"threads": 1},
        output={"progress": False},
    )
    run(config)
    loaded = load_run(tmp_path / "run", trust=TRUSTED)
    evaluate(loaded)
    scores = Journal(tmp_path / "run").evaluations()[0]
    # The noise is 5 and the targets' standard deviation 50; a constant predictor has RMSE 50.
    assert scores["rmse"] < 15
    assert 0.7 < scores["coverage"] <= 1.0
    np.savetxt(tmp_path / "in.csv", x[150:].numpy(), delimiter=",", header="a,b,c", comments="")
    assert predict_file(loaded, tmp_path / "in.csv", tmp_path / "out.csv", batch_size=7) == 50
    out = np.genfromtxt(tmp_path / "out.csv", delimiter=",", names=True)
    assert out.dtype.names == ("mean", "std", "epistemic_std")
    assert metrics.rmse(out["mean"], y[150:].numpy()) == pytest.approx(scores["rmse"], rel=1e-4)


def test_predictions_do_not_depend_on_the_batch_size(tmp_path):
    config = tiny_config(tmp_path / "run", "emcmc", epochs=10)
    run(config)
    loaded = load_run(tmp_path / "run", trust=TRUSTED)
    x = tiny_data()[1][0].numpy()
    np.savez(tmp_path / "in.npz", x=x)
    for size, name in ((1000, "a"), (3, "b")):
        predict_file(loaded, tmp_path / "in.npz", tmp_path / f"{name}.npz", size)
    first, second = (np.load(tmp_path / f"{name}.npz") for name in "ab")
    assert set(first.files) == {"class", "probabilities", "entropy", "mutual_information"}
    each = loaded.posterior.sample_predictions(prepare(loaded, np.load(tmp_path / "in.npz")["x"]))
    np.testing.assert_allclose(first["probabilities"], each.mean(0), atol=1e-6)
    expected = metrics.mutual_information(each)
    np.testing.assert_allclose(first["mutual_information"], expected, atol=1e-6)
    for name in first.files:
        np.testing.assert_allclose(first[name], second[name], atol=1e-6)
    expected = loaded.posterior.predict_proba(torch.as_tensor(x))
    np.testing.assert_allclose(first["probabilities"], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((2, 5)), "each input must have 4 numbers"),
        (np.full((2, 4), np.nan), "must be finite, got nan in row 0"),
        (np.zeros(4), "rows of numbers"),
    ],
)
def test_predict_refuses_inputs_that_do_not_fit(tmp_path, values, message):
    run(tiny_config(tmp_path / "run", "sgd", epochs=4))
    np.savez(tmp_path / "in.npz", x=values)
    with pytest.raises((ConfigError, ArithmeticError), match=message):
        predict_file(
            load_run(tmp_path / "run", trust=TRUSTED), tmp_path / "in.npz", tmp_path / "out.npz"
        )
    assert not (tmp_path / "out.npz").exists()


def test_plan_is_cyclical_and_extends_without_changing_the_past(tmp_path):
    config = fill(with_parts(RunConfig(), schedule={"epochs": 10, "cycles": 3}))
    length = cycle_steps(config, 20)
    assert length == 66
    config = choose_eta(config, 1000, length)
    plans = []
    for cycles in (3, 5):
        sampler = _sampler(config)
        plans.append((Plan(config, sampler, length, cycles), sampler))
    reference = schedules.Cyclical(_sampler(config), 198, 3, 0.5, 8)
    for step in range(198):
        for plan, sampler in plans:
            plan.apply(step)
            assert sampler.param_groups[0]["lr"] == pytest.approx(
                config.sampler.lr * reference.lr_factor(step), rel=1e-12
            )
            assert sampler.param_groups[0]["noise"] == reference.is_noisy(step)
            assert plan.is_due(step) == reference.is_due(step)


def test_the_steps_of_a_plan_of_replicas_are_rounds():
    """66 rounds of 4 calls have the values of 66 steps of one network, to the last bit."""
    config = fill(with_parts(RunConfig(), schedule={"epochs": 10, "cycles": 3}))
    config = with_parts(config, sampler={"eta": 0.01})
    one, four = _sampler(config), _sampler(config, replicas=4)
    plain, rounds = Plan(config, one, 22, 3), Plan(config, four, 22, 3)
    loop = schedules.Cyclical(
        _sampler(config, replicas=4), 264, 3, config.schedule.burn_in, 8, coupled="noisy"
    )
    for step in range(66):
        plain.apply(step)
        rounds.apply(step)
        for name in ("lr", "noise", "coupled", "eta"):
            assert one.param_groups[0][name] == four.param_groups[0][name]
        assert plain.cycle(step) == rounds.cycle(step) == loop.cycle(4 * step)
        assert plain.is_due(step) == rounds.is_due(step) == loop.is_due(4 * step + 3)
        assert not any(loop.is_due(4 * step + turn) for turn in range(3))


def _sampler(config, **options):
    numbers = {"lr": config.sampler.lr, "eta": config.sampler.eta, "num_data": 1000, "seed": 0}
    return samplers.EntropyMCMC([nn.Parameter(torch.ones(2))], **numbers, **options)


@pytest.mark.parametrize("kind", ["constant", "linear", "exponential", "step"])
def test_other_schedules(kind):
    config = choose_eta(fill(with_parts(RunConfig(), schedule={"kind": kind})), 1000, 90)
    sampler = _sampler(config)
    plan = Plan(config, sampler, 90, 1)
    rates = []
    for step in range(90):
        plan.apply(step)
        rates.append(sampler.param_groups[0]["lr"] / config.sampler.lr)
    last = {"constant": 1.0, "linear": 1 / 90 * 0.99 + 0.01, "step": 0.01}
    expected = last.get(kind, 0.01 ** (89 / 90))
    assert rates[0] == 1.0
    assert rates[-1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["cyclical", "constant", "linear", "exponential", "step"])
@pytest.mark.parametrize("method", ["emcmc", "swa"])
def test_a_warm_up_raises_lr_over_the_first_steps(method, kind):
    """Whatever comes after it: the cold schedule times (step + 1)/9."""
    rates = []
    for warm_up in (0.1, 0.0):
        parts = {"schedule": {"kind": kind, "warm_up": warm_up, "cycles": 1}}
        config = choose_eta(fill(with_parts(RunConfig(method=method), **parts)), 1000, 90)
        numbers = {"lr": config.sampler.lr, "num_data": 1000, "seed": 0}
        sampler = samplers.SGLD([nn.Parameter(torch.ones(2))], **numbers)
        plan = Plan(config, sampler, 90, 1)
        rates.append([])
        for step in range(90):
            plan.apply(step)
            rates[-1].append(sampler.param_groups[0]["lr"])
    risen = [rate * min(1, (step + 1) / 9) for step, rate in enumerate(rates[1])]
    assert rates[0] == pytest.approx(risen, rel=1e-12)
    assert rates[0] != rates[1]


@pytest.mark.parametrize("method", ["emcmc", "sgld", "sgd", "swa", "ensemble", "sam"])
def test_the_recipes_warm_up_is_every_methods(method):
    wide = recipes.from_scratch(nn.Linear(2000, 2), 1000, 50, passes=40)
    assert fill(RunConfig(method=method), recipe=wide).schedule.warm_up == 0.05
    given = with_parts(RunConfig(method=method), schedule={"warm_up": 0.0})
    assert fill(given, recipe=wide).schedule.warm_up is None


def test_guide_horizon_is_a_fifth_of_a_cycle_or_what_the_noisy_part_allows():
    config = choose_eta(fill(RunConfig()), num_data=1437, cycle_steps=550)
    assert config.sampler.eta * 1437 / config.sampler.lr == pytest.approx(550 / 5)
    late = choose_eta(fill(with_parts(RunConfig(), schedule={"burn_in": 0.8})), 1437, 550)
    assert late.sampler.eta * 1437 / late.sampler.lr < 550 / 20


def test_gradients_per_step_follow_the_inner_steps():
    config = fill(with_parts(RunConfig(method="entropy-sgd"), sampler={"inner_steps": 7}))
    assert gradients_per_step(config) == 7


def test_options_of_other_methods_are_refused():
    with pytest.raises(ConfigError, match=r"method 'sgld' has no option sampler\.eta, got 0\.1"):
        fill(with_parts(RunConfig(method="sgld"), sampler={"eta": 0.1}))
    with pytest.raises(ConfigError, match="sample has no option 'learning_rate'"):
        sample(tiny_model, tiny_data()[0], learning_rate=0.1)


def test_more_cycles_need_a_finished_sampler(tmp_path, monkeypatch):
    config = tiny_config(tmp_path / "run", "sgd", epochs=4)
    with pytest.raises(ConfigError, match="method that samples in cycles, got method='sgd'"):
        run(config, more_cycles=1)
    config = tiny_config(tmp_path / "other", "sgld", epochs=4)
    with pytest.raises(StateError, match="this one has not begun, got 1"):
        run(config, more_cycles=1)
    run(config)
    monkeypatch.setattr("entropy_mcmc.run.runner.newest_step", lambda chain: 1)
    with pytest.raises(StateError, match="is not finished, got more_cycles=1"):
        run(config, more_cycles=1)


def test_half_precision_is_refused_with_a_remedy():
    for method in ("sgld", "sam"):
        config = with_parts(
            RunConfig(method=method), compute={"precision": "16-mixed", "accelerator": "cpu"}
        )
        with pytest.raises(ConfigError, match="bf16-mixed"):
            check_precision(config)


def test_bf16_mixed_runs(tmp_path):
    config = with_parts(tiny_config(tmp_path / "r", epochs=4), compute={"precision": "bf16-mixed"})
    posterior = run(config).posterior
    assert posterior[0]["0.weight"].dtype == torch.float32
    assert torch.isfinite(posterior.predict_proba(tiny_data()[1][0])).all()


def test_config_survives_yaml_and_unknown_names_raise():
    config = with_parts(replace(RunConfig(), seed=3), sampler={"lr": 0.1})
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
    with pytest.raises(ConfigError, match=r"unknown option sampler\.lrr"):
        from_dict({"sampler": {"lrr": 1}})
    assert differences({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}) == ["a.c: None → 2"]


def test_configs_of_the_library_are_complete():
    folder = Path(entropy_mcmc.__file__).parent / "configs"
    configs = {p.stem: from_dict(yaml.safe_load(p.read_text())) for p in folder.glob("*.yaml")}
    assert set(configs) == {"imagenet"}
    config = fill(configs["imagenet"])
    assert (config.model.name, config.compute.strategy) == ("resnet50", "ddp")
    # The paper's 16 samples: θ and its guide, twice in each of four cycles.
    assert 2 * config.schedule.cycles * config.schedule.samples_per_cycle == 16


def test_shuffled_images_keep_their_values():
    images = torch.arange(2 * 1 * 4 * 4, dtype=torch.uint8).view(2, 1, 4, 4)
    other = shuffled(images)
    assert not torch.equal(other, images)
    assert torch.equal(other.flatten(1).sort().values, images.flatten(1).sort().values)
    assert torch.equal(other[0] + 16, other[1])


def test_table_hides_single_corruptions():
    events = [
        {"set": "test", "who": "emcmc", "accuracy": 0.5, "nll": 1.0},
        {"set": "corrupted:fog:3", "who": "emcmc", "accuracy": 0.4},
        {"set": "corrupted:mean:3", "who": "emcmc", "accuracy": 0.3},
    ]
    lines = table(events).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == ["set", "method", "accuracy", "nll"]
    assert lines[2].split() == ["corrupted:mean:3", "emcmc", "0.3000"]


def test_a_run_of_an_earlier_version_goes_on_as_it_was(tmp_path):
    """Its config has no `schedule.coupled`: θ and θ_a were coupled from the first step."""
    config = tiny_config(tmp_path / "run", "emcmc", epochs=20, coupled="always")
    run(config)
    file = tmp_path / "run" / "config.yaml"
    content = yaml.safe_load(file.read_text())
    assert content["schedule"].pop("coupled") == "always"
    file.write_text(yaml.safe_dump(content))
    again = run(config)
    assert again.record.config.schedule.coupled == "always"
    with pytest.raises(ConfigError, match=r"schedule\.coupled: 'always' → 'noisy'"):
        run(tiny_config(tmp_path / "run", "emcmc", epochs=20))
