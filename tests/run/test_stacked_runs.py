"""Chains that are trained at once: those one after the other to rounding, and exact after kills."""

import json
import random
import time
from dataclasses import replace

import pytest
import torch
import yaml
from torch import nn

from entropy_mcmc.chains.stack import samplers
from entropy_mcmc.errors import ConfigError, NonFiniteError
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run import checkpoint as checkpoints
from entropy_mcmc.run.config import METHODS, with_parts
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.methods import METHODS as RUNS
from entropy_mcmc.run.runner import run
from run.test_resume import compare
from run.workers import finish, start, tiny_config, tiny_data

AT_ONCE = [name for name in METHODS if not RUNS[name].sampler.needs_closure]


def plain_model():
    """Batch norm, but no dropout, which cannot be stacked."""
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def stacked_config(folder, method="emcmc", stacked="yes", chains=3, **schedule):
    config = replace(tiny_config(folder, method, **schedule), chains=chains)
    return with_parts(
        config,
        model={"name": "run.test_stacked_runs:plain_model"},
        compute={"accelerator": "cpu", "threads": 1, "stacked": stacked},
    )


def stored(made):
    named = {}
    for index, sample in enumerate(made.posterior.samples):
        state = made.posterior.load(index, plain_model()).state_dict()
        named[sample.key] = {name: value.clone() for name, value in state.items()}
    return named


def largest_difference(first, second):
    one, two = stored(first), stored(second)
    assert one.keys() == two.keys()
    gaps = [(one[k][n].double() - two[k][n].double()).abs().max() for k in one for n in one[k]]
    return float(max(gaps))


def numbers(event):
    return {name: value for name, value in event.items() if isinstance(value, int | float)}


