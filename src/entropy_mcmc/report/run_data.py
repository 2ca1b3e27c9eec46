"""A run folder as one value: what was asked for, what happened, what was found."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import (
    DamagedFileError,
    EntropyMCMCError,
    MissingFileError,
    UntrustedError,
)
from entropy_mcmc.evaluation.sets import ROWS
from entropy_mcmc.posterior.atomic_files import is_regular, leaves
from entropy_mcmc.posterior.manifest import NAME as MANIFEST
from entropy_mcmc.posterior.manifest import Sample
from entropy_mcmc.posterior.manifest_reader import read_manifest
from entropy_mcmc.report.page_predictions import Predicted, predict
from entropy_mcmc.run import run_folder
from entropy_mcmc.run.config_file import NAME as CONFIG
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.loaded_run import BASELINE, load_run
from entropy_mcmc.run.run_folder import Record
from entropy_mcmc.run.runner import Run
from entropy_mcmc.run.trust import NOTHING, Trust

FLATNESS = "flatness"
PICTURE_BYTES = 400_000
JSON_BYTES = 10_000_000
Event = dict[str, Any]


@dataclass(frozen=True)
class Flatness:
    """What `emcmc flatness` wrote: rows of numbers, and pictures by name."""

    rows: list[Event]
    pictures: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class RunData:
    """One run, read.

    Attributes:
        name: Short, and different for every run of a report.
        folder: Where it is.
        record: Its `config.yaml`.
        events: Lines of `metrics.jsonl` that are no evaluations.
        evaluations: The lines of the last `emcmc evaluate`.
        samples: Entries of the manifest.
        diagnostics: Content of `diagnostics.json`, None where there is none.
        flatness: None where it was not measured.
        predicted: None where the model or the data cannot be had; `why` then says why.
        lost: Whether that is because files of the run are missing or damaged.
        baseline: The SGD network beside it, if there is one.
    """

    name: str
    folder: Path
    record: Record
    events: list[Event]
    evaluations: list[Event]
    samples: tuple[Sample, ...]
    diagnostics: Event | None
    flatness: Flatness | None
    predicted: Predicted | None
    why: str = ""
    lost: bool = False
    baseline: RunData | None = None

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.record.config.method

    @property
    def likelihood(self) -> str:
        """What is predicted."""
        return str(self.record.problem.get("likelihood", "classification"))

    def losses(self) -> dict[int, list[Event]]:
        """Lines of the training by chain, in order."""
        by_chain: dict[int, list[Event]] = {}
        for event in self.events:
            if event["kind"] == "train" and math.isfinite(event.get("loss", math.nan)):
                by_chain.setdefault(int(event["chain"]), []).append(event)
        return by_chain

    def evaluation(self, name: str, who: str | None = None) -> Event:
        """The evaluation line of a set, empty where it was not evaluated."""
        who = self.method if who is None else who
        lines = (e for e in self.evaluations if e.get("set") == name and e.get("who") == who)
        return next(lines, {})


def collect(
    folder: str | Path,
    name: str | None = None,
    *,
    flatness: str | Path | None = None,
    limit: int = ROWS,
    device: str = "cpu",
    trust: Trust = NOTHING,
    loaded: Run | None = None,
) -> RunData:
    """Read a run folder; only `config.yaml` must be there, all else is shown if it is.

    `loaded` is the run with its predictions, where it is there already.
    """
    folder = Path(folder)
    record = run_folder.read_existing(folder)
    journal = Journal(folder)
    events = journal.events()
    loaded, predicted, error = _predicted(folder, limit, device, trust, loaded)
    inner = folder / BASELINE
    baseline = None
    if (inner / CONFIG).exists():
        beside = None if loaded is None else loaded.baseline
        options = {"limit": limit, "device": device, "trust": trust}
        baseline = collect(inner, "baseline", loaded=beside, **options)  # type: ignore[arg-type]
    return RunData(
        name=name or folder.resolve().name,
        folder=folder,
        record=record,
        events=[event for event in events if event["kind"] != "evaluate"],
        evaluations=journal.evaluations(),
        samples=_samples(folder),
        diagnostics=_json(folder / "diagnostics.json"),
        flatness=read_flatness(Path(flatness) if flatness else folder / FLATNESS),
        predicted=predicted,
        why="" if error is None else _without_paths(str(error), folder),
        lost=isinstance(error, MissingFileError | DamagedFileError),
        baseline=baseline,
    )


def _predicted(
    folder: Path, limit: int, device: str, trust: Trust, run: Run | None
) -> tuple[Run | None, Predicted | None, EntropyMCMCError | None]:
    """The run, its predictions, and why there are none."""
    try:
        run = run or load_run(folder, device, trust)
        return run, predict(run, limit), None
    except UntrustedError:
        raise
    except EntropyMCMCError as error:
        return run, None, error


def _without_paths(words: str, folder: Path) -> str:
    """A message with the folder's name instead of where it is on this machine."""
    for path in (folder.resolve(), folder.absolute(), folder):
        if len(path.parts) > 1:
            words = words.replace(str(path), path.name)
    return words


def _samples(folder: Path) -> tuple[Sample, ...]:
    path = folder / "samples" / MANIFEST
    return read_manifest(path).samples if path.exists() else ()


def _json(path: Path) -> Event | None:
    """A JSON object, None where there is none; a damaged one is as good as none."""
    try:
        content = json.loads(_content(path, JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def read_flatness(folder: Path) -> Flatness | None:
    """`flatness.json` and the pictures beside it."""
    try:
        rows = json.loads(_content(folder / "flatness.json", JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    names = ("fisher", "density", "interpolation", "between", "surface")
    pictures = {name: _picture(folder / f"{name}.png") for name in names}
    return Flatness(rows, {name: content for name, content in pictures.items() if content})


def _picture(path: Path) -> bytes:
    try:
        return _content(path, PICTURE_BYTES)
    except OSError:
        return b""


def _content(path: Path, largest: int) -> bytes:
    """What a small file of a folder holds; OSError for whatever else lies in its place.

    A FIFO would not end, and a link would put a file of the reader's into the page.
    """
    if leaves(path, path.parent) or not is_regular(path) or path.stat().st_size > largest:
        raise OSError(f"{path} is no regular file of at most {largest} bytes")
    return path.read_bytes()
