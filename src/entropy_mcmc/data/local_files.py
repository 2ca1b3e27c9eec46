"""Finding and checking files: every failure names the file and what to put where."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from entropy_mcmc.data.official_files import origin, published_md5
from entropy_mcmc.errors import DamagedFileError, MissingFileError

Bytes = npt.NDArray[np.uint8]
PathLike = str | os.PathLike[str]


def root(folder: PathLike | None) -> Path:
    """Return the data folder: the argument, else the environment variable EMCMC_DATA."""
    given = folder if folder is not None else os.environ.get("EMCMC_DATA")
    if not given:
        raise MissingFileError(
            "no data folder: pass folder=..., or set EMCMC_DATA to the folder that holds the data "
            'sets ("digits" needs none)'
        )
    path = Path(given)
    if not path.is_dir():
        raise MissingFileError(f"the data folder {path} is not there: create it or name another")
    return path


def find(folder: Path, path: str, *, checksum: bool) -> Path:
    """Return the file at `folder/path` after checking its published MD5, if it has one."""
    file = folder / path
    if not file.is_file():
        raise MissingFileError(
            f"{file} is not there: put the official file at that place" + origin(path)
        )
    if checksum:
        _check_md5(file, published_md5(path), origin(path))
    return file


def md5(file: Path) -> str:
    """Return the MD5 of a file as hexadecimal digits (against accidents, not attackers)."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def read(file: Path) -> bytes:
    """Return the content, unpacked if the name ends in .gz."""
    try:
        if file.suffix == ".gz":
            with gzip.open(file, "rb") as stream:
                return stream.read()
        return file.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(file, f"its gzip stream is broken ({error})") from error


def records(file: Path, size: int) -> Bytes:
    """Return the content as rows of `size` bytes."""
    content = np.frombuffer(read(file), dtype=np.uint8)
    if not len(content) or len(content) % size:
        raise damaged(file, f"{len(content)} bytes are not a whole number of {size}-byte records")
    return content.reshape(-1, size)


def labels(file: Path, values: npt.NDArray[np.integer], classes: int) -> npt.NDArray[np.int64]:
    """Return class labels as int64 after checking their range."""
    if values.min() < 0 or values.max() >= classes:
        raise damaged(
            file, f"labels must be in 0 … {classes - 1}, found {values.min()} … {values.max()}"
        )
    return values.astype(np.int64)


def damaged(
    file: Path, why: str, remedy: str = "replace it by the official file"
) -> DamagedFileError:
    """Return the error for a file that is not what its name promises."""
    return DamagedFileError(f"{file} is damaged: {why}; {remedy}")


def _check_md5(file: Path, published: str | None, source: str) -> None:
    if published is None:
        return
    digest = md5(file)
    if digest != published:
        raise DamagedFileError(
            f"{file} is not the published file: its MD5 is {digest}, published is {published}; "
            f"replace it{source}, or pass checksum=False to read a partial file as it is"
        )
