"""Checkpoints that survive a kill at any instant: safetensors and JSON, two generations.

A checkpoint is `STEP.safetensors` and then `STEP.json`, which holds the checksum of the former and
its own: it exists from the moment its JSON does. The one before is removed only after that.
It also records which samples the chain had stored, so that a store that was lost is noticed.
"""

from __future__ import annotations

import errno
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from entropy_mcmc.errors import DamagedFileError, EntropyMCMCError, StateError
from entropy_mcmc.posterior.atomic_files import atomic, is_regular, is_temporary, sha256
from entropy_mcmc.posterior.manifest import NAME as MANIFEST
from entropy_mcmc.posterior.manifest import checksum
from entropy_mcmc.posterior.manifest_reader import read_manifest

GENERATIONS = 2
LARGEST = 64 * 2**20  # bytes of the JSON; it has a few thousand


@dataclass(frozen=True)
class Stored:
    """The samples of a chain that were in the store: how many, and which."""

    count: int
    digest: str


@dataclass(frozen=True)
class Checkpoint:
    """The state of a chain after `step` steps.

    Attributes:
        step: Steps made.
        tensors: Parameters, buffers and the sampler's state, by name.
        numbers: Everything that is no tensor.
        stored: The samples that must be in the store; None where it was not recorded.
        verified: Whether the JSON had a checksum; those of older versions have none.
    """

    step: int
    tensors: Mapping[str, Tensor]
    numbers: Mapping[str, Any]
    stored: Stored | None = None
    verified: bool = True


def stored(run: Path, chain: int) -> Stored:
    """The samples of a chain that the run's store holds now."""
    manifest = read_manifest(run / "samples" / MANIFEST)
    count = len(manifest.of_chain(chain))
    return Stored(count, manifest.digest(count, chain))


def check_stored(run: Path, chain: int, wanted: Stored | None) -> None:
    """Raise if samples that the checkpoint counts are not in the store any more.

    More are no harm: a kill between the manifest and the checkpoint leaves them.
    """
    remedy = f"restore {run / 'samples'} from a copy, or start in a new run folder"
    if not (run / "samples").exists():
        raise DamagedFileError(
            f"{run / 'samples'} is not there, but {run / 'checkpoint'} is: the samples are lost; "
            f"{remedy}"
        )
    if wanted is None:
        return
    manifest = read_manifest(run / "samples" / MANIFEST)
    there = len(manifest.of_chain(chain))
    if there < wanted.count or manifest.digest(wanted.count, chain) != wanted.digest:
        raise DamagedFileError(
            f"{run / 'samples'} holds {there} samples of chain {chain} and its checkpoint counts "
            f"{wanted.count}: some are lost or not those that were stored; {remedy}"
        )


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; whatever happens, the newest whole one stays."""
    stem = f"{checkpoint.step:012d}"
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic(folder / f"{stem}.safetensors") as temporary:
            save_file(dict(checkpoint.tensors), temporary)
            content = {"bytes": temporary.stat().st_size, "sha256": sha256(temporary)}
        with atomic(folder / f"{stem}.json") as temporary:
            temporary.write_text(_json(checkpoint, content), encoding="utf-8")
    _prune(folder)


def _json(checkpoint: Checkpoint, tensors: Mapping[str, Any]) -> str:
    known = None if checkpoint.stored is None else asdict(checkpoint.stored)
    content = {"step": checkpoint.step, **tensors, "samples": known, "numbers": checkpoint.numbers}
    return json.dumps({**content, "checksum": checksum(content)}) + "\n"


def load(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint; None if none was ever written."""
    stems = sorted((path.stem for path in folder.glob("*.json") if _is_step(path)), reverse=True)
    damage: list[str] = []
    for stem in stems:
        try:
            checkpoint = _read(folder, stem)
        except DamagedFileError as error:
            damage.append(str(error))
            continue
        if damage:
            warnings.warn(f"{damage[0]}; going on from step {checkpoint.step}", stacklevel=2)
        return checkpoint
    if damage:
        raise DamagedFileError(
            f"{damage[0]}; no whole checkpoint is left: restore {folder} from a copy, or start "
            "in a new run folder"
        )
    return None


