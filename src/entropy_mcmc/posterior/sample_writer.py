"""Writing samples: what `collect` and `refresh_batchnorm` do on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc import __version__
from entropy_mcmc.posterior import ranks
from entropy_mcmc.posterior.batchnorm import norm_layers
from entropy_mcmc.posterior.manifest import ROLES, Manifest, Sample, StoredFile
from entropy_mcmc.posterior.model_inputs import home
from entropy_mcmc.posterior.sample_tensors import (
    dtype_name,
    due,
    is_replay,
    split,
    tensors_for_disk,
)
from entropy_mcmc.posterior.store import OpenTensor, Store
from entropy_mcmc.posterior.tensors import (
    Slot,
    content_digest,
    for_disk,
    gather,
    layout,
    reshard,
)

LIBRARY = f"entropy_mcmc {__version__}"


@dataclass(frozen=True)
class Origin:
    """Where in a run a sample was drawn; None for what the collector does not know."""

    step: int
    cycle: int | None
    chain: int | None


def write_samples(store: Store, model: nn.Module, optimizer: Any, origin: Origin) -> int:
    """Write the samples that are due, one for each role; returns how many."""
    device = home(model)[0]
    wanted = due(store.manifest, optimizer, origin.step)
    flags = ranks.agree(sum(1 << i for i, r in enumerate(ROLES) if r in wanted), device)
    roles = [role for i, role in enumerate(ROLES) if flags >> i & 1]
    entries = [write_sample(store, model, optimizer, role, origin) for role in roles]
    new = [entry for entry in entries if entry is not None]
    ranks.on_main(lambda: add(store, origin.step, new), device)
    return len(roles)


def write_sample(
    store: Store, model: nn.Module, optimizer: Any, role: str, origin: Origin
) -> Sample | None:
    """Gather one sample on every rank and write it on rank 0, which returns its entry."""
    reshard(model)
    own, shared = split(layout(model), optimizer)
    dtype = None if store.manifest.dtype is None else torch.bfloat16
    tensors = tensors_for_disk(own, optimizer, role, dtype)
    written: list[Sample] = []

    def write(shared_file: StoredFile | None) -> None:
        file = store.write(f"{origin.step:010d}-{role}.safetensors", tensors)
        state = "stale" if norm_layers(model) else "none"
        kind = dtype_name({n: t for n, t in tensors.items() if own[n].is_parameter})
        place = origin.step, origin.cycle
        written.append(Sample(file, shared_file, role, *place, state, kind, LIBRARY, origin.chain))

    shared_file = _write_shared(store, shared, home(model)[0])
    ranks.on_main(lambda: write(shared_file), home(model)[0])
    return written[0] if written else None


def _write_shared(
    store: Store, shared: Mapping[str, Slot], device: torch.device
) -> StoredFile | None:
    """The file of the parameters that nobody samples, written once for each content."""
    if not shared:
        return None
    name = f"shared-{content_digest({n: s.tensor for n, s in shared.items()})}.safetensors"
    known = {s.shared.name: s.shared for s in store.manifest.samples if s.shared is not None}
    if ranks.agree(int(name in known), device):
        return known.get(name)
    tensors = {n: for_disk(gather(s.tensor), None) for n, s in shared.items()}
    files: list[StoredFile] = []
    ranks.on_main(lambda: files.append(store.write(name, tensors)), device)
    return files[0] if files else None


def add(store: Store, step: int, samples: list[Sample]) -> None:
    """Commit new samples; count the step for thinning; drop the oldest beyond the cap."""
    manifest = store.manifest
    updated = replace(manifest, samples=_newest(manifest, samples))
    if manifest.thin > 1 and not is_replay(manifest, step):
        updated = replace(updated, offered=manifest.offered + 1, newest=step)
    if updated != manifest:
        store.commit(updated)


def _newest(manifest: Manifest, new: list[Sample]) -> tuple[Sample, ...]:
    ordered = sorted([*manifest.samples, *new], key=lambda sample: sample.order)
    return tuple(ordered[-manifest.keep_last :] if manifest.keep_last else ordered)


def replace_buffers(store: Store, sample: Sample, fresh: Mapping[str, Tensor]) -> None:
    """Write a sample again on rank 0, with new batch-norm buffers and under a new name."""
    device = next(iter(fresh.values())).device
    ranks.on_main(lambda: _replace_buffers(store, sample, fresh), device)


def _replace_buffers(store: Store, sample: Sample, fresh: Mapping[str, Tensor]) -> None:
    with store.changing, store.read(replace(sample, shared=None)) as own:
        tensors = {name: for_disk(_either(fresh, own, name), None) for name in own}
        stem, _, round_ = sample.file.name.removesuffix(".safetensors").partition("-bn")
        file = store.write(f"{stem}-bn{int(round_ or 0) + 1}.safetensors", tensors)
        done = replace(sample, file=file, batchnorm="fresh")
        samples = tuple(done if s.key == sample.key else s for s in store.manifest.samples)
        store.commit(replace(store.manifest, samples=samples))


def _either(fresh: Mapping[str, Tensor], own: Mapping[str, OpenTensor], name: str) -> Tensor:
    return fresh[name] if name in fresh else own[name].read()
