"""Batch-norm statistics of stored samples: each filled into a private copy and passed over data."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from entropy_mcmc.posterior.batchnorm import norm_layers, refresh_with
from entropy_mcmc.posterior.manifest import Sample
from entropy_mcmc.posterior.model_tensors import gather, unwrap
from entropy_mcmc.posterior.private_copy import NotPrivate, Workspace, in_place, private
from entropy_mcmc.posterior.sample_reader import Reader

Refreshed = tuple[Sample, dict[str, Tensor]]


def refreshed(
    model: nn.Module, reader: Reader, samples: Sequence[Sample], loader: Iterable[Any]
) -> Iterator[Refreshed]:
    """Each whole sample with its new statistics, by one pass over `loader` for each.

    The model is left as it is; the caller writes what it gets before it asks for more.
    """
    if not samples:
        return
    model = unwrap(model)
    with private(model) as work:
        if work is not None:
            try:
                yield from _refreshed_in(work, reader, samples, loader)
                return
            except NotPrivate:  # found out in the first pass: nothing was yielded
                pass
    with in_place(model) as work:
        yield from _refreshed_in(work, reader, samples, loader)


def _refreshed_in(
    work: Workspace, reader: Reader, samples: Sequence[Sample], loader: Iterable[Any]
) -> Iterator[Refreshed]:
    for sample, tensors in reader.opened(samples):
        reader.fill(work, sample, tensors)
        refresh_with(work.call, work.model, loader)
        yield sample, norm_buffers(work)


def counted(done: Iterator[Refreshed], total: int, *, shown: bool) -> Iterator[Refreshed]:
    """The same, with a bar on a terminal that counts the samples."""
    if not (shown and total and sys.stderr.isatty()):
        yield from done
        return
    from tqdm import tqdm

    yield from tqdm(done, "batch norm", total, unit="sample", dynamic_ncols=True)


def norm_buffers(work: Workspace) -> dict[str, Tensor]:
    """Running statistics of a model, under their names on disk."""
    layers = norm_layers(work.model)
    ids = {id(buffer) for layer in layers for buffer in layer.buffers(recurse=False)}
    return {n: gather(s.tensor) for n, s in work.layout.stored.items() if id(s.tensor) in ids}
