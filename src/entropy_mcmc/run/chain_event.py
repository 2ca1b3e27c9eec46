"""The line of `metrics.jsonl` about the last steps of a chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from entropy_mcmc.errors import NonFiniteError
from entropy_mcmc.posterior.manifest import stored_step
from entropy_mcmc.run.methods import gradients_per_step

if TYPE_CHECKING:
    from entropy_mcmc.run.chain import Chain


def train_event(chain: Chain) -> dict[str, Any]:
    """What is logged of the steps since the last line; the loss is their mean."""
    fabric = chain.context.fabric
    mean = chain.loss_sum / max(1, chain.loss_count)
    loss = float(fabric.all_reduce(mean, reduce_op="mean") if fabric.world_size > 1 else mean)
    if not torch.isfinite(torch.tensor(loss)):
        raise NonFiniteError(
            f"the loss is {loss} at step {chain.step}; lower sampler.lr, or clip the gradient"
        )
    group = chain.sampler.param_groups[0]
    return {
        "kind": "train",
        "chain": chain.number,
        "step": chain.step,
        "gradients": chain.step * gradients_per_step(chain.context.config),
        "cycle": chain.plan.cycle(chain.step - 1),
        "loss": loss,
        "lr": group["lr"],
        "temperature": group.get("temperature", 0.0) if group.get("noise") else 0.0,
        "samples": _samples(chain),
        **_clipping(chain),
    }


def _clipping(chain: Chain) -> dict[str, float]:
    """Share of all gradients of noisy steps so far that were clipped."""
    noisy, clipped = chain.clip_counts()
    return {"clipped": round(clipped / noisy, 6)} if noisy else {}


def _samples(chain: Chain) -> int:
    low, high = stored_step(chain.number, 0), stored_step(chain.number, chain.step)
    return sum(low < sample.step <= high for sample in chain.context.posterior.samples)
