"""Validation rows: held out of the training data, whatever they are, and never of the test data."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from entropy_mcmc.data import load
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.tuning.options import TuneConfig
from entropy_mcmc.tuning.split import split
from entropy_mcmc.tuning.trial_config import prepare


def numbered(rows=50):
    """Each row holds its own number."""
    return torch.arange(rows).float()[:, None], torch.arange(rows) % 3


def held_rows(validation):
    return sorted(int(row) for x, _ in validation for row in x[:, 0])


@pytest.mark.parametrize("kind", ["arrays", "items", "loader"])
def test_every_row_is_on_one_side(kind):
    x, y = numbered()
    data = {
        "arrays": (x, y),
        "items": TensorDataset(x, y),
        "loader": DataLoader(TensorDataset(x, y), batch_size=7),
    }[kind]
    fit, validation = split(data, 0.3, seed=1, batch_size=4)
    if kind == "arrays":
        kept, held = (sorted(int(v) for v in part.inputs[:, 0]) for part in (fit, validation))
    else:
        items = fit.dataset if kind == "loader" else fit
        kept, held = sorted(int(items[n][0]) for n in range(len(items))), held_rows(validation)
        assert held == held_rows(validation)  # it can be read again
    assert len(held) == 15
    assert sorted(kept + held) == list(range(50))


def test_the_rows_depend_on_the_seed_alone():
    x, y = numbered()
    first, again, other = (split((x, y), 0.3, s, 4)[1].inputs.flatten().tolist() for s in (1, 1, 2))
    assert first == again != other


def test_arrays_and_items_hold_out_the_same_rows():
    x, y = numbered()
    arrays = split((x, y), 0.3, 1, 4)[1]
    items = split(TensorDataset(x, y), 0.3, 1, 4)[1]
    assert sorted(arrays.inputs[:, 0].tolist()) == held_rows(items)


def test_random_transforms_are_the_same_at_each_reading():
    class Noisy(TensorDataset):
        def __getitem__(self, index):
            x, y = super().__getitem__(index)
            return x + torch.rand(1), y

    held = split(Noisy(*numbered()), 0.3, 1, 4)[1]
    first, second = (torch.cat([x for x, _ in held]) for _ in range(2))
    assert torch.equal(first, second)


def test_too_few_rows():
    with pytest.raises(ConfigError, match=r"validation=0\.2 of 20 training rows gives 4 rows"):
        split(numbered(20), 0.2, 0, 4)


def test_what_cannot_be_split():
    with pytest.raises(ConfigError, match='"train": …, "validation": …'):
        split(iter([]), 0.2, 0, 4)


class Untouchable:
    """Test data that nobody may look at."""

    def __getattribute__(self, name):
        if name in ("__class__", "__array__"):
            return object.__getattribute__(self, name)
        raise AssertionError(f"the test data were asked for {name}")

    def __len__(self):
        raise AssertionError("the test data were counted")

    def __iter__(self):
        raise AssertionError("the test data were read")


def small_config():
    return with_parts(RunConfig(method="sgd"), schedule={"epochs": 4}, data={"batch_size": 8})


def test_trials_get_no_test_rows():
    x, y = numbered()
    data = {"train": (x, y), "test": Untouchable()}
    network = torch.nn.Linear(1, 3)
    tuning = prepare(small_config(), TuneConfig(), network, data)
    kept = tuning.given.fit.inputs.flatten().tolist()
    held = tuning.given.validation.inputs.flatten().tolist()
    assert sorted(kept + held) == list(range(50))
    assert set(tuning.given.data) == {"train", "test"}
    assert tuning.given.data["test"] is tuning.given.validation


def test_digits_are_split_within_their_training_rows():
    train, test = load("digits"), load("digits", split="test")
    tuning = prepare(small_config(), TuneConfig())
    parts = (tuning.given.fit, tuning.given.validation)
    assert [len(part) for part in parts] == [1150, 287]
    rows = {part.inputs[n].numpy().tobytes() for part in parts for n in range(len(part))}
    assert rows == {train.inputs[n].numpy().tobytes() for n in range(len(train))}
    assert not any(image.numpy().tobytes() in rows for image in test.inputs)


def test_own_validation_rows_are_taken_as_they_are():
    x, y = numbered()
    own = (x[:20] + 0.5, y[:20])
    tuning = prepare(
        small_config(), TuneConfig(), torch.nn.Linear(1, 3), {"train": (x, y), "validation": own}
    )
    assert len(tuning.given.fit) == 50
    assert torch.equal(tuning.given.validation.inputs, own[0])