def load_common(folders: Sequence[Path]) -> list[Checkpoint] | None:
    """The newest whole checkpoints of one step of several chains; None if there are none.

    Later ones, which not all chains have because a kill came between, are removed.
    """
    common = set.intersection(*({p.stem for p in f.glob("*.json") if _is_step(p)} for f in folders))
    damage: list[str] = []
    for stem in sorted(common, reverse=True):
        try:
            checkpoints = [_read(folder, stem) for folder in folders]
        except DamagedFileError as error:
            damage.append(str(error))
            continue
        if damage:
            warnings.warn(f"{damage[0]}; going on from step {int(stem)}", stacklevel=2)
        _forget_after(folders, stem)
        return checkpoints
    if damage:
        raise DamagedFileError(
            f"{damage[0]}; no checkpoint that all chains have is whole: restore "
            f"{folders[0].parent} from a copy, or start in a new run folder"
        )
    _forget_after(folders, "")
    return None


def _forget_after(folders: Sequence[Path], stem: str) -> None:
    """Remove later checkpoints: they would push out the one that all chains have."""
    for folder in folders:
        later = [p for p in folder.glob("*") if _is_step(p) and p.stem > stem]
        for path in sorted(later, key=lambda p: p.suffix != ".json"):
            path.unlink(missing_ok=True)


def newest_step(folder: Path) -> int:
    """Step of the newest checkpoint by name, 0 if there is none."""
    return max((int(path.stem) for path in folder.glob("*.json") if _is_step(path)), default=0)


def _is_step(path: Path) -> bool:
    return len(path.stem) == 12 and path.stem.isascii() and path.stem.isdigit()


def _read(folder: Path, stem: str) -> Checkpoint:
    path = folder / f"{stem}.safetensors"
    meta = read_meta(folder / f"{stem}.json")
    try:
        known, verified = meta.get("samples"), "checksum" in meta
        if not is_regular(path) or path.stat().st_size != meta["bytes"]:
            raise DamagedFileError(f"{path} does not have the size it was written with")
        if sha256(path) != meta["sha256"]:
            raise DamagedFileError(f"{path} does not have the checksum it was written with")
        samples = None if known is None else Stored(int(known["count"]), str(known["digest"]))
        return Checkpoint(int(stem), load_file(path), meta["numbers"], samples, verified)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        if isinstance(error, DamagedFileError):
            raise
        raise DamagedFileError(f"{path} cannot be read ({error!r:.200})") from error


def read_meta(path: Path) -> dict[str, Any]:
    """The JSON of a checkpoint, its checksum compared if it has one."""
    try:
        if not is_regular(path) or path.stat().st_size > LARGEST:
            raise ValueError("no regular file of a sensible size")
        meta = json.loads(path.read_bytes())
        if not isinstance(meta, dict) or not isinstance(meta.get("numbers"), dict):
            raise ValueError("no table with `numbers`")
        if meta.get("step") != int(path.stem):
            raise ValueError(f"its step is {meta.get('step')!r:.40}")
        if "checksum" in meta and meta["checksum"] != checksum(meta):
            raise ValueError("it does not have the checksum it was written with")
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path} is damaged ({error!s:.200})") from error
    return meta


def _prune(folder: Path) -> None:
    """Remove older generations and what a killed writer left; the JSON goes first."""
    whole = sorted(path.stem for path in folder.glob("*.json") if _is_step(path))
    keep = set(whole[-GENERATIONS:])
    for path in sorted(folder.iterdir()):
        ours = path.suffix in (".json", ".safetensors") and _is_step(path)
        if is_temporary(path.name) or (ours and path.stem not in keep):
            path.unlink(missing_ok=True)


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn an error of the disk into one message; what was written before stays valid."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        if isinstance(error, EntropyMCMCError):
            raise
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        full = full or "No space left" in str(error) or "too large" in str(error)
        what = "the disk is full" if full else "the folder cannot be written"
        remedy = "free some space" if full else "check the path and its permissions"
        kept = "the last checkpoint is intact: " if has_checkpoint(folder) else ""
        go_on = " to go on" if kept else ""
        raise StateError(
            f"{folder}: {what} ({error}); {kept}{remedy} and run the same command again{go_on}"
        ) from error


def has_checkpoint(folder: Path) -> bool:
    """Whether a run folder, or the folder of one of its chains, holds a checkpoint."""
    try:
        written = [*folder.glob("*.json"), *folder.glob("checkpoint/chain-*/*.json")]
    except OSError:
        return False
    return any(map(_is_step, written))
