"""The run folder: its lock, its config, and what may not change between two starts."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import (
    ConfigError,
    DamagedFileError,
    MissingFileError,
    StateError,
    check_count,
)
from entropy_mcmc.posterior.atomic_files import WriterLock, atomic, is_temporary
from entropy_mcmc.run.checkpoint import explained
from entropy_mcmc.run.config import RunConfig, differences, from_dict, to_dict
from entropy_mcmc.run.config_file import NAME, dump, read_config

# These may change on resume: they do not change the chain.
FREE = (
    "run_dir",
    "output.",
    "data.folder",
    "data.workers",
    "data.ood",
    "compute.devices",
    "compute.nodes",
    "compute.strategy",
    "compute.timeout",
    "compute.threads",
)


@dataclass(frozen=True)
class Record:
    """What `config.yaml` holds: the resolved config, the problem, the machine, the length."""

    config: RunConfig
    problem: dict[str, Any]
    machine: dict[str, Any]
    cycle_steps: int
    more_cycles: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("problem", "machine"):
            if not isinstance(getattr(self, name), dict):
                raise ConfigError(f"{name} must be a table, got {getattr(self, name)!r:.80}")
        for name in {"parameters", "rows"} & self.problem.keys():
            check_count(f"problem.{name}", self.problem[name])
        check_count("cycle_steps", self.cycle_steps)
        if not isinstance(self.more_cycles, list):
            raise ConfigError(f"more_cycles must be a list, got {self.more_cycles!r:.80}")
        for number in self.more_cycles:
            check_count("more_cycles", number)
        if self.config.schedule.cycles is None:
            raise ConfigError("schedule.cycles must be a number in a run that was started")

    @property
    def cycles(self) -> int:
        """Cycles of each chain, extensions included."""
        assert self.config.schedule.cycles is not None
        return self.config.schedule.cycles + sum(self.more_cycles)


def machine(device_type: str, fused: str) -> dict[str, Any]:
    """What may change the last bits of a chain: versions, threads, processor, step path."""
    import numpy
    import torch

    from entropy_mcmc import __version__
    from entropy_mcmc.samplers.kernel import compiled

    path = "eager" if fused == "no" or not compiled.available(device_type) else fused
    return {
        "entropy_mcmc": __version__,
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device_type,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "step_path": path,
    }


def lock(folder: Path) -> WriterLock:
    """Take the run folder for this process; the lock dies with it."""
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held = WriterLock(folder)
        except StateError as error:
            raise StateError(
                f"{folder} is used by another process; wait for it to end, or choose another "
                "run folder with --run_dir"
            ) from error
        remove_leftovers(folder)
        return held


def remove_leftovers(folder: Path) -> None:
    """Remove the half-written files of killed processes; the store removes its own."""
    for place in (folder, *folder.glob("checkpoint/chain-*")):
        for path in [path for path in place.iterdir() if is_temporary(path.name)]:
            path.unlink(missing_ok=True)


def read(folder: Path) -> Record | None:
    """The record of a run, None for a new folder."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        content = read_config(path)
        record = content.pop("record")
        return Record(from_dict(content), **record)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(
            f"{path} cannot be read ({error}); restore it from a copy, or use a new run folder"
        ) from error


def read_existing(folder: Path) -> Record:
    """The record of a run that must exist."""
    record = read(folder)
    if record is None:
        raise MissingFileError(
            f"{folder / NAME} is not there: {folder} is no run folder; make one with `emcmc sample`"
        )
    return record


def write(folder: Path, record: Record) -> None:
    """Write `config.yaml` atomically."""
    # The config's own entries stay on top, so that the file can be given to --config again.
    about = {name: value for name, value in asdict(record).items() if name != "config"}
    content = {**to_dict(record.config), "record": about}
    with explained(folder), atomic(folder / NAME) as temporary:
        temporary.write_text(dump(content), encoding="utf-8")


def check_same(folder: Path, old: Record, new: Record, *, override: bool) -> None:
    """Refuse to go on with another config, problem or machine; show what differs."""
    changed = differences(to_dict(old.config), to_dict(new.config), FREE)
    changed += differences(old.problem, new.problem)
    if changed:
        raise ConfigError(
            f"{folder} was started with another config ({NAME} → now):\n{_indent(changed)}\n"
            "give the same options to go on, or choose another folder with --run_dir"
        )
    moved = differences(old.machine, new.machine)
    if moved and not override:
        raise ConfigError(
            f"{folder} was started on another machine or with other versions ({NAME} → now):\n"
            f"{_indent(moved)}\nthe chain would not be the same bit for bit; go back to them, "
            "or accept that with --override"
        )


def extended(folder: Path, record: Record, more: int | None, *, finished: bool) -> Record:
    """The record after `--more_cycles`; an extension that was killed is continued, not repeated."""
    if more is None:
        return record
    if not finished:
        if record.more_cycles and record.more_cycles[-1] == more:
            return record
        raise StateError(
            f"{folder} is not finished, got more_cycles={more}; finish it first, by the same "
            "command without --more_cycles"
        )
    longer = Record(
        record.config, record.problem, record.machine, record.cycle_steps,
        [*record.more_cycles, more],
    )  # fmt: skip
    write(folder, longer)
    return longer


def _indent(lines: list[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
