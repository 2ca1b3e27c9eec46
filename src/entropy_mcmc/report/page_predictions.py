"""What the posterior says of the test rows: computed once, then only looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from entropy_mcmc.data import Dataset
from entropy_mcmc.errors import EntropyMCMCError, StateError
from entropy_mcmc.evaluation import Predictions
from entropy_mcmc.evaluation.sets import OOD, ROWS, TEST, first_rows, shown_rows
from entropy_mcmc.run.evaluate import kept_rows, predictions_of
from entropy_mcmc.run.runner import Run

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """The test rows that are shown: their numbers in the set, targets, and raw images if any.

    `total` is how many the test set has; None for a stream that goes on.
    """

    numbers: Tensor
    targets: npt.NDArray[Any]
    raw: Tensor
    total: int | None

    @property
    def images(self) -> npt.NDArray[np.uint8] | None:
        """uint8 (n, height, width, 1 or 3), None for tables."""
        if self.raw.dim() != 4 or self.raw.shape[1] not in (1, 3):
            return None
        values = self.raw if self.raw.dtype == torch.uint8 else _to_bytes(self.raw)
        return np.asarray(values.permute(0, 2, 3, 1).cpu().numpy(), dtype=np.uint8)


@dataclass(frozen=True)
class Classified:
    """Probabilities of each sample (samples, rows, classes), and of OOD inputs (rows, classes).

    `notes` say what was asked for and could not be shown.
    """

    each: npt.NDArray[np.float32]
    roles: tuple[str, ...]
    rows: Rows
    ood: dict[str, Floats] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def average(self, role: str = "both") -> Floats:
        """The predictive average over samples of a role."""
        index = [i for i, own in enumerate(self.roles) if role in ("both", own)]
        return unit(self.each[index].mean(axis=0, dtype=np.float64))

    @property
    def targets(self) -> npt.NDArray[Any]:
        """True classes."""
        return self.rows.targets


@dataclass(frozen=True)
class Regressed:
    """Mean and noise variance of each sample, both (samples, rows), in the target's units."""

    means: Floats
    variances: Floats
    roles: tuple[str, ...]
    rows: Rows
    notes: tuple[str, ...] = ()

    def moments(self, role: str = "both") -> tuple[Floats, Floats]:
        """Mean and variance of the mixture over samples of a role."""
        index = [i for i, own in enumerate(self.roles) if role in ("both", own)]
        means, noise = self.means[index], self.variances[index]
        return means.mean(axis=0), noise.mean(axis=0) + means.var(axis=0)

    @property
    def targets(self) -> npt.NDArray[Any]:
        """True values."""
        return self.rows.targets


Predicted = Classified | Regressed


def unit(probs: npt.NDArray[Any]) -> Floats:
    """Rows that sum to 1 in float64, as the metrics demand."""
    wide = np.asarray(probs, dtype=np.float64)
    return np.asarray(wide / wide.sum(axis=-1, keepdims=True))


def predict(run: Run, limit: int = ROWS) -> Predicted:
    """Every sample's prediction of at most `limit` test rows, chosen by a fixed shuffle."""
    if run.problem.test is None:
        raise StateError(
            f"{run.folder.name} was made without test data, so nothing can be predicted"
        )
    rows = test_rows(run, limit)
    predictions = run.predictions if limit == ROWS else predictions_of(run, limit)
    made = predictions.some(TEST)
    values = made.at(rows.numbers).numpy()
    roles = tuple(sample.role for sample in made.samples)
    if run.problem.likelihood == "classification":
        ood, notes = _ood(predictions) if rows.images is not None else ({}, ())
        return Classified(values.astype(np.float32), roles, rows, ood, notes)
    if values.ndim == 2:
        raise StateError(
            f"the network of {run.folder.name} returns a mean without a variance, so that it has "
            "no predictive distribution to show"
        )
    wide = values.astype(np.float64)
    return Regressed(wide[..., 0], wide[..., 1], roles, rows)


def test_rows(run: Run, limit: int) -> Rows:
    """The rows to look at; fewer where many samples and classes would not fit into memory."""
    test, limit = run.problem.test, kept_rows(run, limit)
    if isinstance(test, Dataset):
        numbers = shown_rows(len(test.targets), limit)
        raw, targets = test.inputs[numbers], test.targets[numbers]
        return Rows(numbers, targets.numpy(), raw, len(test.targets))
    try:
        raw, targets, total = first_rows(test, limit)
    except StateError as error:
        raise StateError(f"{run.folder.name}: {error}") from error
    return Rows(torch.arange(len(targets)), targets.numpy(), raw, total)


def _ood(predictions: Predictions) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """Predictions on the run's OOD sets; a set that is not there is a note."""
    made, notes = {}, []
    for name in (name for name in predictions.names if name.startswith(OOD)):
        short = name.removeprefix(OOD)
        try:
            made[short] = unit(predictions.some(name).probabilities_at_rows().numpy())
        except EntropyMCMCError as error:
            notes.append(f"The set {short} is not shown: {error}.")
    return made, tuple(notes)


def _to_bytes(images: Tensor) -> Tensor:
    """Normalised images, stretched to 0 … 255 each by itself."""
    flat = images.flatten(1).float()
    low, high = flat.min(1).values, flat.max(1).values
    shape = (-1, 1, 1, 1)
    scaled = (images - low.view(shape)) / (high - low).clamp_min(1e-9).view(shape)
    return (255 * scaled).round().to(torch.uint8)
