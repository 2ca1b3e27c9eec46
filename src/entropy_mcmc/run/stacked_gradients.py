"""Losses of K networks of one architecture in one forward pass, each on its own micro-batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from entropy_mcmc.chains.stacked_modules import AGREEMENT, StackedModules
from entropy_mcmc.data import Batches
from entropy_mcmc.errors import ConfigError
from entropy_mcmc.run.losses import Loss, classification
from entropy_mcmc.run.training_batches import Planned, Source


def stacked_losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of each network, from (network, row, …)."""
    if loss is classification and targets.dim() == 2:
        # As `vmap` of it, in a tenth of the calls.
        rows = F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
        return rows.view(len(targets), -1).mean(1)
    losses: Tensor = vmap(loss, randomness="error")(outputs, targets)
    return losses


def stacked_batch(sources: Sequence[Source], steps: Sequence[int], index: int, count: int) -> Any:
    """Micro-batches of several sources, each at its own step: (source, row, …)."""
    shared = _one_table(sources)
    if shared is None:
        pairs = [s.micro(step, index, count) for s, step in zip(sources, steps, strict=True)]
        return torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])
    parts = [source._part(index, count) for source in shared]
    rows = [part.rows(step) for part, step in zip(parts, steps, strict=True)]
    table, chosen = shared[0].batches.dataset, torch.cat(rows)
    inputs = table.normalise(table.inputs[chosen])
    targets = shared[0].standardised(table.targets[chosen])
    shape = (len(rows), -1)
    return inputs.unflatten(0, shape), targets.unflatten(0, shape)


def _one_table(sources: Sequence[Source]) -> list[Planned] | None:
    """The sources, if all read rows of one table in memory as they are."""
    planned = [s for s in sources if isinstance(s, Planned) and type(s.batches) is Batches]
    if len(planned) < len(sources) or any(s.batches.augmented for s in planned):
        return None
    first = planned[0].batches.dataset
    return planned if all(s.batches.dataset is first for s in planned) else None


@torch.no_grad()
def check_stackable(
    modules: Sequence[nn.Module], loss: Loss, inputs: Tensor, targets: Tensor
) -> None:
    """Raise if the stack of modules, which this changes, does not give their own losses."""
    for name, value in (("inputs", inputs), ("targets", targets)):
        if not isinstance(value, Tensor):
            raise ConfigError(f"{name} of the network are no tensor but {type(value).__name__}")
    stacked = StackedModules(modules)
    together = stacked_losses(loss, stacked(inputs), targets)
    alone = [loss(m(x), y) for m, x, y in zip(modules, inputs, targets, strict=True)]
    if not torch.allclose(together, torch.stack(alone), rtol=AGREEMENT, atol=AGREEMENT):
        raise ConfigError("their stack gives other losses than the networks alone")


def parameters_by_name(
    groups: Sequence[Mapping[str, Any]], stacked: Mapping[str, Tensor]
) -> list[dict[str, Any]]:
    """Parameter groups of one network, with the stacked parameters in place of its own."""
    return [
        {**group, "params": [(name, stacked[name]) for name, _ in group["params"]]}
        for group in groups
    ]
