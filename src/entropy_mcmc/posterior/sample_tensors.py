"""From a model and its sampler to the tensors of one sample."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor

from entropy_mcmc.errors import ConfigError, check_count
from entropy_mcmc.posterior.manifest import Manifest
from entropy_mcmc.posterior.model_tensors import Layout, Slot, for_disk, gather

Variable = tuple[str, int | None]
"""What a sample holds: a role, and the number of the replica where θ is one of several."""


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


def offered(optimizer: Any) -> list[Variable]:
    """What an optimizer has to be stored: θ, or each replica of it, and the guide."""
    count = getattr(optimizer, "num_replicas", 1)
    thetas: list[Variable] = [("theta", i if count > 1 else None) for i in range(count)]
    return [*thetas, ("guide", None)] if hasattr(optimizer, "guide") else thetas


def kept(optimizer: Any, roles: str) -> list[Variable]:
    """What a store with these roles keeps of an optimizer at one step."""
    return [variable for variable in offered(optimizer) if roles in ("both", variable[0])]


def due(manifest: Manifest, optimizer: Any, step: int) -> list[Variable]:
    """What to write for this step: that which is kept, and not there yet."""
    if manifest.thin > 1 and _is_thinned(manifest, step):
        return []
    have = {sample.key for sample in manifest.samples}
    full = manifest.keep_last is not None and len(have) >= manifest.keep_last
    if full and step < min(key[0] for key in have):
        return []  # older than all that a full store keeps: it would be dropped again at once
    return [which for which in kept(optimizer, manifest.roles) if (step, *which) not in have]


def is_replay(manifest: Manifest, step: int) -> bool:
    """Whether a thinned store has been offered this step before (a resumed chain)."""
    return manifest.newest is not None and step <= manifest.newest


def _is_thinned(manifest: Manifest, step: int) -> bool:
    return is_replay(manifest, step) or manifest.offered % manifest.thin != 0


def split(model_layout: Layout, optimizer: Any) -> tuple[dict[str, Slot], dict[str, Slot]]:
    """Slots that belong to each sample, and parameters that nobody samples."""
    if optimizer is None:
        owned = {id(s.tensor) for s in model_layout.slots.values() if s.tensor.requires_grad}
    else:
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not owned & {id(slot.tensor) for slot in model_layout.slots.values()}:
            raise ConfigError(
                f"the {type(optimizer).__name__} given to collect moves no parameter of the "
                "posterior's model; make the posterior with the model whose parameters the "
                "sampler was given"
            )
    own: dict[str, Slot] = {}
    shared: dict[str, Slot] = {}
    for name, slot in model_layout.stored.items():
        mine = not slot.is_parameter or id(slot.tensor) in owned
        (own if mine else shared)[name] = slot
    if not any(slot.is_parameter for slot in own.values()):
        # Nothing is sampled here (a frozen model without its optimizer): every value counts.
        return {**own, **shared}, {}
    return own, shared


def tensors_for_disk(
    own: dict[str, Slot], optimizer: Any, which: Variable, dtype: torch.dtype | None
) -> dict[str, Tensor]:
    """Whole CPU tensors of one sample.

    Only parameters are stored in `dtype`: running statistics are few and lose more by rounding.
    """
    precise = {name: _precise(slot, optimizer, which) for name, slot in own.items()}
    # Read before `guide()`, which is free to swap the sampler's own tensors too.
    tensors = {n: for_disk(gather(t), dtype) for n, t in precise.items() if t is not None}
    with _showing(optimizer, which):
        for name, slot in own.items():
            if name not in tensors:
                kind = dtype if slot.is_parameter else None
                tensors[name] = _apart(for_disk(gather(slot.tensor), kind), slot.tensor, which)
    return tensors


def _showing(optimizer: Any, which: Variable) -> AbstractContextManager[Any]:
    """A block in which the variable is in the model."""
    role, replica = which
    if role == "guide":
        shown: AbstractContextManager[Any] = optimizer.guide()
    else:
        shown = nullcontext() if replica is None else optimizer.replica(replica)
    return shown


def _apart(tensor: Tensor, source: Tensor, which: Variable) -> Tensor:
    """θ is written before anyone changes it; all others leave the parameters before that."""
    shares = which != ("theta", None) and tensor.data_ptr() == source.data_ptr()
    return tensor.clone() if shares else tensor


def _precise(slot: Slot, optimizer: Any, which: Variable) -> Tensor | None:
    """The sampler's float32 value of a bfloat16 parameter, where it keeps one."""
    tensor, (role, replica) = slot.tensor, which
    state = getattr(optimizer, "state", {})
    if not slot.is_parameter or tensor.dtype != torch.bfloat16 or tensor not in state:
        return None
    if replica is not None:
        return cast(Tensor, optimizer.replica_value(tensor, replica))
    value = state[tensor].get("master" if role == "theta" else "guide")
    return value if isinstance(value, Tensor) and value.shape == tensor.shape else None


def dtype_name(tensors: dict[str, Tensor]) -> str:
    """The floating type of a sample, or "mixed"."""
    kinds = {str(t.dtype).removeprefix("torch.") for t in tensors.values() if t.is_floating_point()}
    return kinds.pop() if len(kinds) == 1 else "mixed"
