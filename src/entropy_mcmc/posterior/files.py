"""Files that survive a kill: atomic writes, checksums, and the lock of the one writer."""

from __future__ import annotations

import fcntl
import hashlib
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from entropy_mcmc.errors import StateError

TEMPORARY = ".tmp-"


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file, read as a stream."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; it becomes `path` whole, or not at all."""
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        yield temporary
        # safetensors writes 0600 whatever the umask; readers may be other users.
        temporary.chmod(path.parent.stat().st_mode & 0o666)
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def signature(path: Path) -> tuple[int, ...]:
    """What changes when a file is replaced or written to."""
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


class WriterLock:
    """An flock on `folder/.lock`: one writer at a time, released when the process dies."""

    def __init__(self, folder: Path) -> None:
        self._handle: int | None = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise StateError(
                f"{folder} has a writer already; close it or wait for its process to end, "
                "or open without append to read"
            ) from error
        _HELD.add(self)

    @property
    def held(self) -> bool:
        """False after `release`, and in a forked child."""
        return self._handle is not None

    def release(self) -> None:
        """Close the handle; the lock goes with its last handle."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self.release()


_HELD: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    # Otherwise a data-loader worker that outlives its killed parent would keep the lock.
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_forget_in_child)
