"""How a search goes: a bar of at most 80 columns on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
from typing import Any

from entropy_mcmc.tuning.search import Job, Result

WIDTH = 79


class Silent:
    """Shows nothing."""

    def show(self, job: Job, result: Result) -> None:
        """A job is done."""

    def close(self) -> None:
        """The search ended or was stopped."""


class Shown(Silent):
    """Counts epochs, of which the search has `total`, and remembers the best NLL so far."""

    def __init__(self, total: int, full: int) -> None:
        self.total, self.full = total, full
        self.epochs = 0
        self.best = math.inf

    def show(self, job: Job, result: Result) -> None:
        """Take a finished job into account."""
        self.epochs += job.epochs
        if job.epochs == self.full:
            self.best = min(self.best, result.nll)


class Lines(Shown):
    """A line for each job, for log files."""

    def show(self, job: Job, result: Result) -> None:
        """Print."""
        super().show(job, result)
        print(line(job, result, self.epochs / self.total), file=sys.stderr, flush=True)


class Bar(Shown):
    """A bar of epochs, with the last NLL."""

    def __init__(self, total: int, full: int) -> None:
        super().__init__(total, full)
        from tqdm import tqdm

        shape = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
        self._bar: Any = tqdm(total=total, desc="tune", bar_format=shape, ncols=_columns())

    def show(self, job: Job, result: Result) -> None:
        """Move the bar."""
        super().show(job, result)
        best = f", best {self.best:.4f}" if math.isfinite(self.best) else ""
        self._bar.set_description_str(f"tune: trial {job.trial}{best}", refresh=False)
        self._bar.update(job.epochs)

    def close(self) -> None:
        """Leave the bar on the screen."""
        self._bar.close()


def line(job: Job, result: Result, part: float) -> str:
    """One finished job in words.

    >>> line(Job(3, 12, {}), Result(0.25), 0.5)
    'tune  50%: trial 3, 12 epochs, NLL 0.2500'
    """
    score = f"NLL {result.nll:.4f}" if math.isfinite(result.nll) else "diverged"
    return f"tune {part:4.0%}: trial {job.trial}, {job.epochs} epochs, {score}"


def _columns() -> int:
    import shutil

    return min(WIDTH, shutil.get_terminal_size().columns - 1)


def make_progress(total: int, full: int, *, shown: bool) -> Silent:
    """A bar on a terminal, lines elsewhere, nothing if not wanted."""
    if not shown:
        return Silent()
    return (Bar if sys.stderr.isatty() else Lines)(total, full)
