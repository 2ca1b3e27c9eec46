"""Hugging Face transformers: a callback that turns `Trainer.train` into sampling.

Give the sampler to the Trainer as `optimizers=(sampler, None)` and to the callback.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.optim import Optimizer
from transformers import TrainerCallback

from entropy_mcmc.integrations.collector import Collector
from entropy_mcmc.posterior import Posterior


def logits_of(result: Any) -> Any:
    """The logits of a model's output."""
    return result.logits


class CollectSamples(TrainerCallback):
    """Drive a sampler through cycles, and keep the samples that are due.

    Parameters that the sampler does not own, such as a backbone below adapters, are stored once.
    The cycle has the last word on lr: the Trainer's own scheduler comes before it. With several
    ranks every rank takes part and rank 0 writes. `trainer.train(resume_from_checkpoint=True)` goes
    on with the chain: the Trainer's checkpoint holds the sampler's state, which loads with
    `weights_only=True`, and the schedule follows from the step.

    Args:
        sampler: The optimizer that the Trainer was given.
        folder: A new folder for the samples.
        cycles: Warm restarts of lr.
        burn_in: Part of each cycle without noise.
        samples_per_cycle: Samples kept in each.
        coupled: When θ and θ_a are: "always", or "noisy", after burn-in, as recipes have it.
        warm_up: Part of the first cycle in which lr rises to its peak.
        refresh_batchnorm: Give every sample its own batch-norm statistics from the training data,
            at the end; nothing is done for a network without batch norm.
        options: Of `Posterior.create`: likelihood, output (the logits by default), roles, dtype,
            thin, keep_last.
    """

    def __init__(
        self,
        sampler: Optimizer,
        folder: str | Path,
        *,
        cycles: int = 4,
        burn_in: float = 0.8,
        samples_per_cycle: int = 2,
        coupled: str = "always",
        warm_up: float = 0.0,
        refresh_batchnorm: bool = True,
        **options: Any,
    ) -> None:
        self.refresh_batchnorm = refresh_batchnorm
        self._sampler = sampler
        self._base_lrs = [float(group["lr"]) for group in sampler.param_groups]
        self._collector = Collector(
            folder,
            cycles=cycles,
            burn_in=burn_in,
            samples_per_cycle=samples_per_cycle,
            coupled=coupled,
            warm_up=warm_up,
            **{"output": logits_of, **options},
        )

    @property
    def posterior(self) -> Posterior:
        """The samples, from the beginning of the training on."""
        return self._collector.posterior

    def on_train_begin(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """The Trainer knows by now how many steps it will make, and how many it has made."""
        for group, lr in zip(self._sampler.param_groups, self._base_lrs, strict=True):
            group["lr"] = lr  # the Trainer's own scheduler may have begun a warm-up
        self._collector.begin(known["model"], self._sampler, state.max_steps, state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called once per optimizer step, after the Trainer's own scheduler."""
        self._collector.reach(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **known: Any) -> None:
        """Batch-norm statistics of every sample."""
        self._collector.finish(known["train_dataloader"] if self.refresh_batchnorm else None)
