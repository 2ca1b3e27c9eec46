"""Reading of fuzzed files in a process of its own, whose memory, time and actions are watched."""

import resource
import signal
import sys
import traceback
import warnings
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from entropy_mcmc.data import load
from entropy_mcmc.errors import EntropyMCMCError
from entropy_mcmc.run import checkpoint, run_folder
from entropy_mcmc.run.journal import Journal
from entropy_mcmc.run.predict import read_inputs

SECONDS, MEGABYTES = 5, 500
RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "socket.connect")
WATCHED = (*RUNS, "pickle.find_class", "os.fork", "ctypes.dlopen")


def read_journal(path):
    journal = Journal(path.parent)
    journal.evaluations()
    journal._before(0, 3)  # what resuming reads


# Kind → name of the file that is fuzzed, and what reads it.
READERS = {
    "config": ("config.yaml", lambda path: run_folder.read(path.parent)),
    "checkpoint": ("000000000003.json", lambda path: checkpoint.load(path.parent)),
    "tensors": ("000000000003.safetensors", lambda path: checkpoint.load(path.parent)),
    "journal": ("metrics.jsonl", read_journal),
    "npz": ("data.npz", lambda path: load("npz", folder=path)),
    "inputs": ("data.npz", read_inputs),
}


class ActedError(BaseException):
    """A reader did something else than read."""


class LateError(BaseException):
    """Reading took too long; no reader catches this."""


def _watch(event, arguments):
    if event in WATCHED or (event == "import" and str(arguments[0]).startswith("canary")):
        raise ActedError(event, arguments)


def _late(signum, frame):
    raise LateError(f"more than {SECONDS} s of computing")


def _limit_memory():
    status = Path("/proc/self/status").read_text()
    used = int(next(line for line in status.splitlines() if line.startswith("VmData")).split()[1])
    limit = 1024 * used + 2**20 * MEGABYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def attempt(kind, place, content):
    """Read one file; only an error of the library may come."""
    name, reader = READERS[kind]
    (place / name).write_bytes(content)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader(place / name)
    except EntropyMCMCError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def changed(valid):
    """Bytes near a valid file: some replaced, some pieces put in, the end cut off."""
    pieces = [b"\x00", b"{", b"[", b"- ", b"!!python/object/apply:os.system ['true']", b"\xff\xfe"]
    pieces += [
        b"NaN",
        b"1e999",
        b"-1",
        b"canary:run",
        b"class_path: canary.Thing",
        b": ",
        b"\n",
    ]
    edit = st.tuples(st.integers(0, len(valid)), st.integers(0, 3), st.sampled_from(pieces))

    def apply(edits, end):
        content = valid
        for start, length, piece in edits:
            content = content[:start] + piece + content[start + length :]
        return content if end is None else content[:end]

    ends = st.none() | st.integers(0, len(valid))
    return st.builds(apply, st.lists(edit, max_size=3), ends)


def fuzz(kind, place, large, examples=150):
    """What the process does: the large files, any bytes, and bytes near the valid file."""
    name, _ = READERS[kind]
    valid = (place / name).read_bytes()
    log = (place / "log.txt").open("w")
    try:
        signal.signal(signal.SIGPROF, _late)
        attempt(kind, place, valid)  # what is imported on first use is imported now
        attempt(kind, place, b"\x00")
        sys.addaudithook(_watch)
        _limit_memory()
        for content in large:
            attempt(kind, place, content)
        options = settings(max_examples=examples, derandomize=True, deadline=None, database=None)
        for strategy in (st.binary(max_size=2000), changed(valid)):
            options(given(strategy)(lambda content: attempt(kind, place, content)))()
    except BaseException:
        log.write(traceback.format_exc())
        log.flush()
        sys.exit(1)
