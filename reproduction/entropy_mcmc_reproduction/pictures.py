"""Data and networks of the picture experiments, named in configs as `module:function`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from entropy_mcmc import data as data_sets
from entropy_mcmc import models
from entropy_mcmc.data import Dataset
from entropy_mcmc.evaluation.sets import SHUFFLED, shuffled
from entropy_mcmc.posterior import Posterior
from entropy_mcmc.run.trust import Trust

# The functions below that configs name: folders made by these experiments may have them imported.
NETWORK = "entropy_mcmc_reproduction.pictures:network"
IMAGES = "entropy_mcmc_reproduction.pictures:images"
TRUST = Trust(names=frozenset({NETWORK, IMAGES}), silent=True)


def images(
    name: str,
    rows: int | None = None,
    test_rows: int | None = None,
    validation: bool = False,
    side: int | None = None,
    checksum: bool = True,
    folder: str | None = None,
) -> tuple[Dataset, Dataset]:
    """Training and test set; with `validation` the test set is the end of the training split.

    Args:
        name: Name of a picture set that `entropy_mcmc.data.load` knows.
        rows: The first training pictures to use; None for all (but those of validation).
        test_rows: The first test pictures, or the last training pictures for validation.
        validation: Never touch the test split: searches use this.
        side: Enlarge to this height and width, with three channels (digits for smoke runs).
        checksum: False accepts partial files.
        folder: Folder of the data; else EMCMC_DATA.
    """
    load = {"folder": folder, "checksum": checksum}
    train = data_sets.load(name, split="train", **load)  # type: ignore[arg-type]
    if validation:
        held = test_rows or len(train) // 10
        test = replace(train, inputs=train.inputs[-held:], targets=train.targets[-held:])
        train = train.take(len(train) - held)
    else:
        test = data_sets.load(name, split="test", **load).take(test_rows)  # type: ignore[arg-type]
    train = train.take(rows)
    return _laid_out(_enlarged(train, side)), _laid_out(_enlarged(test, side))


def _enlarged(data: Dataset, side: int | None) -> Dataset:
    if side is None:
        return data
    return replace(data, inputs=enlarge(data.inputs, side), mean=data.mean * 3, std=data.std * 3)


def _laid_out(data: Dataset) -> Dataset:
    """Channels last, which batches keep: CPUs convolve faster so."""
    return replace(data, inputs=data.inputs.contiguous(memory_format=torch.channels_last))


def enlarge(inputs: Tensor, side: int) -> Tensor:
    """Nearest-neighbour enlargement of grey pictures to three channels."""
    bigger = nn.functional.interpolate(inputs.float(), size=(side, side))
    return bigger.to(inputs.dtype).expand(-1, 3, -1, -1).contiguous()


def network(name: str, start: str | None = None, **options: Any) -> nn.Module:
    """A network, with the weights of the last sample of the run folder `start` if given."""
    model = models.build(name, **options)
    if start is not None:
        Posterior.open(Path(start), model).load(-1)
    return model


def strange(name: str, like: Dataset, folder: str | None) -> Tensor:
    """Out-of-distribution pictures of the shape of `like`."""
    if name == SHUFFLED:
        return shuffled(like.inputs)
    # Partial files are accepted: the number of pictures is part of the result.
    found = data_sets.load(name, folder=folder, split="test", checksum=False).inputs
    return torch.as_tensor(found)
