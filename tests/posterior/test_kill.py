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

from entropy_mcmc.errors import StateError
from entropy_mcmc.posterior import Posterior


class ToyGuide(torch.optim.SGD):
    @contextmanager
    def guide(self):
        yield


def net():
    return nn.Sequential(nn.Linear(100, 200), nn.BatchNorm1d(200), nn.Linear(200, 10))


def worker(path, acknowledge, build=None):
    """Collect and refresh for ever; report each step that `collect` has promised to keep."""
    torch.set_num_threads(1)
    model = (build or net)()
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
        if step % 4 == 3 and build is None:
            posterior.refresh_batchnorm([torch.ones(4, 100)])


def run_and_kill(path, delay, build=None):
    """Steps that were promised by a worker that lived for about `delay` seconds."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            worker(path, write, build)
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


def large():
    """28 MB: a kill falls into the writing of a file, most of the time."""
    return nn.Sequential(nn.Linear(1000, 3500), nn.Linear(3500, 1000), nn.Linear(1000, 2))


@pytest.mark.soak
def test_kills_of_a_store_of_large_samples_leave_nothing_behind(tmp_path):
    path = tmp_path / "a"
    moments = random.Random(21)
    ToyGuide(net().parameters(), lr=0.1)  # as above
    for _ in range(25):
        run_and_kill(path, moments.uniform(0.3, 2.0), large)
        if not (path / "samples").exists():
            continue
        reader = Posterior.open(path, large())
        assert reader.verify() == len(reader)
    last = Posterior.open(path, large(), append=True)
    assert len(last) > 0
    kept = {p.name for p in last._store.folder.iterdir()} - {".lock", "manifest.json"}
    assert kept == last._store.manifest.files()


@pytest.mark.soak
def test_two_thousand_opens_during_writes(tmp_path):
    """Every open sees a whole store, whose samples are there or were replaced by newer ones."""
    path = tmp_path / "a"
    child = os.fork()
    if child == 0:
        try:
            worker(path, os.open(os.devnull, os.O_WRONLY))
        finally:
            os._exit(1)
    try:
        while not (path / "samples").exists():
            time.sleep(0.01)
        newest = -1
        for number in range(2000):
            reader = Posterior.open(path, net())
            steps = [sample.step for sample in reader.samples]
            assert steps == sorted(steps)
            assert max(steps, default=-1) >= newest
            newest = max([newest, *steps])
            if number % 50 == 0 and steps:
                assert len(list(reader)) > 0
        assert newest > 10
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.soak
def test_four_writers_take_turns_and_lose_nothing(tmp_path):
    """Each opens for writing until it may, collects one step of its own, and lets the next in."""
    path, steps = tmp_path / "a", 40
    Posterior.create(path, net()).close()
    children = []
    for writer in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _write_in_turns(path, writer, steps)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children] == [0] * 4
    posterior = Posterior.open(path, net())
    assert [s.step for s in posterior.samples] == list(range(4 * steps))
    assert posterior.verify() == 4 * steps


def _write_in_turns(path, writer, steps):
    torch.set_num_threads(1)
    model, step = net(), 0
    while step < steps:
        try:
            with Posterior.open(path, model, append=True) as posterior:
                posterior.collect(step=4 * step + writer)
                step += 1
        except StateError as error:
            assert "has a writer already" in str(error)  # noqa: PT017
        time.sleep(0.001)
