"""Writing samples: what `collect` and `refresh_batchnorm` do on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc import __version__
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.posterior import ranks
from entropy_mcmc.posterior.batchnorm import norm_layers
from entropy_mcmc.posterior.manifest import Manifest, Sample, StoredFile, stem
from entropy_mcmc.posterior.model_inputs import home
from entropy_mcmc.posterior.model_tensors import (
    Slot,
    content_digest,
    for_disk,
    gather,
    layout,
    reshard,
)
from entropy_mcmc.posterior.sample_tensors import (
    Variable,
    dtype_name,
    due,
    is_replay,
    offered,
    split,
    tensors_for_disk,
)
from entropy_mcmc.posterior.store import Store, Tensors

LIBRARY = f"entropy_mcmc {__version__}"


@dataclass(frozen=True)
class Origin:
    """Where in a run a sample was drawn; None for what the collector does not know.

    `batchnorm` is the state of its batch-norm statistics, one of `manifest.BATCHNORM`.
    """

    step: int
    cycle: int | None
    chain: int | None
    batchnorm: str


def batchnorm_state(model: nn.Module, *, frozen: bool) -> str:
    """Whether samples need statistics of their own: "stale", or "none" where there are none to get.

    Raises:
        ConfigError: The statistics are said to be frozen, and a layer is still updating them.
    """
    layers = norm_layers(model)
    if not layers or not frozen:
        return "stale" if layers else "none"
    moving = [n for n, m in model.named_modules() if m.training and any(m is x for x in layers)]
    if moving:
        raise ConfigError(
            f"frozen_batchnorm needs every batch-norm layer in eval mode, and {len(moving)} of "
            f"{len(layers)} are in training mode, such as {moving[0]!r}; call eval() on them "
            "before the first step, or leave frozen_batchnorm out and refresh"
        )
    return "none"


def write_samples(store: Store, model: nn.Module, optimizer: Any, origin: Origin) -> int:
    """Write the samples that are due: θ, or each replica of it, and the guide; returns how many."""
    device = home(model)[0]
    wanted = due(store.manifest, optimizer, origin.step)
    agreed = [v for v in offered(optimizer) if ranks.agree(int(v in wanted), device)]
    entries = [write_sample(store, model, optimizer, which, origin) for which in agreed]
    new = [entry for entry in entries if entry is not None]
    ranks.on_main(lambda: add(store, origin.step, new), device)
    return len(agreed)


def write_sample(
    store: Store, model: nn.Module, optimizer: Any, which: Variable, origin: Origin
) -> Sample | None:
    """Gather one sample on every rank and write it on rank 0, which returns its entry."""
    reshard(model)
    own, shared = split(layout(model), optimizer)
    dtype = None if store.manifest.dtype is None else torch.bfloat16
    tensors = tensors_for_disk(own, optimizer, which, dtype)
    written: list[Sample] = []
    role, replica = which

    def write(shared_file: StoredFile | None) -> None:
        file = store.write(f"{stem((origin.step, *which))}.safetensors", tensors)
        kind = dtype_name({n: t for n, t in tensors.items() if own[n].is_parameter})
        place = origin.step, origin.cycle, origin.batchnorm
        made = Sample(file, shared_file, role, *place, kind, LIBRARY, origin.chain, replica)
        written.append(made)

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
        name, _, round_ = sample.file.name.removesuffix(".safetensors").partition("-bn")
        file = store.write(f"{name}-bn{int(round_ or 0) + 1}.safetensors", tensors)
        done = replace(sample, file=file, batchnorm="fresh")
        samples = tuple(done if s.key == sample.key else s for s in store.manifest.samples)
        store.commit(replace(store.manifest, samples=samples))


def _either(fresh: Mapping[str, Tensor], own: Tensors, name: str) -> Tensor:
    return fresh[name] if name in fresh else own[name].read()
