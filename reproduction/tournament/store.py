"""A resumable store of runs: one JSON file for each trajectory, its outputs beside it.

Files are written under another name and then moved, so that a killed run leaves no half file.
A lock that dies with its process lets several workers share one store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from tournament import trajectory
from tournament.data import Data
from tournament.settings import Settings, as_dict

PAUSE = 2.0  # seconds between two looks for a run that another process is making
WEIGHTS = "weights_"  # begins the names of weights among the arrays of a run


@dataclass(frozen=True)
class Stored:
    """A finished trajectory: its record, the outputs by readout, and its last networks.

    Runs of stores that are older than the weights have none.
    """

    record: dict[str, Any]
    outputs: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]

    @property
    def diverged(self) -> bool:
        """Whether it has no outputs."""
        return bool(self.record["diverged"])


class Store:
    """A folder of runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, settings: Settings) -> bool:
        """Whether the run is finished: its JSON is written last."""
        return self._record(settings).exists()

    def missing(self, wanted: Iterable[Settings]) -> list[Settings]:
        """Those not finished yet, each once, in order."""
        return [settings for settings in dict.fromkeys(wanted) if not self.has(settings)]

    def read(self, settings: Settings) -> Stored:
        """A finished run."""
        record = json.loads(self._record(settings).read_text())
        if record["diverged"]:
            return Stored(record, {}, {})
        with np.load(self._arrays(settings), allow_pickle=False) as arrays:
            names = [name for name in arrays.files if not name.startswith(WEIGHTS)]
            kept = [name for name in arrays.files if name.startswith(WEIGHTS)]
            weights = {name.removeprefix(WEIGHTS): arrays[name] for name in kept}
            return Stored(record, {name: arrays[name] for name in names}, weights)

    def make_all(self, wanted: Iterable[Settings]) -> None:
        """Make what is missing; what other processes are making is waited for, last."""
        wanted = list(wanted)
        while left := self.missing(wanted):
            if not any([self.make(settings) for settings in left]):
                time.sleep(PAUSE)

    def make(self, settings: Settings) -> bool:
        """Run and write, unless it is there or another worker has it; True if it was made."""
        with claimed(self.folder, settings.key) as mine:
            if not mine or self.has(settings):
                return False
            split = trajectory.data_of(settings.task, settings.seed)
            self.write(settings, trajectory.run(settings), split)
            return True

    def write(self, settings: Settings, made: trajectory.Run, split: Data) -> None:
        """Outputs first, record last, each moved into place when complete."""
        if not made.diverged:
            part = self._arrays(settings).with_suffix(".part.npz")
            weights = {WEIGHTS + name: values for name, values in made.weights.items()}
            np.savez(part, **made.outputs, **targets_of(split), **weights)
            part.replace(self._arrays(settings))
        record = {
            "settings": as_dict(settings),
            "cost": made.cost,
            "seconds": made.seconds,
            "train_loss": made.train_loss,
            "diverged": made.diverged,
            "test": [len(split.validation.x), len(split.test.x), *map(len, split.ood)],
        }
        write_json(self._record(settings), record)

    def _record(self, settings: Settings) -> Path:
        return self.folder / f"{settings.key}.json"

    def _arrays(self, settings: Settings) -> Path:
        return self.folder / f"{settings.key}.npz"


@contextmanager
def claimed(folder: Path, name: str) -> Iterator[bool]:
    """Whether this process alone may make what has this name; the claim dies with the process."""
    lock = FileLock(folder / f"{name}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def targets_of(split: Data) -> dict[str, np.ndarray]:
    """Targets of validation and test rows, stored so that scores need no data."""
    parts = {"validation_y": split.validation.y, "test_y": split.test.y}
    return {name: y.cpu().numpy() for name, y in parts.items()}


def write_json(file: Path, record: dict[str, Any]) -> None:
    """Write under another name, then move."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    unfinished.write_text(json.dumps(record, indent=1) + "\n")
    unfinished.replace(file)
