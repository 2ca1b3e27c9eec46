"""Workers of one thread each that make the missing runs of a store until none is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from tournament.settings import Settings
from tournament.store import Store

Missing = Callable[[], list[Settings]]


def work(missing: Missing, store: Store, first: int = 0, pause: float = 2.0) -> int:
    """Make what is missing; `first` rotates the list so that workers begin at different places.

    A run that another worker holds is waited for, since what comes next may depend on it.
    """
    made = 0
    while wanted := missing():
        start = first % len(wanted)
        done = sum(store.make(settings) for settings in wanted[start:] + wanted[:start])
        made += done
        if not done:
            time.sleep(pause)
    return made


def spawn(arguments: list[str], workers: int) -> None:
    """Run this command again as `workers` processes of one thread each, and wait for them."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *sys.argv[:1], *arguments]
    started = [
        subprocess.Popen([*command, "--worker", str(number)], env=environment)
        for number in range(workers)
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit(f"workers ended with {codes}; run the same command again to go on")
