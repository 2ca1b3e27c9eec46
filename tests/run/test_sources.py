"""Training data from any object: pure functions of the step, also ahead of time and from files."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from entropy_mcmc.data import load
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.evaluate import measure
from entropy_mcmc.run.loaded_run import load_run
from entropy_mcmc.run.training_batches import Prefetched, source_of
from run.workers import TRUSTED, finish_ranks, tiny_data


class Jittered(torch.utils.data.Dataset):
    """Items with random transforms of all three generators."""

    def __len__(self):
        return 12

    def __getitem__(self, row):
        noise = random.random() + np.random.random() + torch.rand(()).item()  # noqa: NPY002
        return torch.tensor([row, noise]), row % 2


def test_random_transforms_depend_on_the_step_only():
    source = source_of(Jittered(), 4, seed=0, augmented=False)
    first = source.micro(5, 0, 1)[0]
    torch.manual_seed(9)
    before = torch.random.get_rng_state()
    source.micro(1, 0, 1)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(source.micro(5, 0, 1)[0], first)
    assert not torch.equal(source.micro(2, 0, 1)[0][:, 1], first[:, 1])


def test_an_epoch_of_items_has_each_row_once():
    loader = torch.utils.data.DataLoader(Jittered(), batch_size=3)
    source = source_of(loader, 64, seed=1, augmented=False)
    assert (source.num_data, source.steps) == (12, 4)
    rows = torch.cat([source.micro(4 + step, 0, 1)[0][:, 0] for step in range(4)])
    assert sorted(rows.tolist()) == list(range(12))


@pytest.mark.parametrize("make", [lambda: load("digits"), Jittered, lambda: tiny_data()[0]])
def test_micro_batches_make_the_batch(make):
    source = source_of(make(), 4, seed=0, augmented=False)
    whole = source.micro(3, 0, 1)[1]
    parts = [source.micro(3, index, 2)[1] for index in range(2)]
    assert torch.equal(torch.cat(parts), whole)


def test_prefetched_batches_are_the_same_in_any_order_of_calls():
    source = source_of(load("digits"), 16, seed=0, augmented=True)
    ahead = Prefetched(source, 2, [2, 3])
    for step, index in [(0, 2), (0, 3), (1, 2), (1, 2), (1, 3), (7, 2), (7, 3)]:
        for one, two in zip(source.micro(step, index, 4), ahead.micro(step, index, 4), strict=True):
            assert torch.equal(one, two)


def test_prefetching_own_data_sets_is_refused():
    with pytest.raises(ConfigError, match=r"data.workers must be 0 for own data sets.*got .*=2"):
        Prefetched(source_of(Jittered(), 4, seed=0, augmented=False), 2, [0])


@pytest.fixture
def image_folder(tmp_path):
    for part, count in (("train", 6), ("val", 2)):
        for label, name in enumerate(("n01", "n02", "n03")):
            place = tmp_path / "imagenet" / part / name
            place.mkdir(parents=True)
            for number in range(count):
                shade = np.full((240, 260, 3), 60 * label + 10 * number, dtype=np.uint8)
                Image.fromarray(shade).save(place / f"{number}.JPEG")
    return tmp_path


def image_config(folder, name, **model):
    config = with_parts(
        RunConfig(run_dir=str(folder / "run")),
        data={"name": "imagenet", "folder": str(folder), "batch_size": 6, "workers": 2},
        model={"name": name, **model},
        schedule={"epochs": 4, "cycles": 1, "burn_in": 0.5, "samples_per_cycle": 1},
        sampler={"momentum": 0.9, "lr": 0.01},
        compute={"accelerator": "cpu", "threads": 1, "precision": "bf16-mixed", "timeout": 120.0},
        output={"progress": False},
    )
    return replace(config, log_every=1)


def run_and_measure(config, folder):
    finish_ranks(config, 2)
    loaded = load_run(folder / "run", trust=TRUSTED)
    return list(measure(loaded, "emcmc", (), ()))


def test_image_folder_with_two_ranks(image_folder):
    config = image_config(image_folder, "run.workers:image_model")
    events = run_and_measure(config, image_folder)
    assert events[0]["samples"] == 1
    assert 0 <= events[0]["accuracy"] <= 1
