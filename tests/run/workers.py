"""Tiny problems that worker processes import by name, and how to start and kill such workers."""

import hashlib
import multiprocessing
import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.config import RunConfig, with_parts
from entropy_mcmc.run.trust import Trust

TRUSTED = Trust(everything=True)
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["lightning_fabric", "sklearn.metrics", "scipy.special", "entropy_mcmc.run.commands"]
)


def tiny_data(rows=64):
    """Three classes of points in the plane, for training and test."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2 * rows, 4, generator=generator)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()
    return (x[:rows], y[:rows]), (x[rows:], y[rows:])


def tiny_items():
    """The training rows as a torch data set."""
    return torch.utils.data.TensorDataset(*tiny_data()[0])


def data_that_is_missing_on_rank_1():
    """As on a machine that does not have the files."""
    if os.environ["RANK"] == "1":
        raise ConfigError("the files are not there")
    return tiny_data()


def tiny_model():
    """Batch norm and dropout, so that their state matters too."""
    return nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3)
    )


def image_model(outputs=3):
    """A network for 224 × 224 images that costs nothing."""
    return nn.Sequential(
        nn.AvgPool2d(32), nn.Flatten(), nn.Linear(147, 8), nn.BatchNorm1d(8), nn.Linear(8, outputs)
    )


def slow_loss(output, target):
    """Cross-entropy that leaves time to be killed."""
    time.sleep(0.001)
    return nn.functional.cross_entropy(output, target)


def loss_that_fails_on_rank_1(output, target):
    """NaN in one process of several."""
    loss = slow_loss(output, target)
    return loss * float("nan") if os.environ["RANK"] == "1" else loss


def tiny_config(folder, method="emcmc", **schedule):
    config = RunConfig(run_dir=str(folder), method=method, log_every=7)
    if method == "ensemble":
        config = replace(config, chains=2)
    samples = {"samples_per_cycle": 2} if method in ("swa", "bsam") else {}
    if method in ("sgld", "sghmc", "emcmc", "entropy-sgld"):
        samples = {"cycles": 2, "samples_per_cycle": 1}
    if method == "emcmc":
        config = replace(config, roles="both")
    return with_parts(
        config,
        data={"name": "run.workers:tiny_data", "batch_size": 16},
        model={"name": "run.workers:tiny_model"},
        schedule={"epochs": 40, "burn_in": 0.5, **samples, **schedule},
        sampler={"fused": "no"},
        compute={"accelerator": "cpu", "threads": 1},
        output={"checkpoint_seconds": 0.1, "progress": False},
    )


def work(config, more_cycles=None):
    """What a worker process does, with the exit code of the command line; says it to a file."""
    sys.stderr = Path(f"{config.run_dir}.log").open("a", buffering=1)  # noqa: SIM115
    from entropy_mcmc.cli import guarded
    from entropy_mcmc.run.commands import sample_command

    sys.exit(guarded(lambda: sample_command(config, more_cycles, False)))


def work_as_rank(config, rank, world, port):
    """One process of several, as `torchrun` would start it; leaves a digest of its weights."""
    os.environ.update(
        TORCHELASTIC_RUN_ID="test",
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        GROUP_RANK="0",
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    sys.stderr = Path(f"{config.run_dir}.log{rank}").open("a", buffering=1)  # noqa: SIM115
    from entropy_mcmc.cli import guarded
    from entropy_mcmc.posterior.model_tensors import gather
    from entropy_mcmc.run.runner import run

    def command():
        model = run(config).posterior.model
        raw = b"".join(gather(p).numpy().tobytes() for p in model.parameters())
        Path(f"{config.run_dir}.rank{rank}").write_text(hashlib.sha256(raw).hexdigest())

    sys.exit(guarded(command))


def start_ranks(config, world):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [(config, rank, world, port) for rank in range(world)]
    processes = [CONTEXT.Process(target=work_as_rank, args=a) for a in arguments]
    for process in processes:
        process.start()
    return processes


def finish_ranks(config, world):
    processes = start_ranks(config, world)
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * world


def start(config, more_cycles=None):
    process = CONTEXT.Process(target=work, args=(config, more_cycles))
    process.start()
    return process


def finish(config, more_cycles=None):
    process = start(config, more_cycles)
    process.join()
    assert process.exitcode == 0


def wait_for_steps(folder, journal="metrics.jsonl"):
    """Until the run has written its first line."""
    path = folder / journal
    while not (path.exists() and path.stat().st_size):
        time.sleep(0.01)


def contents(folder):
    """Digest of everything that a run must repeat, by file name."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name[0] != "."]
    kept = [p for p in files if p.parent.parent.name != "checkpoint"]
    for chain in (folder / "checkpoint").iterdir():
        newest = max(p.stem for p in chain.glob("*.json"))
        kept += chain.glob(f"{newest}.*")
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(kept)
    }
