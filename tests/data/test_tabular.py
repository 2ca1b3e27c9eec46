"""UCI tables with standard splits, and a user's .npz."""

import numpy as np
import pytest
import torch

from entropy_mcmc.data import load
from entropy_mcmc.data.tabular import UCI
from entropy_mcmc.errors import ConfigError, DamagedFileError, MissingFileError


def write_uci(folder, rows=6):
    (folder / "uci").mkdir()
    values = np.arange(rows * 3, dtype=float).reshape(rows, 3) ** 1.5
    values[:, 1] = 0.1  # constant, and not exact in binary
    lines = ["x0,x1,y", *(",".join(repr(float(v)) for v in row) for row in values)]
    (folder / "uci/yacht.csv").write_text("\n".join(lines) + "\n")
    test = np.zeros((2, rows), dtype=bool)
    test[0, [1, 4]] = test[1, [0, 5]] = True
    np.savez(folder / "uci/yacht-splits.npz", test=test)
    return values.astype(np.float32), test


@pytest.mark.parametrize("index", [0, 1])
def test_standard_splits_and_training_statistics(tmp_path, index):
    values, test = write_uci(tmp_path)
    train = load("uci-yacht", folder=tmp_path, index=index)
    held = load("uci-yacht", folder=tmp_path, split="test", index=index)
    assert np.array_equal(train.inputs, values[~test[index], :2])
    assert np.array_equal(held.targets, values[test[index], 2])
    assert (train.task, train.classes) == ("regression", None)
    assert held.mean == train.mean
    assert held.target_std == train.target_std == pytest.approx(values[~test[index], 2].std())
    normal = train.normalise(train.inputs)
    torch.testing.assert_close(normal.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        normal.std(0, correction=0), torch.tensor([1.0, 0.0]), atol=1e-6, rtol=0
    )


def test_damaged_tables_are_refused(tmp_path):
    write_uci(tmp_path)
    with pytest.raises(ConfigError, match="0 … 1"):
        load("uci-yacht", folder=tmp_path, index=2)
    with pytest.raises(MissingFileError, match=r"concrete\.csv"):
        load("uci-concrete", folder=tmp_path)
    file = tmp_path / "uci/yacht.csv"
    text = file.read_text()
    for bad in (text + "1,2\n", text + "1,2,nan\n", text + "a,b,c\n", text + "1,2,3\n"):
        file.write_text(bad)
        with pytest.raises(DamagedFileError):
            load("uci-yacht", folder=tmp_path)


def test_every_real_table_splits_as_published(data_folder):
    for table in UCI:
        splits = 5 if table == "protein" else 20
        train = load(f"uci-{table}", folder=data_folder, index=splits - 1)
        test = load(f"uci-{table}", folder=data_folder, split="test", index=splits - 1)
        rows = len(train) + len(test)
        assert abs(len(test) - rows / 10) <= 1
        normal = train.normalise(train.inputs)
        assert normal.isfinite().all()
        assert normal.mean(0).abs().max() < 1e-3
        with pytest.raises(ConfigError):
            load(f"uci-{table}", folder=data_folder, index=splits)


def user_file(folder, **changes):
    arrays = {
        "x_train": np.arange(24, dtype=np.uint8).reshape(4, 2, 3),
        "y_train": np.array([0, 1, 2, 1]),
        "x_test": np.zeros((2, 2, 3), np.uint8),
        "y_test": np.array([2, 0]),
    }
    arrays.update(changes)
    np.savez(folder / "mine.npz", **{k: v for k, v in arrays.items() if v is not None})
    return folder / "mine.npz"


def test_a_users_images(tmp_path):
    file = user_file(tmp_path)
    train, test = load("npz", folder=file), load("npz", folder=file, split="test", limit=1)
    assert train.inputs.shape == (4, 1, 2, 3)
    assert (train.classes, train.task, test.targets.tolist()) == (3, "classification", [2])
    assert train.mean == pytest.approx((np.arange(24).mean() / 255,))
    assert train.std == pytest.approx((np.arange(24).std() / 255,))
    assert (train.target_mean, train.target_std) == (0.0, 1.0)


def test_a_users_regression_table(tmp_path):
    x = np.linspace(0, 1, 8).reshape(4, 2)
    file = user_file(
        tmp_path, x_train=x, y_train=x[:, 0] * 3, x_test=x[:2], y_test=np.array([1.0, 2.0])
    )
    data = load("npz", folder=file)
    assert (data.task, data.inputs.dtype, data.targets.dtype) == (
        "regression",
        torch.float32,
        torch.float32,
    )
    assert data.target_mean == pytest.approx((x[:, 0] * 3).mean())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_test": None}, r"has no array y_test .*it must have x_train, y_train, x_test, y_test"),
        ({"y_test": np.array([0, 3])}, r"must be in 0 … 2, as in y_train, got 0 … 3"),
        ({"y_test": np.array([0])}, r"as many rows in x_test as in y_test, got 2 and 1"),
        ({"y_test": np.array([[0], [1]])}, r"one class for each row"),
        ({"x_test": np.zeros((2, 3, 2), np.uint8)}, r"rows of one shape, got \(2, 3\) in x_train"),
        ({"y_train": np.array([0, -1, 2, 1])}, r"must be in 0 … 2, as in y_train, got -1"),
        ({"x_train": np.array(["a", "b", "c", "d"])}, r"x_train of .* must hold numbers"),
        ({"x_train": np.full((4, 2, 3), np.nan)}, r"x_train of .* must be finite"),
        ({"x_train": None, "X_train": np.zeros(3)}, r"did you mean 'X_train'\?"),
    ],
)
def test_a_wrong_user_file_is_not_called_damaged(tmp_path, changes, words):
    file = user_file(tmp_path, **changes)
    with pytest.raises(ConfigError, match=words) as caught:
        load("npz", folder=file, split="train" if "y_train" in changes else "test")
    assert "mine.npz" in str(caught.value)
    assert "official" not in str(caught.value)


def test_a_broken_user_file_is_to_be_written_again(tmp_path):
    (tmp_path / "mine.npz").write_bytes(b"PK no archive")
    with pytest.raises(DamagedFileError, match=r"mine\.npz is damaged.*write it again"):
        load("npz", folder=tmp_path / "mine.npz")


def test_pickles_and_rubbish_are_refused(tmp_path):
    file = tmp_path / "mine.npz"
    np.savez(file, x_train=np.array([{}], dtype=object))
    with pytest.raises(DamagedFileError):
        load("npz", folder=file)
    for content in (b"", b"PK\x03\x04 rubbish"):
        file.write_bytes(content)
        with pytest.raises(DamagedFileError):
            load("npz", folder=file)
    with pytest.raises(MissingFileError):
        load("npz", folder=tmp_path / "other.npz")
    with pytest.raises(ConfigError, match="npz"):
        load("npz")
