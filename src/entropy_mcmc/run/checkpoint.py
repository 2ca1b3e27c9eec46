"""Checkpoints that survive a kill at any instant: safetensors and JSON, two generations.

A checkpoint is `STEP.safetensors` and then `STEP.json`, which holds the checksum of the former:
it exists from the moment its JSON does. The one before is removed only after that.
"""

from __future__ import annotations

import errno
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from entropy_mcmc.errors import DamagedFileError, EntropyMCMCError, StateError
from entropy_mcmc.posterior.files import TEMPORARY, atomic, sha256

GENERATIONS = 2


@dataclass(frozen=True)
class Checkpoint:
    """The state of a chain after `step` steps."""

    step: int
    tensors: Mapping[str, Tensor]
    numbers: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; whatever happens, the newest whole one stays."""
    stem = f"{checkpoint.step:012d}"
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with atomic(folder / f"{stem}.safetensors") as temporary:
            save_file(dict(checkpoint.tensors), temporary)
            content = {"bytes": temporary.stat().st_size, "sha256": sha256(temporary)}
        text = json.dumps({"step": checkpoint.step, **content, "numbers": checkpoint.numbers})
        with atomic(folder / f"{stem}.json") as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
    _prune(folder)


def load(folder: Path) -> Checkpoint | None:
    """The newest whole checkpoint; None if none was ever written."""
    stems = sorted((path.stem for path in folder.glob("*.json")), reverse=True)
    damage: list[str] = []
    for stem in (s for s in stems if s.isdigit()):
        try:
            found = _read(folder, stem)
        except DamagedFileError as error:
            damage.append(str(error))
            continue
        if damage:
            warnings.warn(f"{damage[0]}; going on from step {found.step}", stacklevel=2)
        return found
    if damage:
        raise DamagedFileError(
            f"{damage[0]}; no whole checkpoint is left: restore {folder} from a copy, or start "
            "in a new run folder"
        )
    return None


def newest_step(folder: Path) -> int:
    """Step of the newest checkpoint by name, 0 if there is none."""
    return max((int(p.stem) for p in folder.glob("*.json") if p.stem.isdigit()), default=0)


def _read(folder: Path, stem: str) -> Checkpoint:
    path = folder / f"{stem}.safetensors"
    try:
        meta = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
        if path.stat().st_size != meta["bytes"] or sha256(path) != meta["sha256"]:
            raise DamagedFileError(f"{path} does not have the checksum it was written with")
        return Checkpoint(int(meta["step"]), load_file(path), meta["numbers"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        if isinstance(error, DamagedFileError):
            raise
        raise DamagedFileError(f"{path} cannot be read ({error})") from error


def _prune(folder: Path) -> None:
    """Remove older generations and what a killed writer left; the JSON goes first."""
    whole = sorted(path.stem for path in folder.glob("*.json") if path.stem.isdigit())
    keep = set(whole[-GENERATIONS:])
    for path in sorted(folder.iterdir()):
        ours = path.suffix in (".json", ".safetensors") and path.stem.isdigit()
        if path.name.startswith(TEMPORARY) or (ours and path.stem not in keep):
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
        raise StateError(
            f"{folder}: {what} ({error}); the last checkpoint is intact: {remedy} and run the "
            "same command again to go on"
        ) from error
