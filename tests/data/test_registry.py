"""Every loader against tiny files in the official format, hostile ones, and the real files."""

import gzip
import struct

import numpy as np
import pytest
import scipy.io
import torch

from entropy_mcmc.data import Dataset, load, names
from entropy_mcmc.data.images import cifar10_c, read_idx
from entropy_mcmc.errors import ConfigError, DamagedFileError, MissingFileError

IDX_NAMES = ("mnist", "fashion-mnist", "kmnist", "notmnist")


def pixels(*shape, seed=0):
    return np.random.Philox(seed).random_raw(int(np.prod(shape))).astype(np.uint8).reshape(shape)


def write_idx(file, array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.mark.parametrize("name", IDX_NAMES)
@pytest.mark.parametrize(("split", "prefix"), [("train", "train"), ("test", "t10k")])
def test_idx_files_are_read(tmp_path, name, split, prefix):
    images, labels = pixels(7, 28, 28), np.arange(7, dtype=np.uint8)
    write_idx(tmp_path / name / f"{prefix}-images-idx3-ubyte.gz", images)
    write_idx(tmp_path / name / f"{prefix}-labels-idx1-ubyte.gz", labels)
    data = load(name, folder=tmp_path, split=split, checksum=False, limit=5)
    assert torch.equal(data.inputs, torch.from_numpy(images[:5, None]))
    assert data.targets.tolist() == [0, 1, 2, 3, 4]
    assert (data.name, data.classes, data.task) == (name, 10, "classification")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x09\x01" + struct.pack(">I", 3) + b"abc",
        bytes([0, 0, 8, 1]) + struct.pack(">I", 4) + b"abc",
        bytes([0, 0, 8, 1]) + struct.pack(">I", 2) + b"abc",
        bytes([0, 0, 8, 1]) + struct.pack(">I", 0),
        bytes([0, 0, 8, 1]) + struct.pack(">I", 2**32 - 1) + b"abc",
    ],
)
def test_hostile_idx_files_are_refused(tmp_path, content):
    file = tmp_path / "labels.gz"
    file.write_bytes(gzip.compress(content))
    with pytest.raises(DamagedFileError, match=r"labels\.gz is damaged"):
        read_idx(file, 1)


@pytest.mark.parametrize("cut", [5, 20, -4])
def test_a_truncated_gzip_stream_is_refused(tmp_path, cut):
    file = tmp_path / "images.gz"
    write_idx(file, pixels(3, 28, 28))
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(DamagedFileError, match="gzip"):
        read_idx(file, 3)


def test_a_file_that_is_no_gzip_is_refused(tmp_path):
    file = tmp_path / "images.gz"
    file.write_bytes(b"<html>404</html>")
    with pytest.raises(DamagedFileError, match="gzip"):
        read_idx(file, 3)


def test_images_and_labels_must_match(tmp_path):
    write_idx(tmp_path / "mnist/train-images-idx3-ubyte.gz", pixels(3, 28, 28))
    write_idx(tmp_path / "mnist/train-labels-idx1-ubyte.gz", np.zeros(4, np.uint8))
    with pytest.raises(DamagedFileError, match="4 labels"):
        load("mnist", folder=tmp_path, checksum=False)
    write_idx(tmp_path / "mnist/train-labels-idx1-ubyte.gz", np.full(3, 10, np.uint8))
    with pytest.raises(DamagedFileError, match="found 10"):
        load("mnist", folder=tmp_path, checksum=False)


def test_a_wrong_checksum_is_refused_with_the_remedy(tmp_path):
    write_idx(tmp_path / "mnist/train-images-idx3-ubyte.gz", pixels(3, 28, 28))
    with pytest.raises(DamagedFileError, match=r"published is f68b.*checksum=False"):
        load("mnist", folder=tmp_path)


def write_cifar(file, labels, images):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(np.concatenate([labels, images.reshape(len(images), -1)], axis=1).tobytes())


