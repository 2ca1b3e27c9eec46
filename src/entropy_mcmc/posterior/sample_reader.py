"""Reading samples back, one at a time, checked before use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from torch import Tensor, nn

from entropy_mcmc.errors import DamagedFileError, StateError
from entropy_mcmc.posterior.forward import Load
from entropy_mcmc.posterior.manifest import Sample
from entropy_mcmc.posterior.model_tensors import check_match, layout, place, reshard
from entropy_mcmc.posterior.private_copy import Workspace
from entropy_mcmc.posterior.store import Store, Tensors

T = TypeVar("T")


class Reader:
    """Samples of a store, as they are needed; damaged ones raise or are left out."""

    def __init__(self, store: Store, skip_damaged: bool) -> None:
        self.store = store
        self.skip_damaged = skip_damaged

    def whole(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Samples whose files are checked again, all of them."""
        for sample, _ in self.each(samples, lambda s: self.store.check(s, again=True)):
            yield sample

    def opened(self, samples: Iterable[Sample]) -> Iterator[tuple[Sample, Tensors]]:
        """Checked samples with their tensors, which can be read until the next one is asked for."""
        for sample, (files, tensors) in self.each(samples, self.store.open):
            with files:
                yield sample, tensors

    def each(
        self, samples: Iterable[Sample], action: Callable[[Sample], T]
    ) -> Iterator[tuple[Sample, T]]:
        """What an action makes of each sample; those that the writer dropped are passed over."""
        damaged: list[DamagedFileError] = []
        count = 0
        for sample in samples:
            try:
                current = self.store.current(sample, action)
            except DamagedFileError as error:
                if not self.skip_damaged:
                    raise
                damaged.append(error)
                continue
            if current is not None:
                count += 1
                yield current
        if damaged and not count:
            raise damaged[0]
        if not count:
            raise StateError("the writer replaced every sample during this call; call again")
        if damaged:
            names = "; ".join(str(error).split("; ")[0] for error in damaged)
            total = count + len(damaged)
            # The caller of a Posterior method is some generators away: no level is exact.
            warnings.warn(
                f"left out {len(damaged)} of {total} samples: {names}", RuntimeWarning, stacklevel=2
            )

    def loads(self, samples: Iterable[Sample]) -> Iterator[Load]:
        """Each sample with a function that fills a model with it, until the next is asked for."""
        for sample, tensors in self.opened(samples):
            yield sample, partial(self.fill, sample=sample, tensors=tensors)

    def fill(self, work: Workspace, sample: Sample, tensors: Tensors) -> None:
        """Copy a sample into a model, one tensor at a time; a backbone that it holds stays."""
        reshard(work.model)  # a gathered copy would keep the sample before
        slots = work.layout
        check_match(slots, {name: t.shape for name, t in tensors.items()}, sample.file.name)
        held, work.shared = work.shared, None
        for name, slot in slots.stored.items():
            if held is None or tensors[name].file != held:
                place(slot, tensors[name].read())
        work.shared = sample.shared

    def state_dicts(
        self, model: nn.Module, samples: Iterable[Sample]
    ) -> Iterator[dict[str, Tensor]]:
        """Samples as state dicts of the unwrapped model, with every name of tied tensors."""
        aliases = layout(model).aliases
        for _, tensors in self.opened(samples):
            state = {name: tensor.read().clone() for name, tensor in tensors.items()}
            yield state | {alias: state[name] for alias, name in aliases.items() if name in state}


def predictable(samples: Iterable[Sample], roles: str, who: object) -> list[Sample]:
    """The samples of these roles, which must have batch-norm statistics of their own."""
    selected = [sample for sample in samples if roles in ("both", sample.role)]
    if not selected:
        raise StateError(f"{who!r} has no samples with roles={roles!r}; collect some first")
    stale = sum(sample.batchnorm == "stale" for sample in selected)
    if stale:
        raise StateError(
            f"{stale} of {len(selected)} samples have batch-norm statistics of other weights; "
            "call posterior.refresh_batchnorm(train_loader) first"
        )
    return selected
