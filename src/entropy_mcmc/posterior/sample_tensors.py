"""From a model and its sampler to the tensors of one sample."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.errors import ConfigError, check_count
from entropy_mcmc.posterior.manifest import ROLES, Manifest
from entropy_mcmc.posterior.tensors import Layout, Slot, for_disk, gather


def step_of(optimizer: Any, step: int | None, manifest: Manifest) -> int:
    """The step of a sample: as given, else the sampler's own, else the next number."""
    if step is not None:
        return check_count("step", step, least=0)
    groups = getattr(optimizer, "param_groups", ())
    counts = [int(group["step"]) for group in groups if "step" in group]
    if counts:
        return max(counts)
    known = [sample.step for sample in manifest.samples]
    newest = -1 if manifest.newest is None else manifest.newest
    return max([newest, *known]) + 1


def due(manifest: Manifest, optimizer: Any, step: int) -> tuple[str, ...]:
    """Roles to write for this step: those kept, offered by the optimizer and not there yet."""
    if manifest.thin > 1 and _is_thinned(manifest, step):
        return ()
    offered = ROLES if hasattr(optimizer, "guide") else ("theta",)
    wanted = ROLES if manifest.roles == "both" else (manifest.roles,)
    have = {sample.key for sample in manifest.samples}
    roles = tuple(r for r in ROLES if r in offered and r in wanted and (step, r) not in have)
    full = manifest.keep_last is not None and len(have) >= manifest.keep_last
    # Older than all that a full store keeps: it would be dropped again at once.
    return () if full and step < min(s for s, _ in have) else roles


def is_replay(manifest: Manifest, step: int) -> bool:
    """Whether a thinned store has been offered this step before (a resumed chain)."""
    return manifest.newest is not None and step <= manifest.newest


def _is_thinned(manifest: Manifest, step: int) -> bool:
    return is_replay(manifest, step) or manifest.offered % manifest.thin != 0


def split(found: Layout, optimizer: Any) -> tuple[dict[str, Slot], dict[str, Slot]]:
    """Slots that belong to each sample, and parameters that nobody samples."""
    if optimizer is None:
        owned = {id(s.tensor) for s in found.slots.values() if s.tensor.requires_grad}
    else:
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not owned & {id(slot.tensor) for slot in found.slots.values()}:
            raise ConfigError(
                f"the {type(optimizer).__name__} given to collect moves no parameter of the "
                "posterior's model; make the posterior with the model whose parameters the "
                "sampler was given"
            )
    own: dict[str, Slot] = {}
    shared: dict[str, Slot] = {}
    for name, slot in found.stored.items():
        mine = not slot.is_parameter or id(slot.tensor) in owned
        (own if mine else shared)[name] = slot
    if not any(slot.is_parameter for slot in own.values()):
        # Nothing is sampled here (a frozen model without its optimizer): every value counts.
        return {**own, **shared}, {}
    return own, shared


def tensors_for_disk(
    own: dict[str, Slot], optimizer: Any, role: str, dtype: torch.dtype | None
) -> dict[str, Tensor]:
    """Whole CPU tensors of one sample.

    Only parameters are stored in `dtype`: running statistics are few and lose more by rounding.
    """
    precise = {name: _precise(slot, optimizer, role) for name, slot in own.items()}
    # Read before `guide()`, which is free to swap the sampler's own tensors too.
    tensors = {n: for_disk(gather(t), dtype) for n, t in precise.items() if t is not None}
    with optimizer.guide() if role == "guide" else nullcontext():
        for name, slot in own.items():
            if name not in tensors:
                kind = dtype if slot.is_parameter else None
                tensors[name] = _apart(for_disk(gather(slot.tensor), kind), slot.tensor, role)
    return tensors


def _apart(tensor: Tensor, source: Tensor, role: str) -> Tensor:
    """θ is written before anyone changes it; the guide leaves the parameters before that."""
    shares = role == "guide" and tensor.data_ptr() == source.data_ptr()
    return tensor.clone() if shares else tensor


def _precise(slot: Slot, optimizer: Any, role: str) -> Tensor | None:
    """The sampler's float32 value of a bfloat16 parameter, where it keeps one."""
    tensor = slot.tensor
    state = getattr(optimizer, "state", {})
    if not slot.is_parameter or tensor.dtype != torch.bfloat16 or tensor not in state:
        return None
    kept = state[tensor].get("master" if role == "theta" else "guide")
    return kept if isinstance(kept, Tensor) and kept.shape == tensor.shape else None


def dtype_name(tensors: dict[str, Tensor]) -> str:
    """The floating type of a sample, or "mixed"."""
    kinds = {str(t.dtype).removeprefix("torch.") for t in tensors.values() if t.is_floating_point()}
    return kinds.pop() if len(kinds) == 1 else "mixed"
