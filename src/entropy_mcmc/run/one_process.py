"""What the loop asks of Lightning Fabric, for one process on the CPU in full precision.

There Fabric changes nothing, and its import takes longer than the first epochs of a small network.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from entropy_mcmc.run.config import ComputeConfig

FULL = ("32-true", "64-true")


class OneProcess:
    """The part of Fabric's interface that a run uses, for the only process of a run."""

    world_size = 1
    global_rank = 0
    is_global_zero = True
    device = torch.device("cpu")

    def barrier(self) -> None:
        """Nobody to wait for."""

    def setup_module(self, model: nn.Module) -> nn.Module:
        """The model itself: it is where it belongs, in its precision."""
        return model

    def to_device(self, value: Any) -> Any:
        """The value with all that can be moved (`.to`) on the CPU."""
        if hasattr(value, "to"):
            return value.to(self.device)
        return tree_map(lambda part: part.to(self.device) if hasattr(part, "to") else part, value)

    def no_backward_sync(self, module: Any, enabled: bool = True) -> AbstractContextManager[None]:
        """There is no gradient to average."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Accumulate gradients."""
        loss.backward()  # type: ignore[no-untyped-call]


def is_enough(compute: ComputeConfig) -> bool:
    """Whether a run needs nothing else of Fabric: one process, the CPU, no mixed precision."""
    if compute.devices * compute.nodes > 1 or "TORCHELASTIC_RUN_ID" in os.environ:
        return False
    return compute.precision in FULL and _on_cpu(compute.accelerator)


def _on_cpu(accelerator: str) -> bool:
    if accelerator != "auto":
        return accelerator == "cpu"
    return not (torch.accelerator.is_available() or "PJRT_DEVICE" in os.environ)
