"""Notice a NaN or infinite gradient, and name its parameter and step, without a sync per step."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.samplers.kernel.tensor_buckets import local

NEVER = 2**62


class FiniteWatch:
    """Remembers, on the device, the first step at which each parameter's gradient was not finite.

    On the CPU, where reading a flag costs nothing, a bad gradient is reported before it touches
    the parameters. On other devices it is reported when `report` is called.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.first_bad: dict[torch.device, Tensor] = {}

    def record(self, indices: Sequence[int], grads: Sequence[Tensor], step: int) -> None:
        """Look at the gradients of the parameters `indices` at `step`."""
        by_device: dict[torch.device, list[int]] = {}
        for position, grad in enumerate(grads):
            by_device.setdefault(grad.device, []).append(position)
        for device, positions in by_device.items():
            parts = [local(grads[i]) for i in positions if local(grads[i]).numel()]
            if not parts:
                continue
            if device.type == "cpu" and sums_are_finite(parts):
                continue
            # The largest magnitude: it is NaN or infinite exactly if an element is.
            norms = torch.stack([n.double() for n in torch._foreach_norm(parts, float("inf"))])
            bad = ~norms.isfinite()
            where = torch.tensor(
                [indices[i] for i in positions if local(grads[i]).numel()], device=device
            )
            first = self.first_bad.setdefault(
                device, torch.full((len(self.names),), NEVER, device=device)
            )
            first[where] = torch.where(bad, first[where].clamp(max=step), first[where])
            if device.type == "cpu":
                self.report()

    def report(self) -> None:
        """Raise if a bad gradient was seen; this is the only place that waits for the device."""
        for first in self.first_bad.values():
            step = int(first.min())
            if step == NEVER:
                continue
            bad = [self.names[int(i)] for i in (first == step).nonzero().flatten()]
            shown = ", ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
            self.first_bad = {}
            raise NonFiniteError(
                f"the gradient of {shown} is NaN or infinite at step {step}; lower lr, clip the "
                f"gradient, or look for NaN in the data and for log(0) in the loss"
            )


def sums_are_finite(parts: Sequence[Tensor]) -> bool:
    """A sum is finite only if its terms are; on the CPU it is 40 times cheaper than the maximum."""
    return math.isfinite(sum(part.sum().item() for part in parts))
