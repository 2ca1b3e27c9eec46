"""Readers of the official image formats: IDX, CIFAR binary, SVHN matrices, CIFAR-10-C arrays."""

from __future__ import annotations

import math
import struct
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from entropy_mcmc.data.dataset import Split
from entropy_mcmc.data.local_files import Bytes, damaged, find, labels, read, records
from entropy_mcmc.data.official_files import CORRUPTION_FILES
from entropy_mcmc.errors import check_choice

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]

_PIXELS = 3 * 32 * 32


def read_idx(file: Path, dimensions: int) -> Bytes:
    """Read an IDX file of unsigned bytes (magic 0x0000 08 dd, big-endian sizes)."""
    content = read(file)
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, 8, dimensions]):
        magic = content[:4].hex() or "nothing"
        raise damaged(file, f"it must start with 000008{dimensions:02x}, found {magic}")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    # math.prod does not overflow, whatever sizes a hostile header claims.
    expected = header + math.prod(shape)
    if len(content) != expected or not all(shape):
        raise damaged(file, f"sizes {shape} need {expected} bytes, found {len(content)}")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def idx_family(name: str, folder: Path, split: Split, checksum: bool) -> Arrays:
    """Read MNIST or one of its drop-in relatives."""
    prefix = "train" if split == "train" else "t10k"
    image_file = find(folder, f"{name}/{prefix}-images-idx3-ubyte.gz", checksum=checksum)
    label_file = find(folder, f"{name}/{prefix}-labels-idx1-ubyte.gz", checksum=checksum)
    images, values = read_idx(image_file, 3), read_idx(label_file, 1)
    if images.shape[1:] != (28, 28) or len(images) != len(values):
        raise damaged(
            image_file, f"{images.shape} images and {len(values)} labels are not of one 28 × 28 set"
        )
    return images[:, None], labels(label_file, values, 10)


def cifar10(folder: Path, split: Split, checksum: bool) -> Arrays:
    """Read the binary version: one label byte, then red, green and blue planes."""
    names = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    parts = [
        _cifar(find(folder, f"cifar-10-batches-bin/{name}.bin", checksum=checksum), 1, 10)
        for name in names
    ]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def cifar100(folder: Path, split: Split, checksum: bool) -> Arrays:
    """Read the binary version: coarse label, fine label (used), then the planes."""
    return _cifar(find(folder, f"cifar-100-binary/{split}.bin", checksum=checksum), 2, 100)


def _cifar(file: Path, label_bytes: int, classes: int) -> Arrays:
    rows = records(file, label_bytes + _PIXELS)
    images = rows[:, label_bytes:].reshape(-1, 3, 32, 32)
    return images, labels(file, rows[:, label_bytes - 1], classes)


def svhn(folder: Path, split: Split, checksum: bool) -> Arrays:
    """Read the cropped digits (MATLAB 5): X is (32, 32, 3, N), label 10 means the digit 0."""
    file = find(folder, f"svhn/{split}_32x32.mat", checksum=checksum)
    content = _load_mat(file)
    images, values = content.get("X"), content.get("y")
    if images is None or values is None:
        raise damaged(file, f"it must hold X and y, found {sorted(content)}")
    if images.dtype != np.uint8 or images.shape[:-1] != (32, 32, 3) or not values.size:
        raise damaged(file, f"X must be bytes (32, 32, 3, N), found {images.dtype} {images.shape}")
    if values.dtype.kind not in "iu" or values.size != images.shape[-1]:
        raise damaged(file, f"y must be {images.shape[-1]} integers, found {values.size}")
    digits = labels(file, values.reshape(-1), 11) % 10
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), digits


def digits() -> Arrays:
    """The 8×8 digits of scikit-learn, pixels 0 … 16, from its file: importing it takes seconds."""
    spec = find_spec("sklearn")
    file = Path(spec.origin or "").parent / "datasets/data/digits.csv.gz" if spec else Path()
    if file.is_file():
        rows = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    else:
        from sklearn.datasets import load_digits

        rows = np.column_stack(load_digits(return_X_y=True)).astype(np.uint8)
    return rows[:, :-1].reshape(-1, 1, 8, 8), rows[:, -1].astype(np.int64)


def _load_mat(file: Path) -> dict[str, npt.NDArray[np.uint8]]:
    from scipy.io import loadmat

    try:
        content = loadmat(file, variable_names=("X", "y"))
    # A damaged stream surfaces as almost any exception of the parser.
    except Exception as error:
        raise damaged(file, f"it is no MATLAB 5 file ({type(error).__name__}: {error})") from error
    return {name: value for name, value in content.items() if isinstance(value, np.ndarray)}


def cifar10_c(
    folder: Path, corruption: str, severity: int, checksum: bool, *, per_severity: int = 10_000
) -> Arrays:
    """Read one type of the official arrays; severity s is the s-th fifth of the rows."""
    check_choice("corruption", corruption, CORRUPTION_FILES)
    check_choice("severity", severity, (1, 2, 3, 4, 5))
    file = find(folder, f"CIFAR-10-C/{corruption}.npy", checksum=checksum)
    label_file = find(folder, "CIFAR-10-C/labels.npy", checksum=checksum)
    images, values = load_npy(file), load_npy(label_file)
    rows = 5 * per_severity
    if images.dtype != np.uint8 or images.shape != (rows, 32, 32, 3):
        raise damaged(
            file, f"it must be bytes ({rows}, 32, 32, 3), found {images.dtype} {images.shape}"
        )
    if values.dtype.kind not in "iu" or values.shape != (rows,):
        raise damaged(label_file, f"it must be {rows} integers, found {values.shape}")
    part = slice((severity - 1) * per_severity, severity * per_severity)
    return images[part].transpose(0, 3, 1, 2).copy(), labels(label_file, values[part], 10)


def load_npy(file: Path) -> npt.NDArray[np.uint8]:
    """Map an array file into memory; one that would need pickle is refused."""
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (ValueError, OSError, EOFError) as error:
        raise damaged(file, f"it is no plain NumPy array ({error})") from error
