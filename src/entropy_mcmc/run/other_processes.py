"""The other processes of a run whose chains are independent: do they still work?

Their chains need nothing of each other, so nobody waits: each process only listens. A process that
is killed closes its connections, which the others hear at once. One that works says so now and
then: whoever has finished waits for one that hangs no longer than `compute.timeout`.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from threading import Thread
from typing import Any

import torch

from entropy_mcmc.errors import StateError
from entropy_mcmc.run.signals import Interrupted, Interrupts

# What a process says when it leaves; a positive number is the signal that stopped it.
FINISHED, FAILED, LOST, WORKING = 0, -1, -2, -3
# A chain may take as long as it likes: silence is no sign of a loss.
FOREVER = timedelta(days=3650)
PATIENCE = 60.0  # seconds for the others to stop too, so that no connection breaks under them


class Peers:
    """What was heard of the other processes; made by all of them together."""

    def __init__(self, fabric: Any, timeout: float) -> None:
        """`timeout` is in seconds: a process that is silent for so long hangs."""
        import torch.distributed as dist

        self.timeout = timeout
        self._spoke = time.monotonic()
        self.rank = int(fabric.global_rank)
        self.others = [rank for rank in range(fabric.world_size) if rank != self.rank]
        self._group = dist.new_group(backend="gloo", timeout=FOREVER)
        self._heard: dict[int, int] = {}
        self._last = dict.fromkeys(self.others, time.monotonic())
        self._threads = [
            Thread(target=self._listen, args=(rank,), daemon=True) for rank in self.others
        ]
        for thread in self._threads:
            thread.start()

    def _listen(self, rank: int) -> None:
        import torch.distributed as dist

        message = torch.zeros(1, dtype=torch.int64)
        try:
            while True:
                dist.recv(message, src=rank, group=self._group)
                self._last[rank] = time.monotonic()
                if int(message) != WORKING:
                    break
            self._heard[rank] = int(message)
        except RuntimeError:
            self._heard[rank] = LOST

    @property
    def trouble(self) -> str | None:
        """What happened to another process, in words; None while all is well."""
        for rank, code in list(self._heard.items()):
            if code == LOST:
                return f"process {rank} was lost"
            if code == FAILED:
                return f"process {rank} stopped with an error, which its own message explains"
            if code != FINISHED:
                return f"process {rank} was stopped by signal {code}"
        return None

    def working(self) -> None:
        """Tell the others that this process works, a few times in `timeout`."""
        if time.monotonic() - self._spoke > self.timeout / 5:
            self._spoke = time.monotonic()
            self._tell(WORKING)

    def _tell(self, code: int) -> None:
        import torch.distributed as dist

        for rank in self.others:
            try:
                dist.send(torch.tensor([code]), dst=rank, group=self._group)
            except RuntimeError:
                self._heard.setdefault(rank, LOST)

    def leave(self, code: int) -> None:
        """Tell the others how this process ended; after trouble, give them time to end too."""
        self._tell(code)
        if code != FINISHED:
            end = time.monotonic() + PATIENCE
            for thread in self._threads:
                thread.join(max(0.0, end - time.monotonic()))

    def wait(self, finished: str) -> None:
        """Return when all others have finished; raise if one did not, or hangs."""
        began = time.monotonic()
        with Interrupts() as interrupts:
            while len(self._heard) < len(self.others) and self.trouble is None:
                time.sleep(0.02)
                self._refuse_silence(began, finished)
                if interrupts.received:
                    print(finished, file=sys.stderr, flush=True)
                    raise Interrupted(finished, interrupts.received)
        if self.trouble is not None:
            raise StateError(f"{self.trouble}; {finished}")

    def _refuse_silence(self, began: float, finished: str) -> None:
        now = time.monotonic()
        for rank in self.others:
            silent = now - max(began, self._last[rank])
            if rank not in self._heard and silent > self.timeout:
                raise StateError(
                    f"process {rank} has said nothing for {silent:.0f} s (compute.timeout="
                    f"{self.timeout:g}): it hangs, or its steps take longer, which needs a larger "
                    f"--compute.timeout; {finished}"
                )
