"""The store on disk: one safetensors file per sample, one manifest, one writer, any readers.

A sample's file never changes once it has its name: new batch-norm statistics get a new file. So
a reader needs no lock: a file that vanished means that the manifest has moved on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from entropy_mcmc.errors import DamagedFileError, StateError
from entropy_mcmc.posterior import ranks
from entropy_mcmc.posterior.atomic_files import (
    WriterLock,
    atomic,
    is_regular,
    is_temporary,
    leaves,
    own_signature,
    sha256,
    signature,
    sync,
)
from entropy_mcmc.posterior.kept_files import KeptFiles, KeptTensor
from entropy_mcmc.posterior.manifest import (
    NAME,
    SAMPLE_NAME,
    SHARED_NAME,
    Manifest,
    Sample,
    StoredFile,
)
from entropy_mcmc.posterior.manifest_reader import read_manifest
from entropy_mcmc.posterior.model_inputs import home

FOLDER = "samples"
_NEW = ".samples-new-"
T = TypeVar("T")


@dataclass(frozen=True)
class OpenTensor:
    """A tensor in an open safetensors file."""

    name: str
    file: StoredFile
    handle: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, from the header."""
        return tuple(self.handle.get_slice(self.name).get_shape())

    def read(self) -> Tensor:
        """Its values."""
        tensor: Tensor = self.handle.get_tensor(self.name)
        return tensor


@dataclass(frozen=True)
class Signatures:
    """Files as they were, each with its signature."""

    files: tuple[tuple[str, tuple[int, ...]], ...]

    def hold(self) -> bool:
        """Whether the files are still what they were."""
        return all(own_signature(path) == seen for path, seen in self.files)


Tensors = Mapping[str, OpenTensor | KeptTensor]