def test_cifar10_is_read_in_the_order_of_its_files(tmp_path):
    images = pixels(10, 3, 32, 32)
    labels = np.arange(10, dtype=np.uint8)[:, None]
    for i in range(5):
        part = slice(2 * i, 2 * i + 2)
        write_cifar(
            tmp_path / f"cifar-10-batches-bin/data_batch_{i + 1}.bin", labels[part], images[part]
        )
    data = load("cifar10", folder=tmp_path, checksum=False)
    assert torch.equal(data.inputs, torch.from_numpy(images))
    assert data.targets.tolist() == list(range(10))
    with pytest.raises(MissingFileError, match=r'test_batch.bin.*download\("cifar10"'):
        load("cifar10", folder=tmp_path, split="test", checksum=False)


def test_cifar100_gives_the_fine_labels(tmp_path):
    images = pixels(3, 3, 32, 32)
    labels = np.array([[1, 99], [2, 0], [3, 50]], dtype=np.uint8)
    write_cifar(tmp_path / "cifar-100-binary/test.bin", labels, images)
    data = load("cifar100", folder=tmp_path, split="test", checksum=False)
    assert torch.equal(data.inputs, torch.from_numpy(images))
    assert data.targets.tolist() == [99, 0, 50]
    assert data.classes == 100


@pytest.mark.parametrize("size", [0, 1, 3072, 3074])
def test_cifar_of_the_wrong_size_is_refused(tmp_path, size):
    file = tmp_path / "cifar-10-batches-bin/test_batch.bin"
    file.parent.mkdir()
    file.write_bytes(bytes(size))
    with pytest.raises(DamagedFileError, match="3073-byte records"):
        load("cifar10", folder=tmp_path, split="test", checksum=False)


def test_svhn_is_turned_and_ten_is_zero(tmp_path):
    (tmp_path / "svhn").mkdir()
    images = pixels(32, 32, 3, 4)
    labels = np.array([[1], [10], [9], [2]], dtype=np.uint8)
    scipy.io.savemat(tmp_path / "svhn/test_32x32.mat", {"X": images, "y": labels})
    data = load("svhn", folder=tmp_path, split="test", checksum=False)
    assert torch.equal(data.inputs, torch.from_numpy(images.transpose(3, 2, 0, 1).copy()))
    assert data.targets.tolist() == [1, 0, 9, 2]


@pytest.mark.parametrize(
    "content",
    [
        {"X": pixels(32, 32, 3, 4)},
        {"X": pixels(32, 32, 4), "y": np.ones((4, 1), np.uint8)},
        {"X": pixels(32, 32, 3, 4).astype(float), "y": np.ones((4, 1), np.uint8)},
        {"X": pixels(32, 32, 3, 4), "y": np.ones((3, 1), np.uint8)},
        {"X": pixels(32, 32, 3, 4), "y": np.full((4, 1), 11, np.uint8)},
    ],
)
def test_wrong_matrices_are_refused(tmp_path, content):
    (tmp_path / "svhn").mkdir()
    scipy.io.savemat(tmp_path / "svhn/train_32x32.mat", content)
    with pytest.raises(DamagedFileError, match=r"train_32x32\.mat is damaged"):
        load("svhn", folder=tmp_path, checksum=False)


@pytest.mark.parametrize("cut", [0, 10, 200, 3000])
def test_a_truncated_matrix_file_is_refused(tmp_path, cut):
    (tmp_path / "svhn").mkdir()
    file = tmp_path / "svhn/train_32x32.mat"
    scipy.io.savemat(file, {"X": pixels(32, 32, 3, 4), "y": np.ones((4, 1), np.uint8)})
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(DamagedFileError):
        load("svhn", folder=tmp_path, checksum=False)


def test_corrupted_arrays_are_cut_by_severity(tmp_path):
    (tmp_path / "CIFAR-10-C").mkdir()
    images = pixels(10, 32, 32, 3)
    np.save(tmp_path / "CIFAR-10-C/fog.npy", images)
    np.save(tmp_path / "CIFAR-10-C/labels.npy", np.tile(np.array([3, 8], np.uint8), 5))
    read, labels = cifar10_c(tmp_path, "fog", 4, True, per_severity=2)
    assert np.array_equal(read, images[6:8].transpose(0, 3, 1, 2))
    assert labels.tolist() == [3, 8]
    with pytest.raises(DamagedFileError, match=r"\(50000, 32, 32, 3\)"):
        load("cifar10-c", folder=tmp_path, split="test", corruption="fog")
    with pytest.raises(ConfigError, match="test"):
        load("cifar10-c", folder=tmp_path)
    with pytest.raises(ConfigError, match="severity=6"):
        load("cifar10-c", folder=tmp_path, split="test", severity=6)


