"""Predictions with samples of a network, averaged or one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from entropy_mcmc.errors import check_choice, check_count, check_not_negative
from entropy_mcmc.posterior import predictive
from entropy_mcmc.posterior.forward import Output, Piece, pieces, tensor_of
from entropy_mcmc.posterior.manifest import KEEP_ROLES, Sample
from entropy_mcmc.posterior.model_inputs import Batches
from entropy_mcmc.posterior.predictive import RegressionPrediction
from entropy_mcmc.posterior.sample_reader import Reader, predictable
from entropy_mcmc.posterior.stacked_samples import StackedSamples


class Predictor(ABC):
    """Samples of a model's weights that predict; see `Posterior`.

    Args:
        model: The architecture that was sampled; left as it is.
        output: Maps the model's result to a tensor.
        reader: Gives the samples.
    """

    def __init__(self, model: nn.Module, output: Output | None, reader: Reader) -> None:
        self.model = model
        self._output = output
        self._reader = reader
        self._stacked = StackedSamples(reader)

    @property
    @abstractmethod
    def samples(self) -> tuple[Sample, ...]:
        """Manifest entries of the samples, in order."""

    @property
    @abstractmethod
    def likelihood(self) -> str:
        """What the model's output means: "classification" or "regression"."""

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

    def _pieces(
        self, x: Any, roles: str, batch_size: int, vectorize: bool | None
    ) -> tuple[Batches, Iterator[Piece]]:
        check_choice("roles", roles, KEEP_ROLES)
        samples = predictable(self.samples, roles, self)
        batches = Batches(x, self.model, check_count("batch_size", batch_size))
        classify = self.likelihood == "classification"
        meaning = predictive.Probabilities() if classify else predictive.moments

        def one_by_one() -> Iterator[Piece]:
            return pieces(
                self.model,
                lambda: self._reader.loads(samples),
                batches,
                lambda result: meaning(tensor_of(result, self._output)),
                vectorize=vectorize,
            )

        if vectorize is False or self._output is not None:
            return batches, one_by_one()
        return batches, self._stacked.pieces(self.model, samples, batches, meaning, one_by_one)
