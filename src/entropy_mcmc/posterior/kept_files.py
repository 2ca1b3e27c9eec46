"""Small files of a store, kept in memory after they were read: opening one costs 0.5 ms.

A network of a few thousand weights computes faster than its file is opened. What is kept of one
store is bounded, and a file that changes on disk is read again: the key holds its signature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from torch import Tensor

from entropy_mcmc.posterior.manifest import StoredFile

LARGEST = 2**20  # bytes of a file that is kept
MOST = 32 * 2**20  # bytes of all that are kept

Key = tuple[StoredFile, tuple[int, ...]]


@dataclass(frozen=True)
class KeptTensor:
    """A tensor of a kept file; not to be written to."""

    name: str
    file: StoredFile
    value: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.value.shape)

    def read(self) -> Tensor:
        """Its values."""
        return self.value


class KeptFiles:
    """Tensors of small files by file and signature; the oldest goes when there are too many."""

    def __init__(self) -> None:
        self._files: dict[Key, dict[str, KeptTensor]] = {}
        self._lock = Lock()

    def get(self, key: Key, read: Callable[[], dict[str, Tensor]]) -> dict[str, KeptTensor] | None:
        """The tensors of a file; None for a large one, which is not kept."""
        file = key[0]
        if file.bytes > LARGEST:
            return None
        kept = self._files.get(key)
        if kept is None:
            kept = {name: KeptTensor(name, file, value) for name, value in read().items()}
            with self._lock:
                self._files[key] = kept
                while sum(known.bytes for known, _ in self._files) > MOST:
                    del self._files[next(iter(self._files))]
        return kept
