"""The picture items at smoke scale, and what makes their comparison fair."""

import itertools
import json
import math

import pytest
import torch

from entropy_mcmc.data import Batches, load
from entropy_mcmc.run.methods import METHODS
from entropy_mcmc_reproduction import cifar, pictures, pilot, search, study_items
from entropy_mcmc_reproduction.items import item
from entropy_mcmc_reproduction.jobs import Place, ordered, pending
from entropy_mcmc_reproduction.methods import ENTRIES, config, resolved
from entropy_mcmc_reproduction.running import reproduce
from entropy_mcmc_reproduction.scale import scale
from entropy_mcmc_reproduction.study_items import STUDIES
from entropy_mcmc_reproduction.text import UNDECIDED

pytest.importorskip("ivon", reason="ivon-opt is not installed: pip install -e reproduction")

PICTURES = [
    "pilot",
    "classification",
    "calibration",
    "ood",
    "corruption",
    "spectrum",
    "interpolation",
    "surface",
    "ablation-augmentation",
    "imagenet",
]
WITHOUT_CLAIMS = ("pilot", "surface", "imagenet")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("reproduce")
    return base / "results", base / "work"


def outcome(folders, name):
    reproduce([name], "smoke", results=folders[0], work=folders[1])
    return json.loads((folders[0] / "smoke" / "items" / f"{name}.json").read_text())


@pytest.mark.parametrize("name", PICTURES)
def test_every_item_runs_in_seconds_and_shows_numbers(folders, name):
    found = outcome(folders, name)
    assert found["rows"]
    assert all(len(row) == len(found["columns"]) for row in found["rows"])
    assert not any("nan" in cell or "–" in cell for row in found["rows"] for cell in row)
    assert bool(found["verdicts"]) == (name not in WITHOUT_CLAIMS)
    # One seed has no standard error: nothing can be decided.
    assert {verdict["decision"] for verdict in found["verdicts"]} <= {UNDECIDED}
    for figure in found["figures"]:
        assert (folders[0] / "smoke" / "items" / f"{figure}.png").stat().st_size > 5_000


def test_a_finished_item_computes_nothing_and_shows_the_same(folders):
    first = outcome(folders, "classification")
    files = sorted((folders[0] / "smoke" / "runs").rglob("*.json"))
    before = [file.stat().st_mtime_ns for file in files]
    assert outcome(folders, "classification") == first
    assert [file.stat().st_mtime_ns for file in files] == before


def tuned_place(tmp_path):
    """A laptop place whose search is said to have chosen the middle of every range."""
    place = Place(tmp_path / "laptop", tmp_path / "work")
    place.results.mkdir()
    middle = {m: {"numbers": search.trials(m, 1)[0], "validation_nll": 1.0} for m in ENTRIES}
    search.tuned_file(place).write_text(json.dumps(middle))
    return place


@pytest.mark.parametrize("method", ENTRIES)
def test_every_method_has_the_same_gradient_budget(tmp_path, method):
    chosen = scale("laptop")
    made = [j for j in cifar.jobs("laptop", tuned_place(tmp_path)) if f"/{method}-0" in j.name]
    (job,) = made
    epochs = job.settings["config"]["schedule"]["epochs"] * job.settings["config"]["chains"]
    warm = sum(start.settings["config"]["schedule"]["epochs"] for start in job.after)
    assert epochs + warm == chosen.epochs


def test_methods_that_average_keep_the_same_number_of_samples():
    for method, entry in ENTRIES.items():
        made = config(method, 0, scale("laptop"), search.trials(method, 1)[0])["schedule"]
        if entry.cyclical or entry.averages:
            samples = made["cycles"] * made["samples_per_cycle"] * (2 if entry.paired else 1)
            assert samples == scale("laptop").samples, method


def test_the_search_and_the_pilot_never_see_the_test_split():
    made = search.jobs(scale("laptop"), ENTRIES) + pilot.jobs("laptop", Place(None, None))
    for job in ordered(made):
        options = job.settings["config"]["data"]["options"]
        assert options["validation"] is True
        assert options["test_rows"] == scale("laptop").validation_rows


def test_the_pilot_has_the_gradients_of_the_items_and_one_regime_is_theirs():
    chosen = scale("laptop")
    assert (chosen.data["rows"], chosen.augmented) in pilot.REGIMES
    for made, (rows, _) in zip(pilot.jobs("laptop", Place(None, None)), pilot.REGIMES, strict=True):
        passes = made.settings["config"]["schedule"]["epochs"]
        assert passes * rows == pytest.approx(chosen.epochs * chosen.data["rows"], rel=0.05)


def test_every_method_gets_the_same_number_of_trials():
    for method, entry in ENTRIES.items():
        made = search.trials(method, 6)
        assert len(made) == 6
        for name, (low, high) in entry.space.items():
            values = sorted(trial[name] for trial in made)
            steps = [math.log(b / a) for a, b in itertools.pairwise(values)]
            assert all(low < value < high for value in values)
            assert max(steps) / min(steps) < 1.01


def test_eta_in_natural_units():
    """horizon = ηN/lr and width = ηN/(inner lr · 5), solved for η."""
    made = resolved("emcmc", {"lr": 0.4, "horizon": 30.0}, 3000)
    assert made["eta"] == pytest.approx(30 * 0.4 / 3000)
    made = resolved("entropy-sgld", {"inner_lr": 0.2, "width": 8.0}, 3000)
    assert made["eta"] == pytest.approx(8 * 5 * 0.2 / 3000)
    assert METHODS["entropy-sgld"].gradients == 5


def test_the_paper_scale_is_the_papers(tmp_path):
    place = Place(tmp_path, tmp_path)
    jobs = {job.name: job for job in item("classification").jobs("paper", place)}
    ours = jobs["cifar10/emcmc-2"].settings["config"]
    assert ours["sampler"]["lr"] == 0.5
    assert ours["sampler"]["eta"] == 4e-4
    assert ours["sampler"]["temperature"] == 1e-4
    assert ours["schedule"]["epochs"] == 200
    assert ours["schedule"]["cycles"] * ours["schedule"]["samples_per_cycle"] * 2 == 16
    assert jobs["cifar100/emcmc-0"].settings["config"]["sampler"]["eta"] == 8e-3
    assert len(pending(list(jobs.values()), place)) == len(jobs)
    assert item("imagenet").unavailable("laptop", place)


def test_pictures_are_laid_out_for_convolutions_and_otherwise_unchanged():
    train, test = pictures.images("digits", rows=32, test_rows=8, side=16)
    plain = load("digits", split="train").take(32).inputs
    assert torch.equal(train.inputs, pictures.enlarge(plain, 16))
    batch, _ = next(iter(Batches(train, 16, seed=0)))
    for found in (train.inputs, test.inputs, batch):
        assert found.is_contiguous(memory_format=torch.channels_last)


def test_methods_that_share_a_run_come_after_those_that_make_it():
    names = [job.name.rpartition("/")[2] for job in study_items.jobs(STUDIES["cifar"], "laptop")]
    assert names[:18][-4:] == ["EMA-0", "iterates-0", "guide-0", "iterates-x4-0"]
    assert sorted(names) == sorted(
        f"{variant.label}-{seed}" for variant in STUDIES["cifar"].variants for seed in range(8)
    )
