"""`Posterior`: the samples of a chain, kept on disk, and predictions averaged over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from entropy_mcmc.errors import check_choice, check_count
from entropy_mcmc.posterior import ranks, sample_writer
from entropy_mcmc.posterior.batchnorm import first_batches
from entropy_mcmc.posterior.deployment import Deployable
from entropy_mcmc.posterior.disk_size import DiskSize, expected_size
from entropy_mcmc.posterior.forward import Output
from entropy_mcmc.posterior.manifest import KEEP_ROLES, LIKELIHOODS, Key, Manifest, Sample
from entropy_mcmc.posterior.merging import Choice, chosen_keys, merged_store, require_all_samples
from entropy_mcmc.posterior.model_inputs import home
from entropy_mcmc.posterior.private_copy import Workspace, lock_of
from entropy_mcmc.posterior.refreshing import counted, refreshed
from entropy_mcmc.posterior.sample_reader import Reader
from entropy_mcmc.posterior.sample_tensors import step_of
from entropy_mcmc.posterior.store import Store, store_on_ranks


class Posterior(Deployable):
    """Samples of a model's weights in a folder. Make one with `create` or `open`.

    Every call that predicts works in a private copy of the model, so several threads may predict
    at once, from one posterior or from several of the same model, and hooks get the copy's modules.
    A compiled or sharded model is used in place, by one thread at a time, and put back as it was.
    With several processes, call every method on every rank: rank 0 writes.

    >>> import tempfile
    >>> model = nn.Linear(2, 3)
    >>> posterior = Posterior.create(tempfile.mkdtemp(), model)
    >>> posterior.collect(), posterior.collect()
    (1, 1)
    >>> posterior.predict_proba(torch.zeros(5, 2)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self, store: Store, model: nn.Module, output: Output | None, skip_damaged: bool
    ) -> None:
        super().__init__(model, output, Reader(store, skip_damaged))
        self._store = store
        self._keys: frozenset[Key] | None = None
        self._diagnose: Callable[[Posterior], Any] | None = None

    @classmethod
    def create(
        cls,
        path: str | Path,
        model: nn.Module,
        likelihood: str = "classification",
        output: Output | None = None,
        *,
        roles: str = "both",
        dtype: str | torch.dtype | None = None,
        thin: int = 1,
        keep_last: int | None = None,
    ) -> Self:
        """Start a new store in `path/samples`; an existing one raises.

        Args:
            path: A new folder, or a run folder without samples.
            model: The model that is sampled; also used to predict.
            likelihood: "classification" (the model returns logits) or "regression" (mean and
                log-variance, or mean).
            output: Maps the model's result to that tensor.
            roles: Which variables to keep: "theta", "guide" or "both".
            dtype: "bfloat16" stores sampled parameters in half the space of float32.
            thin: Keep one of every `thin` collected steps, the first one first.
            keep_last: Keep at most this many samples, the newest.
        """
        check_choice("likelihood", likelihood, LIKELIHOODS)
        check_choice("roles", roles, KEEP_ROLES)
        check_choice("dtype", dtype, (None, "bfloat16", torch.bfloat16))
        manifest = Manifest(
            library=sample_writer.LIBRARY,
            likelihood=likelihood,
            roles=roles,
            dtype=None if dtype is None else "bfloat16",
            thin=check_count("thin", thin),
            keep_last=None if keep_last is None else check_count("keep_last", keep_last),
        )
        store = store_on_ranks(lambda: Store.create(Path(path), manifest), Path(path), model)
        return cls(store, model, output, False)

    @classmethod
    def open(
        cls,
        path: str | Path,
        model: nn.Module,
        append: bool = False,
        output: Output | None = None,
        skip_damaged: bool = False,
    ) -> Self:
        """Open a store, to read or, with `append`, to go on collecting.

        Args:
            path: The folder that was given to `create`.
            model: The architecture that was sampled.
            append: Take the writer's place; a second writer is refused.
            output: Maps the model's result to a tensor.
            skip_damaged: Leave damaged samples out, with one warning, instead of raising.
        """
        path = Path(path)
        if append:
            store = store_on_ranks(lambda: Store(path, write=True), path, model)
        else:
            store = Store(path, write=False)
        return cls(store, model, output, skip_damaged)

    @classmethod
    def merge(cls, path: str | Path, posteriors: Sequence[Posterior]) -> Self:
        """Copy the samples of several posteriors of one architecture into a new store.

        Args:
            path: A new folder. The chains of the posteriors get new numbers, from 0.
            posteriors: At least one; that of a `subset` copies its samples. The first gives the
                model and the `output` of the result.
        """
        parts = [(posterior.samples, posterior._reader) for posterior in posteriors]
        first = posteriors[0] if posteriors else None
        store = merged_store(Path(path), parts, None if first is None else first.model)
        assert first is not None
        return cls(store, first.model, first._output, False)

    def subset(self, choice: Choice) -> Self:
        """Some of the samples, in their order: a view of the same store, which collects nothing.

        Args:
            choice: Numbers of samples, a slice, or a function of a manifest entry that says
                whether it is wanted: `lambda sample: sample.role == "theta"`.
        """
        view = type(self)(self._store, self.model, self._output, self._reader.skip_damaged)
        view._keys = chosen_keys(self.samples, choice)
        return view

    def of_model(self, model: nn.Module) -> Self:
        """The same store, to collect from another network of the architecture."""
        return type(self)(self._store, model, self._output, self._reader.skip_damaged)

    @property
    def path(self) -> Path:
        """The folder that was given to `create`."""
        return self._store.folder.parent

    @property
    def likelihood(self) -> str:
        """What the model's output means: "classification" or "regression"."""
        return self._store.settings.likelihood

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Manifest entries: role, step, cycle, chain, batch-norm state and file of each sample."""
        samples = self._store.manifest.samples
        return samples if self._keys is None else tuple(s for s in samples if s.key in self._keys)

    @property
    def verified(self) -> bool:
        """Whether the manifest has a checksum: those of older versions have none."""
        return self._store.manifest.verified

    @cached_property
    def diagnosis(self) -> Any:
        """The `Diagnosis` of the run that `sample` made, computed when asked for; else None."""
        return None if self._diagnose is None else self._diagnose(self)

    def diagnosed_by(self, diagnose: Callable[[Posterior], Any]) -> None:
        """Set what computes `diagnosis`."""
        self._diagnose = diagnose

    @property
    def roles(self) -> tuple[str, ...]:
        """The role of each sample, in order."""
        return tuple(sample.role for sample in self.samples)

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        mark = "" if self.verified else ", unverified"
        kept = f"{len(self)} sample{'' if len(self) == 1 else 's'}"
        return f"Posterior({str(self.path)!r}, {kept}, {self.likelihood}{mark})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another writer in; reading goes on."""
        self._store.close()

    def collect(
        self,
        optimizer: Any = None,
        *,
        step: int | None = None,
        cycle: int | None = None,
        chain: int | None = None,
        frozen_batchnorm: bool = False,
    ) -> int:
        """Store the model's parameters, and the guide of a sampler that has one.

        Args:
            optimizer: The sampler, any other optimizer, or None.
            step: The step of the chain; else `param_groups[…]["step"]`, else a count. A step
                that was collected already is not written again.
            cycle: The cycle of the schedule, for the manifest.
            chain: The number of the chain, from 0, for the manifest; chains need steps of their
                own (a run stores step t of chain c under c·10¹⁰ + t).
            frozen_batchnorm: The batch-norm statistics belong to every sample and stay: no
                sampled parameter comes before a batch-norm layer, and all of these are in eval
                mode, as in sampling the last layer of a trained network.

        Returns:
            How many samples were written.
        """
        require_all_samples(self._keys, "collect")
        cycle = None if cycle is None else check_count("cycle", cycle, least=0)
        chain = None if chain is None else check_count("chain", chain, least=0)
        # Another thread may be predicting with the model in place, or collecting too.
        with lock_of(self.model), self._store.changing:
            kept = step_of(optimizer, step, self._store.manifest)
            state = sample_writer.batchnorm_state(self.model, frozen=frozen_batchnorm)
            agreed = ranks.agree(kept, home(self.model)[0])
            origin = sample_writer.Origin(agreed, cycle, chain, state)
            return sample_writer.write_samples(self._store, self.model, optimizer, origin)

    def expected_size(self, steps: int, optimizer: Any = None) -> DiskSize:
        """The size of this store on disk after `collect` was called at `steps` steps.

        Args:
            steps: Steps that will be offered to `collect`; `thin` and `keep_last` count.
            optimizer: What `collect` will be given.
        """
        manifest = self._store.manifest
        kept = -(-check_count("steps", steps, least=0) // manifest.thin)
        dtype = None if manifest.dtype is None else torch.bfloat16
        size = expected_size(self.model, optimizer, steps=kept, roles=manifest.roles, dtype=dtype)
        return replace(size, samples=min(size.samples, manifest.keep_last or size.samples))

    def refresh_batchnorm(
        self,
        loader: Iterable[Any],
        *,
        force: bool = False,
        max_batches: int | None = None,
        progress: bool = False,
    ) -> int:
        """Give every sample its own batch-norm statistics, by one pass over `loader` for each.

        A kill loses the sample in flight only: samples done before are not done again.

        Args:
            loader: Training data; batches are x, (x, y) or dicts. Read once per sample.
            force: Also those that were refreshed before.
            max_batches: Stop each pass after this many batches; the loader should then shuffle.
            progress: Show a bar, on a terminal.

        Returns:
            How many samples were refreshed.
        """
        states = ("stale", "fresh") if force else ("stale",)
        pending = [sample for sample in self.samples if sample.batchnorm in states]
        if pending and ranks.is_main():
            self._store.require_writer()
        some = first_batches(loader, max_batches)
        done = refreshed(self.model, self._reader, pending, some)
        for sample, fresh in counted(done, len(pending), shown=progress and ranks.is_main()):
            sample_writer.replace_buffers(self._store, sample, fresh)
        return len(pending)

    def load(self, index: int, model: nn.Module | None = None) -> nn.Module:
        """Copy a sample into a model for good (default: the posterior's own) and return it."""
        model = self.model if model is None else model
        for sample, tensors in self._reader.opened([self.samples[index]]):
            self._reader.fill(Workspace(model), sample, tensors)
        return model

    def verify(self) -> int:
        """Check size and SHA-256 of every file again; return how many samples are whole.

        Raises:
            DamagedFileError: A file is not what was written (with `skip_damaged`, a warning).
        """
        return sum(1 for _ in self._reader.whole(self.samples)) if len(self) else 0
