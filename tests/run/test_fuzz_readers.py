"""Any bytes as a file of a run: the object or one error of the library, in bounds, no action."""

import numpy as np
import pytest
import torch

from entropy_mcmc.run import checkpoint, run_folder
from entropy_mcmc.run.config import with_parts
from entropy_mcmc.run.journal import Journal
from run.fuzz_worker import READERS, fuzz
from run.workers import CONTEXT, tiny_config

KB, MB = 2**10, 2**20
JSON = [b"[" * MB, b'{"a":' * MB, b"9" * MB, b'{"step": 3, "numbers": {' + b'"a": 1,' * MB]
LARGE = {
    "config": [
        *(piece * (64 * KB // len(piece)) for piece in (b"[", b"- ", b"? ", b"{", b"a: ", b"!")),
        *(piece * (64 * KB // len(piece)) for piece in (b"a: 1\n", b"- [1]\n", b"'", b"|\n x\n")),
        b"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
        b"a" * (10 * MB),
    ],
    "checkpoint": [*JSON, b"[" + b"1.5," * (8 * MB) + b"1]"],
    "tensors": [b"\xff" * MB, (2**62).to_bytes(8, "little") + b"{" * MB],
    "journal": [*JSON, b"\n" * MB, b'{"kind": "train"}\n' * 1000, b"{}\n" * (100 * KB)],
    "npz": [b"PK\x03\x04" * MB, b"\x93NUMPY" * MB],
    "inputs": [b"PK\x05\x06" + b"\xff" * 18, b""],
}


def write_valid(kind, place):
    if kind == "config":
        config = with_parts(tiny_config(place), schedule={"cycles": 2})
        run_folder.write(place, run_folder.Record(config, {"model": "m"}, {"torch": "1"}, 7, [1]))
    elif kind in ("checkpoint", "tensors"):
        state = checkpoint.Checkpoint(3, {"a": torch.zeros(4)}, {"n": 1}, checkpoint.Stored(1, "x"))
        checkpoint.save(place, state)
    elif kind == "journal":
        for step in range(4):
            Journal(place).append({"kind": "train", "chain": 0, "step": step})
        Journal(place).append({"kind": "evaluate", "set": "test", "who": "emcmc", "nll": 1.0})
    else:
        x, y = np.arange(8.0).reshape(4, 2), np.arange(4)
        np.savez(place / "data.npz", x=x, x_train=x, y_train=y, x_test=x, y_test=y)


@pytest.mark.parametrize("kind", READERS)
def test_any_bytes(kind, tmp_path):
    write_valid(kind, tmp_path)
    examples = 60 if kind == "config" else 150  # YAML is read a hundred times slower than JSON
    process = CONTEXT.Process(target=fuzz, args=(kind, tmp_path, LARGE[kind], examples))
    process.start()
    process.join()
    assert process.exitcode == 0, (tmp_path / "log.txt").read_text()


def test_the_watch_sees_what_it_must(tmp_path):
    """A reader that acts is found out: otherwise the tests above show nothing."""
    (tmp_path / "config.yaml").write_text("x")
    process = CONTEXT.Process(target=acting, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 1
    assert "os.system" in (tmp_path / "log.txt").read_text()


def acting(place):
    import os

    calls = iter(range(10))
    READERS["config"] = ("config.yaml", lambda path: next(calls) > 1 and os.system("true"))
    fuzz("config", place, [b"x"], examples=1)
