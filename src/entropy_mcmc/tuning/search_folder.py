"""The folder of a search: what was asked, and one small JSON file for each finished run.

It is data: nothing in it is imported or run. Files are written whole or not at all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from entropy_mcmc.errors import ConfigError, DamagedFileError, StateError
from entropy_mcmc.posterior.atomic_files import WriterLock, atomic, is_regular, is_temporary
from entropy_mcmc.run import run_folder
from entropy_mcmc.run.checkpoint import explained
from entropy_mcmc.run.config import RunConfig, differences, to_dict
from entropy_mcmc.run.config_file import TUNING, dump, read_config
from entropy_mcmc.tuning.options import TuneConfig
from entropy_mcmc.tuning.search import Job, Result

LARGEST = 64 * 2**20  # bytes of a result: the NLL of a million rows has 20 MB
# These may change on resume: they do not change the table.
FREE = (*(f"config.{name}" for name in run_folder.FREE), "search.tune_dir", "search.workers")


@dataclass(frozen=True)
class TuneFolder:
    """A folder of a search, held by one process at a time."""

    path: Path

    def lock(self) -> WriterLock:
        """Take the folder for this process; the lock dies with it."""
        with explained(self.path):
            (self.path / "trials").mkdir(parents=True, exist_ok=True)
            try:
                held = WriterLock(self.path)
            except StateError as error:
                raise StateError(
                    f"{self.path} is used by another search; wait for it to end, or choose "
                    "another folder with --tune_dir"
                ) from error
            for place in (self.path, self.path / "trials"):
                for half in [file for file in place.iterdir() if is_temporary(file.name)]:
                    half.unlink(missing_ok=True)
            return held

    def check_same(
        self,
        config: RunConfig,
        options: TuneConfig,
        problem: Mapping[str, Any],
        machine: Mapping[str, Any],
        *,
        override: bool,
    ) -> None:
        """Write what is asked, or refuse to go on with something else."""
        asked = {"config": to_dict(config), "search": asdict(options), "problem": dict(problem)}
        path = self.path / TUNING
        if not path.exists():
            with explained(self.path), atomic(path) as temporary:
                text = dump({**asked, "machine": dict(machine)})
                temporary.write_text(text, encoding="utf-8")
            return
        old = read_config(path)
        moved = differences(_table(old, "machine"), machine)
        changed = differences({n: _table(old, n) for n in asked}, asked, FREE)
        if changed:
            raise ConfigError(
                f"{self.path} was started with other options ({TUNING} → now):\n"
                f"{_lines(changed)}\ngive the same options to go on, or choose another folder "
                "with --tune_dir"
            )
        if moved and not override:
            raise ConfigError(
                f"{self.path} was started on another machine or with other versions ({TUNING} → "
                f"now):\n{_lines(moved)}\nthe table would not be the same; go back to them, or "
                "accept that with --override"
            )

    def run_folder(self, job: Job) -> Path:
        """Where the engine runs a job."""
        return self.path / "trials" / f"{job.trial:03d}-epochs-{job.epochs}"

    def result(self, job: Job) -> Result | None:
        """The result of a job; None if it has not been finished."""
        path = self._file(job)
        if not path.exists():
            return None
        try:
            if not is_regular(path) or path.stat().st_size > LARGEST:
                raise ValueError("it is no small regular file")
            content = json.loads(path.read_text(encoding="utf-8"))
            result, point = _parsed(content)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedFileError(
                f"{path} cannot be read ({error}); remove it, and the same command makes it again"
            ) from error
        if point != dict(job.point):
            raise DamagedFileError(
                f"{path} is of other settings ({point}) than this search tries ({dict(job.point)});"
                " remove it, and the same command makes it again"
            )
        return result

    def write(self, job: Job, result: Result, seconds: float) -> None:
        """Keep the result of a job."""
        content = {
            "trial": job.trial,
            "epochs": job.epochs,
            "settings": dict(job.point),
            "nll": result.nll if math.isfinite(result.nll) else None,
            "scores": result.scores,
            "reason": result.reason,
            "seconds": round(seconds, 3),
            "rows": list(result.rows),
        }
        with explained(self.path), atomic(self._file(job)) as temporary:
            temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")

    def _file(self, job: Job) -> Path:
        return self.run_folder(job).with_suffix(".json")


def _parsed(content: Any) -> tuple[Result, dict[str, float]]:
    """A result and its settings, every value checked."""
    nll = math.inf if content["nll"] is None else _number(content["nll"])
    rows = tuple(_number(row) for row in _typed(content["rows"], list))
    scores = {str(n): _number(v) for n, v in _typed(content["scores"], dict).items()}
    point = {str(n): _number(v) for n, v in _typed(content["settings"], dict).items()}
    return Result(nll, rows, scores, _typed(content["reason"], str)), point


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is no number")
    return float(value)


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = content.get(name)
    if not isinstance(table, dict):
        raise DamagedFileError(f"{TUNING} has no table {name}; use another folder")
    return table


def _lines(changed: list[str]) -> str:
    return "\n".join(f"  {line}" for line in changed)
