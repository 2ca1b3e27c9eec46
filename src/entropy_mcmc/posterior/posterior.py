"""`Posterior`: the samples of a chain, kept on disk, and predictions averaged over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from entropy_mcmc.errors import check_choice, check_count, check_not_negative
from entropy_mcmc.posterior import predictive, ranks, sample_writer
from entropy_mcmc.posterior.forward import Output, Piece, pieces, tensor_of
from entropy_mcmc.posterior.manifest import KEEP_ROLES, LIKELIHOODS, Manifest, Sample
from entropy_mcmc.posterior.model_inputs import Batches, home
from entropy_mcmc.posterior.predictive import RegressionPrediction
from entropy_mcmc.posterior.private_copy import Workspace, lock_of
from entropy_mcmc.posterior.refreshing import refreshed
from entropy_mcmc.posterior.sample_reader import Reader, predictable
from entropy_mcmc.posterior.sample_tensors import step_of
from entropy_mcmc.posterior.store import Store, store_on_ranks


class Posterior:
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
        self.model = model
        self._store = store
        self._output = output
        self._reader = Reader(store, skip_damaged)
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

    @property
    def path(self) -> Path:
        """The folder that was given to `create`."""
        return self._store.folder.parent

    @property
    def likelihood(self) -> str:
        """What the model's output means: "classification" or "regression"."""
        return self._store.manifest.likelihood

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Manifest entries: role, step, cycle, chain, batch-norm state and file of each sample."""
        return self._store.manifest.samples

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
        return f"Posterior({str(self.path)!r}, {len(self)} samples, {self.likelihood}{mark})"

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
    ) -> int:
        """Store the model's parameters, and the guide of a sampler that has one.

        Args:
            optimizer: The sampler, any other optimizer, or None.
            step: The step of the chain; else `param_groups[…]["step"]`, else a count. A step
                that was collected already is not written again.
            cycle: The cycle of the schedule, for the manifest.
            chain: The number of the chain, from 0, for the manifest; chains need steps of their
                own (a run stores step t of chain c under c·10¹⁰ + t).

        Returns:
            How many samples were written.
        """
        cycle = None if cycle is None else check_count("cycle", cycle, least=0)
        chain = None if chain is None else check_count("chain", chain, least=0)
        # Another thread may be predicting with the model in place, or collecting too.
        with lock_of(self.model), self._store.changing:
            kept = step_of(optimizer, step, self._store.manifest)
            origin = sample_writer.Origin(ranks.agree(kept, home(self.model)[0]), cycle, chain)
            return sample_writer.write_samples(self._store, self.model, optimizer, origin)

    def refresh_batchnorm(self, loader: Iterable[Any], *, force: bool = False) -> int:
        """Give every sample its own batch-norm statistics, by one pass over `loader` for each.

        A kill loses the sample in flight only: samples done before are not done again.

        Args:
            loader: Training data; batches are x, (x, y) or dicts. Read once per sample.
            force: Also those that were refreshed before.

        Returns:
            How many samples were refreshed.
        """
        states = ("stale", "fresh") if force else ("stale",)
        pending = [sample for sample in self.samples if sample.batchnorm in states]
        if pending and ranks.is_main():
            self._store.require_writer()
        for sample, fresh in refreshed(self.model, self._reader, pending, loader):
            sample_writer.replace_buffers(self._store, sample, fresh)
        return len(pending)

    def predict_proba(
        self,
        x: Any,
        *,
        roles: str = "both",
        batch_size: int = 256,
        vectorize: bool | None = None,
    ) -> Tensor:
        """Class probabilities, averaged over samples.

        Args:
            x: A tensor, an array, a dict of these, or a loader of x, (x, y) or dicts.
            roles: Average over "theta", "guide" or "both".
            batch_size: Rows at a time, where x is not a loader.
            vectorize: Evaluate many samples at once: True, False, or None for small models.

        Returns:
            Shape (rows, classes), on the device of x (the CPU for arrays and loaders).
        """
        predictive.require_likelihood(
            self.likelihood, "classification", "predict_proba", "predict or predict_distribution"
        )
        batches, stream = self._pieces(x, roles, batch_size, vectorize)
        return predictive.mean_of(stream, batches.out_device)

    def predict(
        self,
        x: Any,
        *,
        roles: str = "both",
        batch_size: int = 256,
        vectorize: bool | None = None,
    ) -> Tensor:
        """The most probable class, or the mean of a regression; arguments as `predict_proba`."""
        if self.likelihood == "classification":
            options = {"roles": roles, "batch_size": batch_size, "vectorize": vectorize}
            return self.predict_proba(x, **options).argmax(1)  # type: ignore[arg-type]
        batches, stream = self._pieces(x, roles, batch_size, vectorize)
        mean = predictive.mean_of(stream, batches.out_device)
        return mean if mean.ndim == 1 else mean[:, 0]

    def predict_distribution(
        self,
        x: Any,
        *,
        noise_variance: float | None = None,
        roles: str = "both",
        batch_size: int = 256,
        vectorize: bool | None = None,
    ) -> RegressionPrediction:
        """Mean, aleatoric and epistemic variance of a regression.

        Args:
            x: As `predict_proba`, like the other arguments.
            noise_variance: The noise of a network that returns a mean only.
            roles: Which samples.
            batch_size: Rows at a time.
            vectorize: Many samples at once.
        """
        predictive.require_likelihood(
            self.likelihood, "regression", "predict_distribution", "predict_proba"
        )
        if noise_variance is not None:
            noise_variance = check_not_negative("noise_variance", noise_variance)
        batches, stream = self._pieces(x, roles, batch_size, vectorize)
        return predictive.mixture_of(stream, batches.out_device, noise_variance)

    def sample_predictions(
        self,
        x: Any,
        *,
        roles: str = "both",
        batch_size: int = 256,
        vectorize: bool | None = None,
    ) -> Tensor:
        """Each sample's own prediction, in the order of `samples`; arguments as `predict_proba`.

        Returns:
            Probabilities (samples, rows, classes); for regression mean and variance
            (samples, rows, 2), or (samples, rows) where the network returns a mean only.
        """
        batches, stream = self._pieces(x, roles, batch_size, vectorize)
        return predictive.stack_of(stream, batches.out_device)

    def stream_predictions(
        self,
        x: Any,
        *,
        roles: str = "both",
        batch_size: int = 256,
        vectorize: bool | None = None,
    ) -> Iterator[Piece]:
        """The same piece by piece: k samples on one batch at a time, never all in memory.

        Pieces of a group of samples follow each other in the order of the batches.
        """
        return self._pieces(x, roles, batch_size, vectorize)[1]

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """A sample as a state dict, for `load_state_dict` of the unwrapped model."""
        (state,) = self._reader.state_dicts(self.model, [self.samples[index]])
        return state

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        if samples := self.samples:
            yield from self._reader.state_dicts(self.model, samples)

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

    def _pieces(
        self, x: Any, roles: str, batch_size: int, vectorize: bool | None
    ) -> tuple[Batches, Iterator[Piece]]:
        check_choice("roles", roles, KEEP_ROLES)
        samples = predictable(self.samples, roles, repr(self))
        batches = Batches(x, self.model, check_count("batch_size", batch_size))
        classify = self.likelihood == "classification"
        meaning = predictive.Probabilities() if classify else predictive.moments
        return batches, pieces(
            self.model,
            lambda: self._reader.loads(samples),
            batches,
            lambda result: meaning(tensor_of(result, self._output)),
            vectorize=vectorize,
        )
