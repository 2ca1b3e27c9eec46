"""Reading samples back, one at a time, checked before use."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from functools import partial

from torch import Tensor, nn

from entropy_mcmc.errors import DamagedFileError, StateError
from entropy_mcmc.posterior.forward import Load
from entropy_mcmc.posterior.manifest import Sample
from entropy_mcmc.posterior.private_copy import Workspace
from entropy_mcmc.posterior.store import Store
from entropy_mcmc.posterior.tensors import check_match, layout, place, reshard


class Reader:
    """Samples of a store, as they are needed; damaged ones raise or are left out."""

    def __init__(self, store: Store, skip_damaged: bool) -> None:
        self._store = store
        self._skip_damaged = skip_damaged

    def whole(self, samples: Iterable[Sample], *, again: bool = False) -> Iterator[Sample]:
        """Checked samples; those that the writer dropped meanwhile are passed over."""
        damaged: list[DamagedFileError] = []
        found = 0
        for sample in samples:
            try:
                current = self._store.current(sample, again=again)
            except DamagedFileError as error:
                if not self._skip_damaged:
                    raise
                damaged.append(error)
                continue
            if current is not None:
                found += 1
                yield current
        if damaged and not found:
            raise damaged[0]
        if not found:
            raise StateError("the writer replaced every sample during this call; call again")
        if damaged:
            names = "; ".join(str(error).split("; ")[0] for error in damaged)
            total = found + len(damaged)
            # The caller of a Posterior method is some generators away: no level is exact.
            warnings.warn(
                f"left out {len(damaged)} of {total} samples: {names}", RuntimeWarning, stacklevel=2
            )

    def loads(self, samples: Iterable[Sample]) -> Iterator[Load]:
        """Each whole sample with a function that fills a model with it."""
        for sample in self.whole(samples):
            yield sample, partial(self.fill, sample=sample)

    def fill(self, work: Workspace, sample: Sample) -> None:
        """Copy a sample into a model, one tensor at a time; a backbone that it holds stays."""
        reshard(work.model)  # a gathered copy would keep the sample before
        with self._store.read(sample) as opened:
            found = work.layout
            shapes = {name: tensor.shape for name, tensor in opened.items()}
            check_match(found, shapes, sample.file.name)
            held, work.shared = work.shared, None
            for name, slot in found.stored.items():
                if held is None or opened[name].file != held:
                    place(slot, opened[name].read())
            work.shared = sample.shared

    def state_dict(self, model: nn.Module, sample: Sample) -> dict[str, Tensor]:
        """A sample as a state dict of the unwrapped model, with every name of tied tensors."""
        with self._store.read(sample) as opened:
            state = {name: tensor.read().clone() for name, tensor in opened.items()}
        aliases = layout(model).aliases
        return state | {alias: state[name] for alias, name in aliases.items() if name in state}
