"""A job is one computation whose result is one JSON file: made once, shared, never repeated."""

from __future__ import annotations

import importlib
import json
import math
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import ConfigError, NonFiniteError, StateError
from entropy_mcmc.posterior.atomic_files import WriterLock, atomic

VERSIONED = ("torch", "numpy", "scipy", "scikit-learn", "entropy-mcmc")


@dataclass(frozen=True)
class Job:
    """One computation.

    Attributes:
        name: Unique within a scale, such as "cifar/emcmc-0"; also the name of its files.
        task: `module:function` within this package, called as task(settings, place) → JSON.
        settings: All settings of the job, plain JSON; nothing else may change its result.
        after: Jobs whose results or weights it needs.
    """

    name: str
    task: str
    settings: dict[str, Any] = field(hash=False)
    after: tuple[Job, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where results (kept in git) and work (weights, checkpoints) of one scale are."""

    results: Path
    work: Path
    data: str | None = None

    def result_file(self, name: str) -> Path:
        """The JSON of a job."""
        return self.results / "runs" / f"{name}.json"

    def folder(self, name: str) -> Path:
        """The run folder of a job."""
        return self.work / name


def read(place: Place, job: Job) -> dict[str, Any] | None:
    """The result of a finished job, see also `diverged`; None if it is not finished."""
    path = place.result_file(job.name)
    if not path.exists():
        return None
    found, result = _stored(path)
    if found != plain(job.settings):
        raise ConfigError(
            f"{path} was computed with other settings ({_difference(found, plain(job.settings))}); "
            "use another --results folder, or delete it to compute it again"
        )
    return result


def result_of(place: Place, name: str) -> dict[str, Any]:
    """The result of a job that is known to be finished, as for those that a job comes after."""
    return _stored(place.result_file(name))[1]


def _stored(path: Path) -> tuple[Any, dict[str, Any]]:
    """Settings and result."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return stored["settings"], dict(_loose(stored["result"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is damaged ({error}); delete it to compute it again") from error


def diverged(result: Mapping[str, Any]) -> str | None:
    """Why a result does not count: the chain, or a score of what it left, is not finite.

    >>> diverged({"measures": {"nll": math.inf, "ece": 0.5}})
    'nll is not finite'
    """
    if "diverged" in result:
        return str(result["diverged"])
    scores = result.get("measures", {}).items()
    infinite = [k for k, v in scores if isinstance(v, float) and not math.isfinite(v)]
    return f"{infinite[0]} is not finite" if infinite else None


def strict(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become text."""
    if isinstance(value, Mapping):
        return {key: strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [strict(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _loose(value: Any) -> Any:
    """The reverse of `strict`."""
    if isinstance(value, Mapping):
        return {key: _loose(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_loose(each) for each in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(value))


def _difference(old: Any, new: Any) -> str:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return f"{key}: {_difference(old.get(key), new.get(key))}"
    return f"{old!r} → {new!r}"


def ordered(jobs: Iterable[Job]) -> list[Job]:
    """All jobs and those they need, each once, the needed ones first."""
    found: dict[str, Job] = {}

    def add(job: Job) -> None:
        for earlier in job.after:
            add(earlier)
        known = found.setdefault(job.name, job)
        if known.settings != job.settings:
            raise ConfigError(f"two jobs are named {job.name!r} but have different settings")

    for job in jobs:
        add(job)
    return list(found.values())


def pending(jobs: Sequence[Job], place: Place) -> list[Job]:
    """Jobs without a result."""
    return [job for job in jobs if read(place, job) is None]


def run_all(
    jobs: Iterable[Job],
    place: Place,
    say: Any = print,
    after_each: Callable[[], None] | None = None,
) -> None:
    """Make every job that has no result; several processes may do so side by side."""
    todo = ordered(jobs)
    while left := pending(todo, place):
        ready = [job for job in left if all(read(place, a) is not None for a in job.after)]
        if not any(_attempt(job, place, say) for job in ready):
            time.sleep(2.0)  # what is left is being made by other processes
        elif after_each is not None:
            after_each()


def _attempt(job: Job, place: Place, say: Any) -> bool:
    """Make a job unless another process is making it; returns whether something was done."""
    with _claimed(place.folder(job.name)) as mine:
        if not mine or read(place, job) is not None:
            return False
        say(f"{job.name} …")
        start = time.perf_counter()
        module, _, function = job.task.partition(":")
        task = getattr(importlib.import_module(f"entropy_mcmc_reproduction.{module}"), function)
        try:
            result = task(job.settings, place)
        except NonFiniteError as error:  # a result too, and the other jobs must go on
            result = {"diverged": str(error.__cause__ or error)}
        seconds = time.perf_counter() - start
        _write(place.result_file(job.name), job, result, seconds)
        say(f"{job.name} {'diverged' if diverged(result) else 'done'} in {seconds:.0f} s")
        return True


@contextmanager
def _claimed(folder: Path) -> Iterator[bool]:
    """Whether this process alone may work on a job; the claim dies with the process."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = WriterLock(folder.parent, f".{folder.name}.claim")
    except StateError:
        yield False
        return
    with lock:
        yield True


def _write(path: Path, job: Job, result: Any, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "job": job.name,
        "task": job.task,
        "settings": job.settings,
        "result": strict(result),
        "seconds": round(seconds, 1),
        "versions": versions(),
        "command": " ".join(["emcmc", *_portable(sys.argv[1:])]),
    }
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")


def _portable(arguments: Sequence[str]) -> list[str]:
    """Arguments that mean something on another machine: its folders do not.

    >>> _portable(["reproduce", "cifar", "--work", "/tmp/w", "--data", "/tmp/d", "--workers", "2"])
    ['reproduce', 'cifar', '--workers', '2']
    """
    folders = {"--work", "--results", "--data"}
    before = ["", *arguments]
    return [a for a, last in zip(arguments, before, strict=False) if not {a, last} & folders]


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on, and the machine."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in VERSIONED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
