"""What is read off a trajectory: last network, samples, averages of weights, SWAG, Laplace."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from entropy_mcmc import EntropyMCMC
from tournament import laplace, schedule
from tournament.data import Data
from tournament.settings import GAUSSIAN, NESTED, Settings
from tournament.swag import Moments

ROWS_AT_ONCE, PICTURES_AT_ONCE = 1000, 64  # a picture's activations should stay in the cache
DRAWS = 8  # networks of a Gaussian
# They pass batches through other weights than θ: its batch-norm statistics are made anew.
ASTRAY = ("sam", *NESTED)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def has_batchnorm(model: nn.Module) -> bool:
    """Whether running statistics must follow the weights."""
    return any(isinstance(module, NORMS) for module in model.modules())


@torch.no_grad()
def ask(model: nn.Module, split: Data) -> np.ndarray:
    """Outputs for validation, test and OOD rows, in evaluation mode."""
    training = model.training
    model.eval()
    asked = split.asked()
    at_once = PICTURES_AT_ONCE if asked.ndim == 4 else ROWS_AT_ONCE
    outputs = torch.cat([model(part) for part in asked.split(at_once)])
    model.train(training)
    return outputs.cpu().numpy().astype(np.float32)


@torch.no_grad()
def refresh(model: nn.Module, x: Tensor, batch: int = 250) -> None:
    """Batch-norm statistics of these rows, as a plain average over their batches."""
    norms = [module for module in model.modules() if isinstance(module, NORMS)]
    if not norms:
        return
    old = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    for part in x.split(batch):
        if len(part) > 1:
            model(part)
    for norm, momentum in zip(norms, old, strict=True):
        norm.momentum = momentum


def vector(model: nn.Module) -> Tensor:
    """A copy of all weights as one vector, whatever their memory layout."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


class Recorder:
    """Looks at the network after every step and keeps what the readouts need."""

    def __init__(
        self, settings: Settings, split: Data, model: nn.Module, steps: int, refreshed: int
    ) -> None:
        self.settings, self.split, self.model, self.steps = settings, split, model, steps
        self.refreshed = refreshed
        self.samples: list[np.ndarray] = []
        self.guides: list[np.ndarray] = []
        self.decay = 1 - 1 / max(1.0, settings.average * steps)
        self.point = settings.optimizer in ("sgd", "sghmc")
        self.ema = vector(model) if self.point else None
        self.moments = Moments()

    def after(self, step: int, sampler: Optimizer) -> None:
        """Take in the network after this step."""
        if schedule.is_sample(self.settings, step, self.steps):
            self.samples.append(self._now())
            if isinstance(sampler, EntropyMCMC):
                with sampler.guide():
                    weights = vector(self.model)
                self.guides.append(self._of_copy(weights, share=self.settings.samples))
        if self.ema is not None:
            weights = vector(self.model)
            self.ema.lerp_(weights, 1 - self.decay)
            if self._is_settled(step):
                self.moments.add(weights)

    def _now(self) -> np.ndarray:
        """Outputs of the network as it is."""
        if self.settings.optimizer in ASTRAY and has_batchnorm(self.model):
            return self._of_copy(vector(self.model), share=self.settings.samples)[0]
        return ask(self.model, self.split)

    def _is_settled(self, step: int) -> bool:
        """Whether SWA takes this step: about 20 of its constant phase."""
        first = int(self.settings.settle * self.steps)
        every = max(1, (self.steps - first) // 20)
        return self.settings.settle < 1 and step >= first and (step - first) % every == 0

    def outputs(self, optimizer: Optimizer) -> dict[str, np.ndarray]:
        """Outputs by readout; "both" are θ and θ_a of the same steps, one after the other."""
        read_out = {"samples": np.stack(self.samples), "last": self.samples[-1][None]}
        if self.guides:
            guides = np.concatenate(self.guides)
            pairs = np.stack([read_out["samples"], guides], axis=1)
            read_out |= {"guide": guides[-1:], "both": pairs.reshape(-1, *guides.shape[1:])}
        if self.ema is not None and self.settings.cycles == 1:
            read_out["ema"] = self._of_copy(self.ema)
        if self.moments.count:
            read_out["swa"] = self._of_copy(self.moments.mean)
            draws = self.moments.draws(8, seed=self.settings.seed)
            read_out["swag"] = np.concatenate([self._of_copy(d, share=8) for d in draws])
        if self.settings.optimizer == "sgd" and self.settings.prior_variance:
            read_out |= laplace.outputs(self.model, self.split, self.settings)
        if self.settings.optimizer in GAUSSIAN:
            read_out["draws"] = np.concatenate([self._drawn(optimizer, i) for i in range(DRAWS)])
        return read_out

    def weights(self, optimizer: Optimizer) -> dict[str, np.ndarray]:
        """The last networks as vectors: θ, its moving average, the guide; without statistics."""
        kept = {"theta": vector(self.model)}
        if self.ema is not None and self.settings.cycles == 1:
            kept["ema"] = self.ema
        if isinstance(optimizer, EntropyMCMC):
            with optimizer.guide():
                kept["guide"] = vector(self.model)
        return {name: values.cpu().numpy() for name, values in kept.items()}

    def _drawn(self, optimizer: Any, number: int) -> np.ndarray:
        with optimizer.sampled(number):
            weights = vector(self.model)
        return self._of_copy(weights, share=DRAWS)

    def _of_copy(self, weights: Tensor, share: int = 1) -> np.ndarray:
        """Outputs of the network with these weights; its refresh sees 1/share of the rows."""
        model = copy.deepcopy(self.model)
        nn.utils.vector_to_parameters(weights.clone(), model.parameters())
        rows = max(2, self.refreshed // share)
        refresh(model, self.split.train.x[:rows])
        return ask(model, self.split)[None]
