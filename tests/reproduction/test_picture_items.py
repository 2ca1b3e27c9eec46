"""Items on pictures: corruption, neighbourhood, the paper's scale, and the order of jobs."""

import json
import math

import numpy as np
import pytest
import torch

from entropy_mcmc import data
from entropy_mcmc_reproduction import corruption, neighbourhood, neighbourhood_view, study_items
from entropy_mcmc_reproduction.items import item
from entropy_mcmc_reproduction.jobs import Place
from entropy_mcmc_reproduction.study_items import STUDIES
from entropy_mcmc_reproduction.text import FAILS, HOLDS, NOT_RUN
from tournament import scores
from tournament.data import CORRUPTIONS
from tournament.tasks import TASKS

NOWHERE = Place(None, None)


def test_methods_with_most_seeds_come_first_and_those_that_share_a_run_after_it():
    names = [job.name.rpartition("/")[2] for job in study_items.jobs(STUDIES["cifar"], "laptop")]
    seeds = [int(name.rpartition("-")[2]) for name in names]
    twelve, fewer = names.index("SGD-0"), names.index("bSAM-0")
    assert names[twelve : twelve + 8][-4:] == ["EMA-0", "iterates-0", "guide-0", "iterates-x4-0"]
    parts = seeds[:twelve], seeds[twelve:fewer], seeds[fewer:]
    assert [max(part) for part in parts] == [19, 11, 7]
    assert all(part == sorted(part) for part in parts)
    assert sorted(names) == sorted(
        f"{variant.label}-{seed}"
        for variant in STUDIES["cifar"].variants
        for seed in range(variant.seeds or 12)
    )


@pytest.mark.parametrize("name", ["cifar", "cifar100", "temperature", "normalisation"])
def test_the_paper_scale_is_the_papers(name):
    jobs = study_items.jobs(STUDIES[name], "paper")
    assert len(jobs) == 3 * len(STUDIES[name].variants)
    for job in jobs:
        task = TASKS[job.settings["task"]]
        assert task.name.startswith("cifar100" if name == "cifar100" else "cifar10-paper")
        assert (task.passes, task.batch, task.train) == (200, 128, 49_000)
        assert job.settings["method"]["fixed"]["augmented"]
    # The network has 11 million weights: of one task it is enough to see that it is the paper's.
    if name == "cifar100":
        assert TASKS["cifar100-paper"].network().fc.out_features == 100


def test_what_needs_a_gpu_is_not_run_on_a_laptop():
    for name in ("cifar100", "imagenet"):
        assert "--scale paper" in item(name).unavailable("laptop", Place(None, None, "data"))


def test_corrupted_pictures_are_asked_in_the_order_of_their_list():
    split, clean = TASKS["digits-corrupted"].rows(0), TASKS["digits"].rows(0)
    assert torch.equal(split.train.x, clean.train.x)
    assert len(split.ood) == len(CORRUPTIONS) == 75
    source, test = data.load("digits"), data.load("digits", split="test")
    place = CORRUPTIONS.index(("fog", 3))
    wanted = source.normalise(data.corrupt(test.inputs[:20], "fog", 3))
    assert torch.equal(split.ood[place], wanted)


def test_scores_of_corrupted_pictures_are_those_of_their_own_targets(monkeypatch):
    """Naive: NLL of the mean probabilities of the first rows' classes."""
    draws = np.random.default_rng(0)
    y = draws.integers(0, 3, 9)
    parts = tuple(draws.normal(size=(2, 4, 3)).astype(np.float32) for _ in CORRUPTIONS)
    answers = scores.Answers(
        draws.normal(size=(2, 5, 3)), draws.normal(size=(2, 9, 3)), parts, y, y
    )
    monkeypatch.setattr(corruption.stored_runs, "answered", lambda *_: answers)
    found = corruption.measure({}, NOWHERE)
    place = CORRUPTIONS.index(("snow", 2))
    probs = np.exp(parts[place]) / np.exp(parts[place]).sum(-1, keepdims=True)
    nll = -np.log(probs.mean(0)[np.arange(4), y[:4]]).mean()
    assert found["by"]["snow"]["2"]["nll"] == pytest.approx(nll, rel=1e-5)
    every = [levels[level]["nll"] for levels in found["by"].values() for level in levels]
    assert found["measures"]["nll"] == pytest.approx(np.mean(every))
    monkeypatch.setattr(corruption.stored_runs, "answered", lambda *_: None)
    assert "finite" in corruption.measure({}, NOWHERE)["diverged"]


