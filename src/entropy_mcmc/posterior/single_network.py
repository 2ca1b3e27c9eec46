"""One network from a posterior: the best sample on validation data, or the mean of a mode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.posterior.batchnorm import norm_layers, refresh_batchnorm
from entropy_mcmc.posterior.labelled_data import class_numbers
from entropy_mcmc.posterior.manifest import Sample
from entropy_mcmc.posterior.model_tensors import layout
from entropy_mcmc.posterior.private_copy import Workspace
from entropy_mcmc.posterior.sample_reader import Reader

Mode = tuple[int, int]


def losses_of(each: Tensor, targets: Tensor, likelihood: str) -> Tensor:
    """Mean loss of each sample: NLL, or half the squared error where there is no variance.

    Args:
        each: What `Posterior.sample_predictions` gives.
        targets: One for each row.
        likelihood: "classification" or "regression".
    """
    if len(targets) != each.shape[1]:
        raise ConfigError(
            f"targets must have one entry for each of {each.shape[1]} rows, got {len(targets)}"
        )
    values, truth = each.cpu().double(), targets.reshape(-1)
    if values.ndim == 2:
        return 0.5 * (values - truth.double()).square().mean(1)
    if likelihood == "regression":
        mean, variance = values.unbind(-1)
        squares = (truth.double() - mean).square() / variance
        return 0.5 * (torch.log(2 * torch.pi * variance) + squares).mean(1)
    labels = class_numbers(truth, values.shape[2])
    at_label = values.gather(2, labels.expand(len(values), -1)[..., None])
    return -at_label.clamp_min(torch.finfo(torch.float32).tiny).log().mean((1, 2))


def mode_of(sample: Sample) -> Mode:
    """Chain and cycle of a sample, 0 where the collector named none."""
    return sample.chain or 0, sample.cycle or 0


def in_mode(samples: Sequence[Sample], mode: Mode) -> list[Sample]:
    """Samples of one chain and cycle; between two of them lie no restarts."""
    of_mode = [sample for sample in samples if mode_of(sample) == tuple(mode)]
    if not of_mode:
        there = sorted({mode_of(sample) for sample in samples})
        shown = ", ".join(map(str, there[:10])) + (", …" if len(there) > 10 else "")
        raise ConfigError(f"mode must be (chain, cycle), one of {shown}, got {mode}")
    return of_mode


def averaged_network(
    network: nn.Module, reader: Reader, samples: Sequence[Sample], loader: Iterable[Any] | None
) -> nn.Module:
    """The network with the mean of the samples' weights, and batch-norm statistics of these."""
    if norm_layers(network) and loader is None:
        raise ConfigError(
            "the model has batch norm, whose statistics must be those of the averaged weights; "
            "pass the training data: mean_network(train_loader)"
        )
    totals: dict[str, Tensor] = {}
    count = 0
    for sample, tensors in reader.opened(samples):
        reader.fill(Workspace(network), sample, tensors)
        count += 1
        for name, slot in layout(network).slots.items():
            if slot.is_parameter:
                value = slot.tensor.detach().double()
                totals[name] = value if name not in totals else totals[name] + value
    with torch.no_grad():
        for name, slot in layout(network).slots.items():
            if name in totals:
                slot.tensor.copy_(totals[name] / count)
    if loader is not None:
        refresh_batchnorm(network, loader)
    return network.eval()