class Store:
    """Files of a posterior in `path/samples`."""

    def __init__(self, path: Path, *, write: bool) -> None:
        self.folder = path / FOLDER
        self.changing = RLock()  # held by the thread that reads the manifest and replaces it
        self._lock: WriterLock | None = None
        self._verified: dict[str, tuple[int, ...]] = {}
        self._kept = KeptFiles()
        self._seen: tuple[int, ...] = ()
        self._manifest_path = self.folder / NAME
        _refuse_links(self.folder, path)
        self._manifest = self._read()
        if write:
            self._lock = WriterLock(self.folder)
            self._manifest = self._read()
            self._clean()

    @staticmethod
    def create(path: Path, manifest: Manifest) -> Store:
        """Make a new store; its folder appears with its manifest in it, or not at all."""
        folder = path / FOLDER
        if folder.exists():
            raise _occupied(path)
        path.mkdir(parents=True, exist_ok=True)
        new = path / f"{_NEW}{os.getpid()}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        _write_manifest(new, manifest)
        try:
            new.rename(folder)
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            raise _occupied(path) from error
        sync(path)
        return Store(path, write=True)

    @property
    def manifest(self) -> Manifest:
        """The manifest as it is now: a reader looks whether the writer has replaced it."""
        if not self.writable:
            self._reload()
        return self._manifest

    @property
    def settings(self) -> Manifest:
        """The manifest as it was read last: of its settings, which never change."""
        return self._manifest

    @property
    def writable(self) -> bool:
        """Whether this object holds the writer's lock."""
        return self._lock is not None and self._lock.held

    def close(self) -> None:
        """Give the writer's lock back."""
        if self._lock is not None:
            self._lock.release()

    def write(self, name: str, tensors: Mapping[str, Tensor]) -> StoredFile:
        """Write one safetensors file, atomically; no reader sees it before `commit`."""
        self.require_writer()
        path = self.folder / name
        with atomic(path) as temporary:
            save_file(dict(tensors), temporary, metadata={"format": "pt"})
            file = StoredFile(name, temporary.stat().st_size, sha256(temporary))
        self._verified[name] = signature(path)
        return file

    def commit(self, manifest: Manifest) -> None:
        """Replace the manifest, then remove the files that it no longer lists."""
        self.require_writer()
        samples = tuple(sorted(manifest.samples, key=lambda sample: sample.order))
        manifest = replace(manifest, samples=samples, verified=True)
        _write_manifest(self.folder, manifest)
        gone = self._manifest.files() - manifest.files()
        self._manifest = manifest
        for name in gone:
            (self.folder / name).unlink(missing_ok=True)

    @contextmanager
    def read(self, sample: Sample) -> Iterator[Tensors]:
        """Yield the tensors, not yet read, of a sample that the writer cannot drop meanwhile."""
        with ExitStack() as stack:
            yield self._open(sample, stack)

    def open(self, sample: Sample) -> tuple[ExitStack, Tensors]:
        """Check a sample and open its files, which then stay readable whatever the writer does."""
        self.check(sample)
        with ExitStack() as stack:
            tensors = self._open(sample, stack, keep=True)
            return stack.pop_all(), tensors

    def _open(self, sample: Sample, stack: ExitStack, *, keep: bool = False) -> Tensors:
        opened: dict[str, OpenTensor | KeptTensor] = {}
        for file in _files(sample):
            path, verified = self.folder / file.name, self._verified.get(file.name, ())
            kept = self._kept.get((file, verified), partial(_read_all, path)) if keep else None
            if kept is not None:
                opened.update(kept)
                continue
            handle = stack.enter_context(_open_tensors(path))
            names: list[str] = handle.keys()
            opened.update({name: OpenTensor(name, file, handle) for name in names})
        return opened

    def current(self, sample: Sample, action: Callable[[Sample], T]) -> tuple[Sample, T] | None:
        """The sample as it is stored now, and what `action` makes of it.

        An action that finds files missing or changed is repeated if the writer has replaced the
        sample meanwhile; None when the writer has dropped it.
        """
        while True:
            try:
                return sample, action(sample)
            except DamagedFileError:
                self._reload(force=True)
                entry = {s.key: s for s in self._manifest.samples}.get(sample.key)
                if entry == sample:
                    raise
                if entry is None:
                    return None
                sample = entry

    def check(self, sample: Sample, *, again: bool = False) -> None:
        """Raise `DamagedFileError` unless the sample's files are what was written."""
        for file in _files(sample):
            path = self.folder / file.name
            try:
                _refuse_links(path, self.folder)
                now = signature(path)
                if self._verified.get(file.name) == now and not again:
                    continue
                if not is_regular(path):
                    raise _damaged(path, "is no regular file")
                if now[1] != file.bytes:
                    raise _damaged(path, f"has {now[1]} bytes instead of {file.bytes}")
                if sha256(path) != file.sha256:
                    raise _damaged(path, "does not have the SHA-256 of the manifest")
            except DamagedFileError:
                raise
            except OSError as error:
                raise _damaged(path, f"cannot be read ({error.strerror})") from error
            self._verified[file.name] = now

    def signatures(self, samples: Iterable[Sample]) -> Signatures | None:
        """Signatures of the files of samples; None where one is no regular file."""
        names = dict.fromkeys(file.name for sample in samples for file in _files(sample))
        seen = [(path, own_signature(path)) for path in (f"{self.folder}/{n}" for n in names)]
        whole = tuple((path, one) for path, one in seen if one is not None)
        return Signatures(whole) if len(whole) == len(names) else None

    def require_writer(self) -> None:
        """Raise unless this object may write."""
        if not self.writable:
            raise StateError(
                f"{self.folder} is open for reading (or was closed, or this is a forked process); "
                "use Posterior.open(path, model, append=True)"
            )

    def _read(self) -> Manifest:
        path = self.folder / NAME
        _refuse_links(path, self.folder)
        return read_manifest(path)

    def _reload(self, *, force: bool = False) -> None:
        if self.writable:
            return
        try:
            seen = signature(self._manifest_path)
        except FileNotFoundError:
            seen = ()
        if force or seen != self._seen:
            self._manifest, self._seen = self._read(), seen

    def _clean(self) -> None:
        """Remove what a killed writer left; files with other names are not ours."""
        listed = self._manifest.files()
        for path in self.folder.iterdir():
            ours = SAMPLE_NAME.fullmatch(path.name) or SHARED_NAME.fullmatch(path.name)
            left = is_temporary(path.name) or (ours and path.name not in listed)
            if left and not path.is_dir():
                path.unlink(missing_ok=True)
        for path in self.folder.parent.glob(f"{_NEW}*"):
            shutil.rmtree(path, ignore_errors=True)


def _files(sample: Sample) -> tuple[StoredFile, ...]:
    return (sample.file,) if sample.shared is None else (sample.file, sample.shared)


def _refuse_links(path: Path, folder: Path) -> None:
    """Raise if a symbolic link leads out of the folder: what is there was not written here."""
    if leaves(path, folder):
        raise DamagedFileError(
            f"{path} is a symbolic link to {path.resolve()}, out of {folder}; copy what it points "
            "to into its place, or link the whole run folder instead"
        )


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    with atomic(folder / NAME) as temporary:
        temporary.write_text(manifest.to_json(), encoding="utf-8")


def _open_tensors(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError, RuntimeError) as error:  # RuntimeError: the file is gone
        raise _damaged(path, f"is not a readable safetensors file ({error})") from error


def _read_all(path: Path) -> dict[str, Tensor]:
    with _open_tensors(path) as handle:
        return {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118


def _damaged(path: Path, what: str) -> DamagedFileError:
    return DamagedFileError(
        f"{path} {what}; restore it from a copy, or go on with the other samples: "
        "Posterior.open(path, model, skip_damaged=True)"
    )


def _occupied(path: Path) -> StateError:
    return StateError(
        f"{path / FOLDER} exists already; continue it with "
        "Posterior.open(path, model, append=True), or choose another path"
    )


def store_on_ranks(make: Callable[[], Store], path: Path, model: nn.Module) -> Store:
    """The writer's store on rank 0, a reader's on the others."""
    made: list[Store] = []
    ranks.on_main(lambda: made.append(make()), home(model)[0])
    return made[0] if made else Store(path, write=False)
