"""Lightning: the sampler is the optimizer of a LightningModule, a callback collects the samples."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import lightning as L
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from entropy_mcmc import EntropyMCMC, Posterior, metrics, schedules


class Digits(L.LightningModule):
    """An ordinary LightningModule; only `configure_optimizers` knows about sampling."""

    def __init__(self, num_data: int) -> None:
        super().__init__()
        self.num_data = num_data
        self.net = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.net(x)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """The mean loss of a mini-batch, as always."""
        x, y = batch
        return F.cross_entropy(self(x), y)

    def configure_optimizers(self) -> EntropyMCMC:
        """No scheduler here: the callback drives lr, noise and collection together."""
        lr = 1.0
        return EntropyMCMC(
            self.parameters(),
            lr=lr,
            num_data=self.num_data,
            eta=10 * lr / self.num_data,
            temperature=0.01,
            weight_decay=5e-4,
            seed=0,
        )


class CollectSamples(L.Callback):
    """Drive the module's sampler through cycles, and keep the samples that are due.

    Args:
        folder: A new folder for the samples.
        cycles: Warm restarts of lr.
        samples_per_cycle: Samples kept in each.
    """

    def __init__(self, folder: str | Path, cycles: int = 4, samples_per_cycle: int = 2) -> None:
        self.folder, self.cycles, self.samples_per_cycle = folder, cycles, samples_per_cycle

    def on_train_start(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Lightning knows by now how many optimizer steps there will be."""
        self.sampler = trainer.optimizers[0]
        self.schedule = schedules.Cyclical(
            self.sampler,
            total_steps=int(trainer.estimated_stepping_batches),
            cycles=self.cycles,
            samples_per_cycle=self.samples_per_cycle,
        )
        self.posterior = Posterior.create(self.folder, module)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """With accumulated gradients a batch may end without a step."""
        if trainer.global_step == self.schedule.last_step:
            return
        if self.schedule.step():
            self.posterior.collect(self.sampler)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Fit with the Trainer, then predict with the average."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000, help="training images")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--accumulate", type=int, default=1, help="batches per optimizer step")
    options = parser.parse_args(argv)
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32)
    x, x_test, y, y_test = train_test_split(images, torch.tensor(labels), random_state=0)
    x, y = x[: options.rows], y[: options.rows]
    L.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        collect = CollectSamples(Path(folder) / "run")
        trainer = L.Trainer(
            max_epochs=options.epochs,
            accumulate_grad_batches=options.accumulate,
            callbacks=[collect],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
        trainer.fit(Digits(len(x)), loader)
        print(collect.posterior)
        found = metrics.summary(collect.posterior.predict_proba(x_test), y_test)
    print({name: round(value, 4) for name, value in found.items()})
    return {"samples": len(collect.posterior.samples), **found}


if __name__ == "__main__":
    main()
