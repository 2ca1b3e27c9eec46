"""The one table of official files: where they come from, their published checksums, their place.

The MD5 of the MNIST family, SVHN and the archives are those that the authors or torchvision
publish. The CIFAR pages publish the archive's MD5 only; those of the unpacked files are the ones
other libraries check, and CIFAR-10's were confirmed on the official files. `None`: not published.
"""

from __future__ import annotations

from dataclasses import dataclass

from entropy_mcmc.errors import ConfigError


@dataclass(frozen=True)
class Remote:
    """One file to fetch; an archive is unpacked in place, its members being `members`."""

    url: str
    path: str
    md5: str | None
    members: tuple[str, ...] = ()


_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_IDX_BASE = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "kmnist": "http://codh.rois.ac.jp/kmnist/dataset/kmnist/",
    "notmnist": "https://github.com/davidflanagan/notMNIST-to-MNIST/raw/master/",
}
_IDX_MD5 = {
    "mnist": (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    "fashion-mnist": (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    "kmnist": (
        "bdb82020997e1d708af4cf47b453dcf7",
        "e144d726b3acfaa3e44228e80efcd344",
        "5c965bf0a639b31b8f53240b1b52f4d7",
        "7320c461ea6c1c855c0b718fb2a4b134",
    ),
    "notmnist": (
        "d916d7283fce4d08db9867c640ec0042",
        "eab59f88903339e01dac19deed3824c0",
        "2c87c839a4ef9b238846600eec8c35b7",
        "7ea9118cbafd0f6e3ee2ad771d782a01",
    ),
}
CORRUPTION_FILES = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
    "speckle_noise",
    "gaussian_blur",
    "spatter",
    "saturate",
)
_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_CIFAR10_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")

# MD5 of files that arrive inside an archive, checked whenever they are read.
_MEMBER_MD5 = {
    "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "cifar-100-binary/train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "cifar-100-binary/test.bin": "4499cfba6c016c1be1438163640a0898",
}

REMOTES: dict[str, tuple[Remote, ...]] = {
    **{
        name: tuple(
            Remote(base + file, f"{name}/{file}", md5)
            for file, md5 in zip(_IDX, _IDX_MD5[name], strict=True)
        )
        for name, base in _IDX_BASE.items()
    },
    "svhn": tuple(
        Remote(f"http://ufldl.stanford.edu/housenumbers/{file}", f"svhn/{file}", md5)
        for file, md5 in (
            ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
        )
    ),
    "cifar10": (
        Remote(
            f"{_CIFAR}cifar-10-binary.tar.gz",
            "cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
            tuple(f"cifar-10-batches-bin/{file}" for file in _CIFAR10_FILES),
        ),
    ),
    "cifar100": (
        Remote(
            f"{_CIFAR}cifar-100-binary.tar.gz",
            "cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
            ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
        ),
    ),
    "cifar10-c": (
        Remote(
            "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
            "CIFAR-10-C.tar",
            "56bf5dcef84df0e2308c6dcbcbbd8499",
            tuple(f"CIFAR-10-C/{name}.npy" for name in (*CORRUPTION_FILES, "labels")),
        ),
    ),
}


def remotes(name: str) -> tuple[Remote, ...]:
    """Return the files of a data set that can be downloaded, or raise with what can."""
    if name not in REMOTES:
        raise ConfigError(
            f"name must be one of {', '.join(REMOTES)} to download, got name={name!r}"
        )
    return REMOTES[name]


def published_md5(path: str) -> str | None:
    """Return the published MD5 of a file by its place in the data folder.

    >>> published_md5("mnist/t10k-labels-idx1-ubyte.gz")
    'ec29112dd5afa0611ce80d1b7f02629c'
    """
    single = {file.path: file.md5 for files in REMOTES.values() for file in files}
    return _MEMBER_MD5.get(path) or single.get(path)


def origin(path: str) -> str:
    """Say how to get the file at `path`: a name to download, or nothing."""
    for name, files in REMOTES.items():
        if any(path == file.path or path in file.members for file in files):
            return f'; entropy_mcmc.data.download("{name}", folder) fetches it'
    return ""
