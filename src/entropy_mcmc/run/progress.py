"""Show how a chain goes: a bar on a terminal, plain lines elsewhere, TensorBoard if asked."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from entropy_mcmc.errors import ConfigError

if TYPE_CHECKING:
    from entropy_mcmc.posterior.disk_size import DiskSize

SECONDS_BETWEEN_LINES = 10.0
# The bar itself takes what the rest leaves of the terminal's width.
BAR = "|{bar}| {n_fmt}/{total_fmt} {remaining}{postfix}"

Words = Callable[[Mapping[str, Any]], str]  # the numbers of an event


class Progress(Protocol):
    """Told of every step and of every line of the journal."""

    def advance(self) -> None:
        """One step was made."""

    def show(self, event: Mapping[str, Any]) -> None:
        """A line of the journal was written."""

    def close(self) -> None:
        """The chain ended or was stopped."""


class Quiet:
    """Shows nothing."""

    def advance(self) -> None:
        """Do nothing."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Bar:
    """A tqdm bar with steps, time left, loss, cycle and samples: what fits 80 columns.

    The journal and the lines of `Lines` also have lr and temperature.
    """

    def __init__(self, label: str, start: int, total: int, words: Words | None = None) -> None:
        from tqdm import tqdm

        self._words = words or brief
        # tqdm would put ": " after a description, for which there is no room.
        shape = f"{label} {BAR}"
        self._bar = tqdm(total=total, initial=start, dynamic_ncols=True, bar_format=shape)

    def advance(self) -> None:
        """Move the bar."""
        self._bar.update(1)

    def show(self, event: Mapping[str, Any]) -> None:
        """Refresh the numbers."""
        self._bar.set_postfix_str(self._words(event), refresh=False)

    def close(self) -> None:
        """Leave the bar on the screen."""
        self._bar.close()


class Lines:
    """A line now and then, for log files."""

    def __init__(
        self, label: str, start: int, total: int, words: Words | None = None, unit: str = "step"
    ) -> None:
        self.label, self.step, self.first, self.total = label, start, start, total
        self._words, self._unit = words or describe, unit
        self.started = time.monotonic()
        self.shown = 0.0

    def advance(self) -> None:
        """Count."""
        self.step += 1

    def show(self, event: Mapping[str, Any]) -> None:
        """Print, unless a line was printed a moment ago."""
        now = time.monotonic()
        if now - self.shown < SECONDS_BETWEEN_LINES and self.step < self.total:
            return
        self.shown = now
        left = (now - self.started) / max(1, self.step - self.first) * (self.total - self.step)
        print(
            f"{self.label} {self._unit} {self.step}/{self.total}, {self._words(event)}, "
            f"{left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        """Do nothing."""


class TensorBoard:
    """Scalars of each journal line as TensorBoard events, beside another progress."""

    def __init__(self, inner: Progress, folder: Path, start: int) -> None:
        """Write into `folder`; what a killed process wrote there after step `start` is hidden."""
        self._inner = inner
        self._writer = _tensorboard_writer(folder, start)

    def advance(self) -> None:
        """Pass on."""
        self._inner.advance()

    def show(self, event: Mapping[str, Any]) -> None:
        """Write loss, lr, temperature, cycle and samples."""
        for name in ("loss", "lr", "temperature", "cycle", "samples"):
            self._writer.add_scalar(name, event[name], event["step"])
        self._inner.show(event)

    def close(self) -> None:
        """Flush the events."""
        self._writer.close()
        self._inner.close()


def make_progress(
    label: str,
    start: int,
    total: int,
    *,
    shown: bool,
    words: Words | None = None,
    unit: str = "step",
) -> Progress:
    """A bar on a terminal, lines elsewhere, nothing if not wanted.

    Args:
        label: What goes on.
        start: Steps that were made before.
        total: All steps.
        shown: Whether it is wanted.
        words: What is said of an event, if it is not a line of a chain's journal.
        unit: What lines call a step.
    """
    if not shown:
        return Quiet()
    if sys.stderr.isatty():
        return Bar(label, start, total, words)
    return Lines(label, start, total, words, unit)


def describe(event: Mapping[str, Any]) -> str:
    """The numbers of a journal line, in words.

    >>> describe({"loss": 0.5, "lr": 0.1, "temperature": 1.0, "cycle": 0, "samples": 2})
    'loss 0.5000, lr 0.1, T 1, cycle 1, 2 samples'
    """
    return (
        f"loss {event['loss']:.4f}, lr {event['lr']:.3g}, T {event['temperature']:g}, "
        f"cycle {event['cycle'] + 1}, {event['samples']} samples"
    )


def brief(event: Mapping[str, Any]) -> str:
    """The numbers of a journal line that the bar has room for.

    >>> brief({"loss": 0.5, "cycle": 0, "samples": 2})
    'loss 0.5, cycle 1, 2 samples'
    """
    return f"loss {event['loss']:.3g}, cycle {event['cycle'] + 1}, {event['samples']} samples"


def tell_size(folder: Path, size: DiskSize, *, shown: bool) -> None:
    """Say before the first step how much the samples will take; too much is always said."""
    from entropy_mcmc.posterior.disk_size import free_bytes, readable  # it imports torch

    free = free_bytes(folder)
    if size.total > free:
        warnings.warn(
            f"{folder} will hold {size}, and only {readable(free)} are free there; keep fewer "
            "samples (schedule.samples_per_cycle, chains, roles) or use another run_dir",
            RuntimeWarning,
            stacklevel=2,
        )
    elif shown:
        print(f"on disk: {size} in {folder}", file=sys.stderr, flush=True)


def _tensorboard_writer(folder: Path, start: int) -> Any:
    return require_tensorboard()(folder, purge_step=start + 1, flush_secs=10)


def require_tensorboard() -> Any:
    """The class that writes TensorBoard events, or an error that says what to install."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "output.tensorboard needs the package tensorboard, which is not installed; "
            "run `pip install 'entropy-mcmc[tensorboard]'`, or leave the option out: "
            "metrics.jsonl has the numbers"
        ) from error
    return SummaryWriter
