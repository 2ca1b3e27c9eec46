"""Files that survive a kill: atomic writes, checksums, and the lock of the one writer."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

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
    return _signature(path.stat())


def own_signature(path: str) -> tuple[int, ...] | None:
    """`signature` of a regular file; None for a link, whose target could change unseen."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return _signature(status) if stat.S_ISREG(status.st_mode) else None


def _signature(status: os.stat_result) -> tuple[int, ...]:
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
    """A lock on a file in a folder: one holder at a time, released when its process dies.

    A forked child does not hold it: a data-loader worker that outlives its killed parent would
    otherwise keep it.
    """

    def __init__(self, folder: Path, name: str = ".lock", *, wait: bool = False) -> None:
        """Take the lock; if another process holds it, raise, or wait for it."""
        from filelock import FileLock, Timeout  # only writers need it

        self._lock = FileLock(folder / name, thread_local=False)
        try:
            self._lock.acquire(timeout=-1 if wait else 0, poll_interval=0.01)
        except Timeout as error:
            raise StateError(
                f"{folder} has a writer already; close it or wait for its process to end, "
                "or open without append to read"
            ) from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise DamagedFileError(f"{folder / name} is a symbolic link; remove it") from error
            raise

    @property
    def held(self) -> bool:
        """False after `release`, and in a forked child."""
        return self._lock.is_locked

    def release(self) -> None:
        """Give the lock back; doing it twice is no harm."""
        if self.held:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
