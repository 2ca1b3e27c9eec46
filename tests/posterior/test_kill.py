"""SIGKILL at random moments: the store opens, and loses at most the sample in flight."""

import os
import random
import signal
import struct
import time
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from entropy_mcmc.posterior import Posterior


class ToyGuide(torch.optim.SGD):
    @contextmanager
    def guide(self):
        yield


def net():
    return nn.Sequential(nn.Linear(100, 200), nn.BatchNorm1d(200), nn.Linear(200, 10))


def worker(path, acknowledge):
    """Collect and refresh for ever; report each step that `collect` has promised to keep."""
    torch.set_num_threads(1)
    model = net()
    sampler = ToyGuide(model.parameters(), lr=0.1)
    if (path / "samples").exists():
        posterior = Posterior.open(path, model, append=True)
    else:
        posterior = Posterior.create(path, model, keep_last=40)
    step = max((s.step for s in posterior.samples), default=-1)
    while True:
        step += 1
        posterior.collect(sampler, step=step)
        os.write(acknowledge, struct.pack("q", step))
        if step % 4 == 3:
            posterior.refresh_batchnorm([torch.ones(4, 100)])


def run_and_kill(path, delay):
    """Steps that were promised by a worker that lived for about `delay` seconds."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            worker(path, write)
        finally:
            os._exit(1)
    os.close(write)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the worker failed by itself"
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    return [step for (step,) in struct.iter_unpack("q", data[: len(data) // 8 * 8])]


def check(path, promised):
    if not (path / "samples").exists():
        assert promised == -1
        return
    posterior = Posterior.open(path, net())
    assert posterior.verify() == len(posterior)
    assert len(list(posterior)) == len(posterior)
    steps = [s.step for s in posterior.samples if s.role == "theta"]
    assert posterior.roles == ("theta", "guide") * len(steps)
    newest = steps[-1] if steps else -1
    # A collect that was killed after its commit is kept but was not reported.
    assert promised <= newest <= promised + 1
    assert steps == list(range(newest + 1))[-20:]


def kill_often(path, kills):
    moments = random.Random(20)
    ToyGuide(net().parameters(), lr=0.1)  # torch imports its compiler here: once, before the forks
    promised, reached = -1, 0
    for _ in range(kills):
        delay = moments.uniform(0.0, 0.5)
        steps = run_and_kill(path, delay)
        reached += len(steps)
        promised = max([promised, *steps])
        check(path, promised)
        if (path / "samples").exists():
            kept = Posterior.open(path, net()).samples
            promised = max((s.step for s in kept), default=-1)
    assert reached > kills, "the workers were killed before they did anything"
    last = Posterior.open(path, net(), append=True)
    assert {
        p.name for p in last._store.folder.glob("*.safetensors")
    } == last._store.manifest.files()
    assert not list(last._store.folder.glob(".tmp-*"))


def test_five_kills(tmp_path):
    kill_often(tmp_path / "a", 5)


@pytest.mark.soak
def test_fifty_kills(tmp_path):
    kill_often(tmp_path / "a", 50)
