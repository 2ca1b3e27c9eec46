"""Devices, precision and processes, from Lightning Fabric wherever it does something."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from entropy_mcmc.errors import ConfigError, EntropyMCMCError, StateError
from entropy_mcmc.run.config import ComputeConfig, RunConfig
from entropy_mcmc.run.methods import METHODS
from entropy_mcmc.run.one_process import OneProcess, is_enough

DOUBLE = "64-true"
T = TypeVar("T")


def make_fabric(config: RunConfig) -> Any:
    """A launched Fabric; under `torchrun` the number of processes comes from there."""
    check_precision(config)
    compute = config.compute
    if is_enough(compute):
        return OneProcess()
    from lightning_fabric import Fabric
    from lightning_fabric.utilities.exceptions import MisconfigurationException

    devices, nodes = _processes(compute)
    strategy = _strategy(compute, devices * nodes) if devices * nodes > 1 else "auto"
    try:
        fabric = Fabric(
            accelerator=compute.accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            precision=_precision(compute),
        )
    except (ValueError, RuntimeError, MisconfigurationException) as error:
        raise ConfigError(
            f"compute.accelerator={compute.accelerator!r} with compute.devices={devices} cannot be "
            f"had here ({error}); --compute.accelerator cpu always can"
        ) from error
    fabric.launch()
    return fabric


def own_fabric(fabric: Any, config: RunConfig) -> Any:
    """The Fabric of a network: that of all processes, unless each process has one of its own."""
    strategy = config.compute.strategy
    if strategy == "replicas":
        check_replicas(config.replicas, fabric.world_size)
    if fabric.world_size == 1 or strategy not in ("chains", "replicas"):
        return fabric
    if config.compute.sync_batchnorm:
        raise ConfigError(
            f"compute.sync_batchnorm must be false with compute.strategy={strategy!r}: it would "
            "mix the networks of different processes"
        )
    from lightning_fabric import Fabric

    index = fabric.device.index
    return Fabric(
        accelerator=fabric.device.type,
        devices=1 if index is None else [index],
        precision=_precision(config.compute),
    )


def check_replicas(replicas: int, processes: int) -> None:
    """Refuse processes that cannot have one replica each; one process has all of them."""
    if processes in (1, replicas):
        return
    start = f"start {replicas} processes or one" if replicas > 1 else "leave compute.strategy out"
    raise ConfigError(
        f"replicas must be {processes} on {processes} processes with compute.strategy='replicas', "
        f"which gives each its own, got replicas={replicas}; use --replicas {processes}, or {start}"
    )


def on_first(fabric: Any, action: Callable[[], T]) -> T | None:
    """Run `action` on process 0; if it fails there, all processes stop, with a message."""
    fabric.barrier()  # what the others read before, they read before `action` changes it
    done: T | None = None
    failure: Exception | None = None
    if fabric.is_global_zero:
        try:
            done = action()
        except Exception as error:
            failure = error
    failed = torch.tensor(float(failure is not None), device=fabric.device)
    if fabric.world_size > 1:
        failed = fabric.all_reduce(failed, reduce_op="max")
    if failure is not None:
        raise failure
    if failed:
        raise StateError("process 0 stopped before the first step; its own message says why")
    return done


@contextmanager
def loss_explained(fabric: Any, where: Callable[[], str] = str) -> Iterator[None]:
    """Turn the error of a broken connection into a message that says what to do."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, EntropyMCMCError) or fabric.world_size == 1:
            raise
        raise StateError(
            f"process {fabric.global_rank} stopped{where()}, most likely because another one "
            f"failed or was lost or timed out ({error}); look for the message of that one, then "
            "run the same command again to go on from the last checkpoint, with any number of "
            "processes"
        ) from error


def check_precision(config: RunConfig) -> None:
    """Refuse half precision where its gradient scaling would be wrong."""
    if config.compute.precision != "16-mixed":
        return
    closure = METHODS[config.method].sampler.needs_closure
    on_cpu = config.compute.accelerator == "cpu" or not torch.cuda.is_available()
    if closure or on_cpu:
        where = f"method {config.method!r}, which takes several gradients" if closure else "the CPU"
        raise ConfigError(
            f"compute.precision must not be '16-mixed' for {where}; use 'bf16-mixed', "
            "which needs no scaling of the gradient"
        )
    raise ConfigError(
        "compute.precision must not be '16-mixed': its scaled gradients would reach the sampler; "
        "use 'bf16-mixed'"
    )


def check_device(name: str) -> torch.device:
    """The device of this name, if it can hold numbers here."""
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise ValueError("it holds no values")
        torch.zeros(1, device=device)
    except (RuntimeError, ValueError, AssertionError, ImportError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"device must be one that is here, such as cpu or cuda, got {name!r} ({reason:.160})"
        ) from error
    return device


def _processes(compute: ComputeConfig) -> tuple[int, int]:
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return compute.devices, compute.nodes
    world = int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    return local, world // local


def _precision(compute: ComputeConfig) -> Any:
    # Fabric's double precision casts the output back to float32; `cast` does it instead.
    return "32-true" if compute.precision == DOUBLE else compute.precision


def _strategy(compute: ComputeConfig, processes: int) -> Any:
    from lightning_fabric.strategies.ddp import DDPStrategy
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

    timeout = timedelta(seconds=compute.timeout)
    if compute.strategy == "fsdp2":
        return ModelParallelStrategy(shard, processes, 1, timeout=timeout)
    return DDPStrategy(timeout=timeout)


def shard(model: nn.Module, mesh: Any) -> nn.Module:
    """FSDP2: shard the children that hold parameters, then the rest, over the data axis."""
    from torch.distributed.fsdp import fully_shard

    axis = mesh["data_parallel"]
    for child in model.children():
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=axis)
    fully_shard(model, mesh=axis)
    return model


def setup(fabric: Any, model: nn.Module, compute: ComputeConfig) -> tuple[nn.Module, Any]:
    """The model on its device, and the wrapped one to call."""
    if compute.precision == DOUBLE:
        model = model.double()
    if compute.sync_batchnorm:
        if fabric.device.type == "cpu":
            raise ConfigError(
                "compute.sync_batchnorm must be false on the CPU, which has no such layer; "
                "batch norm then uses the statistics of each micro-batch"
            )
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    return model, fabric.setup_module(model)


def seed_generators(seed: int, fabric: Any) -> None:
    """Start the generators of the CPU and of the device; `torch.manual_seed` visits all kinds."""
    torch.default_generator.manual_seed(seed)
    if fabric.device.type != "cpu":
        torch.get_device_module(fabric.device).manual_seed(seed)


def cast(value: Any, precision: str) -> Any:
    """Floating tensors in float64 where the run is in double precision."""
    if precision == DOUBLE and isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


@contextmanager
def without_running_statistics(model: nn.Module) -> Iterator[None]:
    """Train batch norm on batch statistics alone.

    Running averages would depend on how micro-batches are spread over processes; each sample gets
    its own statistics from `refresh_batchnorm` anyway.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True
