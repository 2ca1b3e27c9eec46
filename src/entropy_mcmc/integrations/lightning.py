"""Lightning: a callback that turns `Trainer.fit` into sampling.

`configure_optimizers` returns a sampler and no scheduler; the callback does the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from torch.optim import Optimizer

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.integrations.collector import Collector
from entropy_mcmc.posterior import Posterior


class CollectSamples(pl.Callback):
    """Drive the module's sampler through cycles, and keep the samples that are due.

    The samples are those of the LightningModule, whose `forward` predicts. Under a strategy with
    several ranks every rank takes part and rank 0 writes. `trainer.fit(…, ckpt_path=…,
    weights_only=True)` goes on with the chain: Lightning's checkpoint holds the sampler's state,
    and the schedule follows from the step. lr, noise and the number of samples go to the trainer's
    loggers.

    Args:
        folder: A new folder for the samples.
        cycles: Warm restarts of lr.
        burn_in: Part of each cycle without noise.
        samples_per_cycle: Samples kept in each.
        coupled: When θ and θ_a are: "always", or "noisy", after burn-in, as recipes have it.
        warm_up: Part of the first cycle in which lr rises to its peak.
        refresh_batchnorm: Give every sample its own batch-norm statistics from the training data,
            at the end; nothing is done for a network without batch norm.
        options: Of `Posterior.create`: likelihood, output, roles, dtype, thin, keep_last.
    """

    def __init__(
        self,
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
        self._collector = Collector(
            folder,
            cycles=cycles,
            burn_in=burn_in,
            samples_per_cycle=samples_per_cycle,
            coupled=coupled,
            warm_up=warm_up,
            **options,
        )

    @property
    def posterior(self) -> Posterior:
        """The samples, from the beginning of the training on."""
        return self._collector.posterior

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Lightning knows by now how many optimizer steps there will be."""
        total = trainer.estimated_stepping_batches
        self._collector.begin(pl_module, _sampler(trainer), total, trainer.global_step)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """With accumulated gradients a batch may end without a step."""
        if self._collector.reach(trainer.global_step):
            for logger in trainer.loggers:  # Lightning counts the steps of its loggers from 0
                logger.log_metrics(self._collector.readings(), step=trainer.global_step - 1)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Batch-norm statistics of every sample."""
        self._collector.finish(trainer.train_dataloader if self.refresh_batchnorm else None)

    def on_exception(self, trainer: pl.Trainer, *_: Any) -> None:
        """Let the training be resumed in this process."""
        self._collector.close()


def _sampler(trainer: pl.Trainer) -> Optimizer:
    """The one optimizer of the module."""
    if len(trainer.optimizers) != 1:
        raise ConfigError(
            f"configure_optimizers must return one sampler, got {len(trainer.optimizers)} "
            "optimizers; give it all parameters, in groups if they differ"
        )
    if trainer.lr_scheduler_configs:
        raise ConfigError(
            "configure_optimizers must return no lr scheduler, got "
            f"{type(trainer.lr_scheduler_configs[0].scheduler).__name__}; CollectSamples drives "
            "lr and noise together"
        )
    sampler: Optimizer = trainer.optimizers[0]
    return sampler