@pytest.mark.parametrize("method", AT_ONCE)
def test_chains_at_once_are_those_one_after_the_other(tmp_path, method):
    """After 40 steps to 2e-5, batch-norm statistics and journal included."""
    made = {}
    for stacked in ("yes", "no"):
        config = stacked_config(tmp_path / stacked, method, stacked, epochs=10)
        # A bias before batch norm has the gradient 0, whose rounding PSGLD's ε must outweigh.
        own = {"epsilon": 0.5} if method == "psgld" else {}
        made[stacked] = run(with_parts(config, sampler={"clip_norm": 1.0, **own}))
    assert largest_difference(made["yes"], made["no"]) < 2e-5
    journals = [Journal(tmp_path / stacked).events() for stacked in ("yes", "no")]
    assert len(journals[0]) == len(journals[1]) > 30
    for one, two in zip(*journals, strict=True):
        assert numbers(one) == pytest.approx(numbers(two), rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("change", [{"precision": "64-true"}, {"micro_batches": 2}])
def test_precision_and_micro_batches(tmp_path, change):
    made = {}
    for stacked in ("yes", "no"):
        config = stacked_config(tmp_path / stacked, "emcmc", stacked, epochs=10)
        made[stacked] = run(with_parts(config, compute=change))
    limit = 1e-12 if "precision" in change else 2e-5
    assert largest_difference(made["yes"], made["no"]) < limit


def test_groups_with_priors_of_their_own_are_stacked(tmp_path):
    made = {}
    for stacked in ("yes", "no"):
        config = stacked_config(tmp_path / stacked, "emcmc", stacked, epochs=10)
        prior = {"prior_scale": "fan-in", "bias_variance": 0.5, "norm_variance": 2.0}
        made[stacked] = run(with_parts(config, sampler=prior))
    assert largest_difference(made["yes"], made["no"]) < 2e-5


def test_phases_without_coupling_are_stacked(tmp_path):
    made = {}
    for stacked in ("yes", "no"):
        config = stacked_config(tmp_path / stacked, "emcmc", stacked, epochs=12, cycles=2)
        made[stacked] = run(with_parts(config, schedule={"coupled": "noisy"}))
    assert largest_difference(made["yes"], made["no"]) < 2e-5


@pytest.mark.parametrize("coupled", ["always", "noisy"])
def test_replicas_at_once_are_those_in_turn(tmp_path, coupled):
    made = {}
    for stacked in ("yes", "no"):
        config = stacked_config(tmp_path / stacked, "emcmc", stacked, chains=2, epochs=12, cycles=2)
        config = with_parts(config, schedule={"coupled": coupled})
        made[stacked] = run(replace(config, replicas=3))
    assert made["yes"].record.config.compute.stacked == "yes"
    assert largest_difference(made["yes"], made["no"]) < 2e-5


def slow_loss(output, target):
    """Cross-entropy that leaves time to be killed; all chains at once sleep once."""
    time.sleep(0.002)
    return nn.functional.cross_entropy(output, target)


def lines(folder):
    """How far a run is: lines of its journal, whose parts wait for the end."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("metrics*.jsonl"))


@pytest.mark.parametrize(
    ("method", "chains", "replicas"), [("emcmc", 3, 1), ("ensemble", 3, 1), ("emcmc", 1, 3)]
)
def test_killed_stacks_equal_uninterrupted_ones(tmp_path, method, chains, replicas):
    whole = replace(
        stacked_config(tmp_path / "whole", method, chains=chains, epochs=60 * replicas),
        loss="run.test_stacked_runs:slow_loss",
        replicas=replicas,
    )
    whole = with_parts(whole, output={"checkpoint_seconds": 0.05, "progress": False})
    killed = replace(whole, run_dir=str(tmp_path / "killed"))
    finish(whole)
    assert (
        yaml.safe_load((tmp_path / "whole" / "config.yaml").read_text())["compute"]["stacked"]
        == "yes"
    )
    clock, until = random.Random(method), lines(tmp_path / "whole")
    for kill in range(4):
        process = start(killed)
        while process.is_alive() and lines(tmp_path / "killed") < until * 0.2 * (kill + 1):
            time.sleep(0.001)
        time.sleep(clock.uniform(0.0, 0.02))
        assert process.is_alive()
        process.kill()
        process.join()
    finish(killed)
    compare(tmp_path / "whole", tmp_path / "killed")


def test_a_kill_between_the_checkpoints_of_two_chains_goes_back_to_the_last_common_one(tmp_path):
    """As if the kill came after chain 0 had written its second checkpoint."""
    folders = [tmp_path / "chain-0", tmp_path / "chain-1"]
    for folder, steps in zip(folders, ((10, 20), (10,)), strict=True):
        for step in steps:
            state = checkpoints.Checkpoint(step, {"x": torch.zeros(2)}, {"groups": []})
            checkpoints.save(folder, state)
    found = checkpoints.load_common(folders)
    assert [state.step for state in found] == [10, 10]
    assert checkpoints.newest_step(folders[0]) == 10
    for folder in folders:  # the next one pushes out nothing that is needed
        checkpoints.save(folder, checkpoints.Checkpoint(15, {"x": torch.zeros(2)}, {"groups": []}))
        assert {p.stem for p in folder.glob("*.json")} == {"000000000010", "000000000015"}
    (folders[1] / "000000000015.safetensors").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="going on from step 10"):
        assert checkpoints.load_common(folders)[0].step == 10


def test_an_extension_goes_on_at_once(tmp_path):
    config = stacked_config(tmp_path / "run", epochs=8, cycles=2)
    run(config).posterior.close()
    longer = run(config, more_cycles=2)
    assert len(longer.posterior) == 2 * 3 * 4
    steps = [e["step"] for e in Journal(tmp_path / "run").events() if e["chain"] == 2]
    assert steps == sorted(steps)


def test_what_cannot_be_stacked_says_why_and_runs(tmp_path, capsys):
    config = with_parts(
        stacked_config(tmp_path / "run", epochs=8), model={"name": "run.workers:tiny_model"}
    )
    made = run(config)  # it has dropout
    assert made.record.config.compute.stacked == "no"
    text = capsys.readouterr().err
    assert "one after the other, not at once" in text
    assert "random" in text
    closure = run(stacked_config(tmp_path / "sam", "sam", epochs=8))
    assert closure.record.config.compute.stacked == "no"
    assert "method sam takes several gradients" in capsys.readouterr().err


def test_small_networks_are_stacked_by_default_and_others_are_not(tmp_path):
    data = tiny_data()
    for name, width, expected in (("small", 8, "yes"), ("large", 8000, "no")):

        def build(width=width):
            return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))

        config = replace(tiny_config(tmp_path / name, "sgld", epochs=2), chains=2)
        made = run(config, model=build, data=data)
        assert made.record.config.compute.stacked == expected
    one = run(tiny_config(tmp_path / "one", "sgld", epochs=2), model=build, data=data)
    assert one.record.config.compute.stacked == "no"


def test_runs_of_earlier_versions_go_on_one_after_the_other(tmp_path):
    """Their config has no such entry: a stack would not continue them bit for bit."""
    config = stacked_config(tmp_path / "run", stacked="no", epochs=8)
    run(config).posterior.close()
    path = tmp_path / "run" / "config.yaml"
    content = yaml.safe_load(path.read_text())
    del content["compute"]["stacked"]
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    again = run(with_parts(config, compute={"stacked": None}))
    assert again.record.config.compute.stacked is None
    other = stacked_config(tmp_path / "other", stacked="no", epochs=8)
    run(other).posterior.close()
    with pytest.raises(ConfigError, match=r"compute\.stacked: 'no' → 'yes'"):
        run(with_parts(other, compute={"stacked": "yes"}))


def test_the_step_that_is_compiled_is_recorded(tmp_path):
    config = with_parts(stacked_config(tmp_path / "run", epochs=2), sampler={"fused": "auto"})
    run(config)
    for file in (tmp_path / "run" / "checkpoint").glob("chain-*/*.json"):
        assert json.loads(file.read_text())["numbers"]["compiled_from"] is None


def test_a_chain_that_diverges_is_named(tmp_path):
    config = with_parts(
        stacked_config(tmp_path / "run", "sgld", epochs=8), sampler={"lr": 1e30, "eta": None}
    )
    with pytest.raises(NonFiniteError, match=r"chain \d"):
        run(config)


def test_stores_are_shared_by_networks_of_one_architecture(tmp_path):
    one, two = plain_model(), plain_model()
    with Posterior.create(tmp_path, one) as posterior:
        posterior.collect(step=1)
        posterior.of_model(two).collect(step=2)
        assert len(posterior) == 2
        assert torch.equal(posterior.load(1, plain_model()).state_dict()["0.weight"], two[0].weight)


def test_every_sampler_with_one_gradient_can_be_stacked():
    assert set(samplers()) <= set(AT_ONCE)
