"""Files that survive a kill: atomic writes, checksums, and the lock of the one writer."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from entropy_mcmc.errors import DamagedFileError, StateError

TEMPORARY = ".tmp-"
# safetensors writes through a temporary file of its own.
_SAFETENSORS_TEMPORARY = re.compile(r"\.tmp[A-Za-z0-9]{6}")


def is_temporary(name: str) -> bool:
    """Whether a file of this name is half of a write: no longer needed once its writer is dead.

    >>> is_temporary(".tmp-17-a.json"), is_temporary(".tmpA1b2C3"), is_temporary(".tmpl")
    (True, True, False)
    """
    return name.startswith(TEMPORARY) or _SAFETENSORS_TEMPORARY.fullmatch(name) is not None


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
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_regular(path: Path) -> bool:
    """Whether there is a regular file: neither a FIFO nor a device, which may block a reader."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def leaves(path: Path, folder: Path) -> bool:
    """Whether `path`, an entry of `folder`, is a symbolic link to something outside it."""
    return path.is_symlink() and not path.resolve().is_relative_to(folder.resolve())


class WriterLock:
    """An flock on `folder/.lock`: one writer at a time, released when the process dies."""

    def __init__(self, folder: Path) -> None:
        self._handle: int | None = None
        self._handle = _open_lock(folder / ".lock")
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


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedFileError(f"{path} is a symbolic link; remove it") from error
        raise


_HELD: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    # Otherwise a data-loader worker that outlives its killed parent would keep the lock.
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_forget_in_child)