def test_the_histogram_counts_every_parameter():
    counts = neighbourhood.histogram(np.array([0.0, 1e-20, 1e-5, 3e-5, 1.0, 1e9]))
    assert sum(counts) == 6
    assert counts[0] == 2  # what is below the first edge
    assert counts[-1] == 1


def fake(rise, barrier=0.0, level=0.1):
    roles = {
        role: {
            "train_nll": level,
            "loss": [level, level + math.exp(height)],
            "error": [0.1, 0.5],
            "fisher": [0] * (len(neighbourhood.EDGES) - 1),
            "measures": {"rise": height, "fisher": height},
        }
        for role, height in rise.items()
    }
    between = {"loss": [0.1, 0.1], "error": [0.1, 0.1], "barrier": barrier, "distance": 2.0}
    return {"level": level, "distances": [0.0, 4.0], "roles": roles, "between": between}


def test_verdicts_on_what_lies_around_a_network():
    noise = np.random.default_rng(1).normal(size=(6, 3)) * 0.01
    results = {
        f"neighbourhood/seed-{seed}": fake(
            {"SGD": 1 + a, "SAM": -1 + b, "EMCMC": c, "guide": 0.0}, barrier=0.02 * (seed == 3)
        )
        for seed, (a, b, c) in enumerate(noise)
    }
    found = {v.claim: v.decision for v in neighbourhood_view.show(results, "laptop").verdicts}
    text = "the training NLL rises less along random directions around EMCMC, θ than around "
    assert found[text + "SGD"] == HOLDS
    assert found[text + "SAM"] == FAILS
    assert found["θ and θ_a lie in one basin: no barrier above the worse end"] == FAILS


def test_the_rise_is_that_of_the_matched_network(tmp_path):
    """The loss at distance 0 is the training NLL of the matched checkpoint on the same rows."""
    job = item("neighbourhood").jobs("smoke", NOWHERE)[1]
    settings = {**job.settings, "rows": 1150}
    found = neighbourhood.compute(json.loads(json.dumps(settings)), NOWHERE)
    assert set(found["roles"]) == {"SGD", "SGLD", "EMCMC", "guide"}
    for role in found["roles"].values():
        assert role["loss"][0] == pytest.approx(role["train_nll"], rel=1e-4)
        assert sum(role["fisher"]) == sum(p.numel() for p in TASKS["digits"].network().parameters())
        assert role["measures"]["rise"] == pytest.approx(
            math.log(max(role["loss"][-1] - role["loss"][0], 1e-12))
        )
    assert found["between"]["distance"] > 0


def shown(auroc, counts):
    """The notes of fashion-mlp with so many seeds of SGD and EMCMC, all with this AUROC."""
    measures = {"nll": 0.4, "ece": 0.02, "accuracy": 0.86, "auroc": auroc}
    results = {
        f"fashion-mlp/{label}-{seed}": {"measures": measures}
        for label, count in counts.items()
        for seed in range(count)
    }
    return study_items.show(STUDIES["fashion-mlp"], results, "laptop").notes


@pytest.mark.parametrize(
    ("counts", "said"), [({"SGD": 3, "EMCMC": 3}, " 3 seeds;"), ({"SGD": 4, "EMCMC": 2}, "2 to 4")]
)
def test_the_note_counts_the_seeds_that_there_are(counts, said):
    assert said in shown(0.9, counts)[0]


def test_ood_data_that_are_found_worse_than_by_chance_are_named():
    assert not [note for note in shown(0.51, {"SGD": 2}) if "AUROC" in note]
    (note,) = [note for note in shown(0.49, {"SGD": 2, "EMCMC": 2}) if "AUROC" in note]
    assert "(2 of 2 rows)" in note


def test_what_the_paper_claims_and_nobody_ran_is_shown():
    made = study_items.show(STUDIES["cifar"], {}, "laptop").verdicts
    papers = [v.short for v in made if v.source == "paper" and v.measure == "nll"]
    rivals = ("SGD", "SAM", "bSAM", "SGLD", "Entropy-SGD", "Entropy-SGLD")
    assert papers == [f"than {rival}" for rival in rivals]
    assert {v.decision for v in made} == {NOT_RUN}
