"""Explicit download: progress bar, resume by HTTP range, checksum, atomic rename."""

from __future__ import annotations

import http.client
import os
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from entropy_mcmc.data.local_files import PathLike, md5
from entropy_mcmc.data.official_files import Remote, remotes
from entropy_mcmc.errors import DamagedFileError, MissingFileError

_CHUNK = 1 << 18
_TIMEOUT = 60.0


def download(name: str, folder: PathLike) -> list[Path]:
    """Fetch the official files of a data set into `folder` and return their paths.

    Files that are there with the right checksum are left alone; an interrupted download goes on
    where it stopped. Nothing else in this library ever opens a connection.
    """
    base = Path(folder)
    base.mkdir(parents=True, exist_ok=True)
    return [path for remote in remotes(name) for path in install(remote, base)]


def install(remote: Remote, base: Path) -> list[Path]:
    """Fetch one file, and unpack it if it is an archive."""
    members = [base / member for member in remote.members]
    if members and all(member.is_file() for member in members):
        return members
    archive = base / remote.path
    if not (archive.is_file() and _matches(archive, remote.md5)):
        fetch(remote, archive)
    if not members:
        return [archive]
    for member in remote.members:
        _unpack(archive, member, base)
    return members


def fetch(remote: Remote, target: Path) -> None:
    """Write the file at `target`, complete and checked, or leave a `.part` to go on from."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        _transfer(remote.url, part)
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        TimeoutError,
        ConnectionError,
    ) as error:
        raise MissingFileError(
            f"{remote.url} could not be fetched ({error}): run the download again to go on from "
            f"{part}, or put the file at {target} by hand"
        ) from error
    if not _matches(part, remote.md5):
        digest = md5(part)
        part.unlink()
        raise DamagedFileError(
            f"{remote.url} gave a file with MD5 {digest}, published is {remote.md5}: it was "
            "deleted; run the download again"
        )
    _sync(part)
    part.replace(target)


def _matches(file: Path, published: str | None) -> bool:
    return published is None or md5(file) == published


def _transfer(url: str, part: Path) -> None:
    from tqdm import tqdm

    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        # 416: the part is already whole (or longer; then the checksum says so).
        if error.code == 416:
            return
        raise
    with response:
        # A server may ignore the range and send the whole file: start over then.
        start = done if response.status == 206 else 0
        left = response.headers.get("Content-Length")
        total = start + int(left) if left else None
        with (
            part.open("ab" if start else "wb") as out,
            tqdm(total=total, initial=start, unit="B", unit_scale=True, desc=part.stem) as bar,
        ):
            while chunk := response.read(_CHUNK):
                out.write(chunk)
                bar.update(len(chunk))
            if total is not None and out.tell() < total:
                raise http.client.IncompleteRead(b"", total - out.tell())


def _unpack(archive: Path, member: str, base: Path) -> None:
    # Only the members of the table are written, each as a plain file at its own place: what
    # else an archive holds, and which paths it claims, does not matter.
    target = base / member
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        with tarfile.open(archive) as tar, part.open("wb") as out:
            source = tar.extractfile(member)
            if source is None:
                raise KeyError(member)
            while chunk := source.read(_CHUNK):
                out.write(chunk)
    except (tarfile.TarError, KeyError, EOFError, OSError) as error:
        part.unlink(missing_ok=True)
        raise DamagedFileError(
            f"{archive} is damaged: {member} cannot be unpacked ({error}); delete the archive and "
            "run the download again"
        ) from error
    _sync(part)
    part.replace(target)


def _sync(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
