"""Apply a rule to all tensors of a parameter group: eagerly, or by the compiled kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from entropy_mcmc import noise
from entropy_mcmc.samplers.kernel import compiled
from entropy_mcmc.samplers.kernel.tensor_buckets import Bucket, Slot, local, merged_counters, plan
from entropy_mcmc.samplers.rule import Eps, Update

KEYS_AT_A_TIME = 256  # steps whose noise keys are made together
CHUNK = 2**16  # elements per eager pass: temporaries stay in the cache and out of peak memory


def advance(
    update: Update,
    moved: Sequence[Sequence[Tensor]],
    read: Sequence[Sequence[Tensor]],
    schedule: noise.Schedule | None,
    slots: tuple[Slot, ...],
    *,
    fused: bool,
) -> None:
    """Move `moved[variable][parameter]` in place by the rule; no schedule, no noise."""
    for bucket in plan(slots):
        values = [_flatten(column, bucket) for column in (*moved, *read)]
        run_bucket(update, values, schedule, bucket, fused=fused)
        for column, value in zip(moved, values, strict=False):
            _write_back(column, bucket, value)


def schedule_of(
    update: Update,
    group: Mapping[str, Any],
    stream: int = 0,
    inner: int = 0,
    left: int | None = None,
) -> noise.Schedule | None:
    """Keys of a group's next step; `left` as in `numbers_of`."""
    if not update.normals:
        return None
    steps = numbers_of(update, group["step"], left)
    if stream or inner:  # of draws that are asked for now and then, and of nested chains
        keys = [noise.step_schedule(group["seed"], step, stream, inner) for step in steps]
    else:
        keys = [_kept_schedule(group["seed"], step) for step in steps]
    return tuple(word for key in keys for word in key)


def numbers_of(update: Update, step: int, left: int | None = None) -> tuple[int, ...]:
    """Numbers of the noise in a step: its own, or the two that a rule averages.

    Of these the first is the second of the move before. That is `step` where the last step moved
    the same, else it is `left`.
    """
    if update.pairs == 1:
        return (step,)
    return (step if left is None else left, step + 1)


def _kept_schedule(seed: int, step: int) -> tuple[int, ...]:
    """`step_schedule` of a chain, whose next steps are computed with it and kept."""
    if not 0 <= step < noise.STEP_LIMIT:
        return noise.step_schedule(seed, step)  # which refuses it
    first = step - step % KEYS_AT_A_TIME
    return _schedules(seed, first)[step - first]


@lru_cache(maxsize=64)
def _schedules(seed: int, first: int) -> list[tuple[int, ...]]:
    rows: list[list[int]] = noise.step_schedules(seed, first, KEYS_AT_A_TIME).T.tolist()
    return [tuple(row) for row in rows]


def run_bucket(
    update: Update,
    values: Sequence[Tensor],
    schedule: noise.Schedule | None,
    bucket: Bucket,
    *,
    fused: bool,
) -> None:
    """Move the variables among the flat `values` of a bucket in place, compiled or eagerly."""
    run = compiled.run if fused and _compiles(values[0]) else run_eager
    run(update, values, schedule, bucket.slots)


def _compiles(value: Tensor) -> bool:
    """Also where the parameters of one group are on several kinds of device."""
    return value.numel() >= compiled.LEAST and compiled.available(value.device.type)


def run_eager(
    update: Update,
    values: Sequence[Tensor],
    schedule: noise.Schedule | None,
    slots: tuple[Slot, ...],
) -> None:
    """Move the variables among the flat `values` in place, a cache-sized chunk at a time."""
    for start in range(0, values[0].numel(), CHUNK):
        part = [value[start : start + CHUNK] for value in values]
        eps = None if schedule is None else _normals(schedule, slots, start, part[0])
        for value, new in zip(part, update(part, eps), strict=False):
            value.copy_(new)


def _normals(schedule: noise.Schedule, slots: tuple[Slot, ...], start: int, like: Tensor) -> Eps:
    if len(slots) == 1:
        place = slots[0]
        x0, x1 = noise.counters(place.parameter, place.start + start, like.numel(), like.device)
    else:
        x0, x1 = (x[start : start + CHUNK] for x in merged_counters(slots, like.device))
    eps: Eps = noise.rule_normals(noise.normal_pair, schedule, x0, x1, like.dtype)
    return eps


def _flatten(column: Sequence[Tensor], bucket: Bucket) -> Tensor:
    parts = [local(column[i]) for i in bucket.members]
    if len(parts) == 1:
        return parts[0].reshape(-1)
    flat: Tensor = _flatten_dense_tensors(parts)  # type: ignore[no-untyped-call]
    return flat


def _write_back(column: Sequence[Tensor], bucket: Bucket, value: Tensor) -> None:
    targets = [local(column[i]) for i in bucket.members]
    if len(targets) == 1 and targets[0].data_ptr() == value.data_ptr():
        return  # `reshape` gave a view, which the kernel has moved already
    parts = _unflatten_dense_tensors(value, targets)  # type: ignore[no-untyped-call]
    torch._foreach_copy_(targets, parts)