def test_an_array_of_objects_is_refused(tmp_path):
    (tmp_path / "CIFAR-10-C").mkdir()
    np.save(tmp_path / "CIFAR-10-C/fog.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "CIFAR-10-C/labels.npy", np.zeros(10, np.uint8))
    with pytest.raises(DamagedFileError, match="no plain NumPy array"):
        cifar10_c(tmp_path, "fog", 1, False, per_severity=2)


def test_digits_are_embedded_and_split_without_overlap():
    train, test = load("digits"), load("digits", split="test")
    assert (len(train), len(test)) == (1437, 360)
    assert train.inputs.shape[1:] == (1, 8, 8)
    assert sorted(train.inputs.unique().tolist()) == [round(k * 255 / 16) for k in range(17)]
    from sklearn.datasets import load_digits

    counts = torch.bincount(train.targets, minlength=10) + torch.bincount(
        test.targets, minlength=10
    )
    assert counts.tolist() == np.bincount(load_digits().target).tolist()


def test_unknown_names_and_splits_are_named():
    with pytest.raises(ConfigError, match="'cifar'"):
        load("cifar")
    with pytest.raises(ConfigError, match="split='val'"):
        load("digits", split="val")
    assert len(set(names())) == len(names()) == 20


def test_a_missing_folder_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.delenv("EMCMC_DATA", raising=False)
    with pytest.raises(MissingFileError, match="EMCMC_DATA"):
        load("mnist")
    with pytest.raises(MissingFileError, match="nowhere"):
        load("mnist", folder=tmp_path / "nowhere")


def test_the_environment_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EMCMC_DATA", str(tmp_path))
    with pytest.raises(MissingFileError, match=str(tmp_path)):
        load("mnist")


def test_only_keeps_and_renumbers_classes():
    digits = load("digits")
    pair = digits.only((9, 7))
    assert pair.classes == 2
    assert torch.equal(pair.inputs[pair.targets == 0], digits.inputs[digits.targets == 9])
    assert torch.equal(pair.inputs[pair.targets == 1], digits.inputs[digits.targets == 7])
    with pytest.raises(ConfigError, match="0 … 9"):
        digits.only((3, 10))


def test_a_dataset_checks_its_own_shape():
    with pytest.raises(ConfigError, match="3 inputs and 2 targets"):
        Dataset("t", torch.zeros(3, 1), torch.zeros(2), "regression", None, (0,), (1,))


FULL = [
    ("mnist", 60_000, 10_000, [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
    ("fashion-mnist", 60_000, 10_000, [6000] * 10),
    ("cifar10", 50_000, 10_000, [5000] * 10),
]


@pytest.mark.parametrize(("name", "train", "test", "counts"), FULL)
def test_the_real_complete_sets(data_folder, name, train, test, counts):
    data = load(name, folder=data_folder)
    assert len(data) == train
    assert torch.bincount(data.targets).tolist() == counts
    values = data.inputs.transpose(0, 1).flatten(1)
    torch.testing.assert_close(
        [float(v.double().mean() / 255) for v in values], list(data.mean), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(
        [float(v.double().std() / 255) for v in values], list(data.std), atol=1e-4, rtol=0
    )
    assert len(load(name, folder=data_folder, split="test")) == test


def test_the_real_partial_sets(data_folder):
    assert len(load("kmnist", folder=data_folder, split="test")) == 10_000
    assert len(load("notmnist", folder=data_folder, split="test")) == 10_000
    sizes = {"train": 1083, "test": 949}
    for split, size in sizes.items():
        svhn = load("svhn", folder=data_folder, split=split, checksum=False)
        assert len(svhn) == size
        assert svhn.targets.unique().tolist() == list(range(10))
    assert len(load("cifar100", folder=data_folder, checksum=False)) == 1117
    with pytest.raises(DamagedFileError, match="checksum=False"):
        load("svhn", folder=data_folder)
