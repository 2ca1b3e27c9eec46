"""Jobs in processes of one thread each: as many at once as there are workers.

A process that dies takes only its own job with it, and its processes die with the search. What a
job has done is in its folder, so that the next start goes on with it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pickle import PicklingError
from typing import Any

import torch

from entropy_mcmc.errors import ConfigError, EntropyMCMCError, StateError
from entropy_mcmc.posterior.atomic_files import WriterLock
from entropy_mcmc.run.config import ComputeConfig, RunConfig
from entropy_mcmc.run.one_process import is_enough
from entropy_mcmc.tuning.search import Job
from entropy_mcmc.tuning.search_folder import TuneFolder
from entropy_mcmc.tuning.trial import clear, run_trial
from entropy_mcmc.tuning.trial_config import Given

WATCH = 0.2  # seconds between two looks whether the search is alive
PATIENCE = 30.0  # seconds for a checkpoint when the search is stopped
LONGEST = 8000  # letters of an error that a worker reports


@dataclass(frozen=True)
class Order:
    """A job with its config."""

    job: Job
    config: RunConfig


def processes_at_once(workers: int | None, accelerator: str) -> int:
    """How many jobs run at once: all cores, or one on a device that they would share."""
    if workers is not None:
        return workers
    if accelerator in ("cuda", "gpu", "mps", "tpu"):
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_method() -> str | None:
    """How to start workers; None where jobs must run in this process, one by one.

    A forked worker has the user's objects and data without any copy. It must not be forked from a
    process that uses a GPU, nor on systems whose libraries forbid it.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    return "fork" if sys.platform == "linux" else "spawn"


def run_orders(
    orders: Sequence[Order],
    given: Given,
    folder: TuneFolder,
    *,
    workers: int,
    done: Callable[[Job], None],
    method: str | None,
) -> None:
    """Run all orders; their results are in the folder afterwards.

    Args:
        orders: Jobs that have no result yet.
        given: What every trial is given.
        folder: Of the search.
        workers: Processes at once.
        done: Called after each job.
        method: How to start them: see `start_method`.
    """
    if method is None or (method == "spawn" and workers == 1):
        for order in orders:
            _in_this_process(order, given, folder)
            done(order.job)
        return
    if not orders:
        return
    pool = _Pool(multiprocessing.get_context(method), given, folder)
    waiting = list(orders)
    try:
        while waiting or pool.running:
            while waiting and len(pool.running) < workers:
                pool.start(waiting.pop(0))
            for job in pool.finished():
                done(job)
    finally:
        pool.stop()


def preload(compute: ComputeConfig) -> None:
    """Import what runs import late, before workers are forked: seconds of each, otherwise."""
    import_module("torch._dynamo")
    if not is_enough(compute):
        import_module("lightning_fabric")


def _in_this_process(order: Order, given: Given, folder: TuneFolder) -> None:
    threads = torch.get_num_threads()
    try:
        _work(order, given, folder)
    finally:
        torch.set_num_threads(threads)


def _work(order: Order, given: Given, folder: TuneFolder) -> None:
    """Run a job and keep its result; then its folder is not needed any more."""
    place = folder.run_folder(order.job)
    place.mkdir(exist_ok=True)
    # A worker of a search that was killed a moment ago may still hold the folder.
    WriterLock(place, wait=True).release()
    begin = time.monotonic()
    result = run_trial(order.config, given, place)
    folder.write(order.job, result, time.monotonic() - begin)
    clear(place)


class _Pool:
    """The processes that are at work."""

    def __init__(self, context: Any, given: Given, folder: TuneFolder) -> None:
        self._context, self._given, self._folder = context, given, folder
        self.running: dict[BaseProcess, tuple[Job, Connection]] = {}

    def start(self, order: Order) -> None:
        """Begin a job."""
        reader, writer = self._context.Pipe(duplex=False)
        arguments = (order, self._given, self._folder, writer, os.getpid())
        process = self._context.Process(target=_process, args=arguments, daemon=True)
        try:
            with warnings.catch_warnings():
                # Python warns of threads that a fork leaves behind: a worker uses none of them.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
        except (AttributeError, PicklingError, TypeError) as error:
            raise ConfigError(
                f"model, data or loss cannot be sent to another process ({error}); name them as "
                "module:function, or use workers=1"
            ) from error
        writer.close()
        self.running[process] = (order.job, reader)

    def finished(self) -> list[Job]:
        """Wait for a process to end; the jobs that are done, or the error of one that failed."""
        ready = wait([process.sentinel for process in self.running])
        jobs = []
        for process in [p for p in self.running if p.sentinel in ready]:
            process.join()
            job, reader = self.running.pop(process)
            with reader:
                _raise_failure(job, process.exitcode, reader)
            jobs.append(job)
        return jobs

    def stop(self) -> None:
        """End what is still running, after a checkpoint."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.join(PATIENCE)
            process.kill()


def _process(
    order: Order, given: Given, folder: TuneFolder, report: Connection, parent: int
) -> None:
    """What a worker process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the search, which stops us
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    try:
        with redirect_stderr(StringIO()), redirect_stdout(StringIO()):
            _work(order, given, folder)
    except KeyboardInterrupt:
        return  # stopped by the search
    except BaseException as error:
        known = isinstance(error, EntropyMCMCError)
        text = str(error) if known else "".join(traceback.format_exception(error))
        message = {"known": known, "text": text[-LONGEST:]}
        with suppress(OSError):  # the search may be dead
            report.send_bytes(json.dumps(message).encode())


def _die_with(parent: int) -> None:
    """End this process when the search that started it is gone."""
    while os.getppid() == parent:
        time.sleep(WATCH)
    os._exit(1)


def _raise_failure(job: Job, code: int | None, reader: Connection) -> None:
    """Raise what a worker reported, or that it died."""
    name = f"trial {job.trial} ({job.epochs} epochs)"
    if reader.poll():
        with suppress(EOFError):
            message = json.loads(reader.recv_bytes())
            if message["known"]:
                raise ConfigError(f"{name}: {message['text']}")
            raise StateError(f"{name} failed:\n{message['text'].rstrip()}")
    if code:
        raise StateError(
            f"the process of {name} died (exit code {code}); if memory ran out, use fewer "
            "--workers, and the same command goes on"
        )
