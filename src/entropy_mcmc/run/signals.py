"""SIGTERM and Ctrl-C: finish the step, write a checkpoint, say so, leave."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop, and can be continued by the same command."""

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """128 + signal: 143 for SIGTERM, 130 for Ctrl-C."""
        return 128 + self.signum


class Interrupts:
    """Inside the block the first signal is only remembered; a second one acts as usual."""

    def __init__(self) -> None:
        self.received = 0
        self._old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        # Signals can be handled in the main thread only; elsewhere they stay the caller's.
        if threading.current_thread() is threading.main_thread():
            self._old = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.received = signum
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}
