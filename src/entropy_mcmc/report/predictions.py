"""What the posterior says of the test rows: computed once, then only looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from entropy_mcmc.errors import EntropyMCMCError, StateError
from entropy_mcmc.run.devices import DOUBLE
from entropy_mcmc.run.engine import Run
from entropy_mcmc.run.evaluate import SHUFFLED, other_inputs, shuffled
from entropy_mcmc.run.predict import prepare

ROWS = 2000
NUMBERS = 40_000_000  # of all samples' probabilities together: 160 MB
SEED = 0
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """The test rows that are shown: inputs for the network, targets, and raw images if any.

    `total` is how many the test set has; None for a stream that goes on.
    """

    inputs: Tensor
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
    """Probabilities of each sample (samples, rows, classes), and of strange inputs (rows, classes).

    `notes` say what was asked for and could not be shown.
    """

    each: npt.NDArray[np.float32]
    roles: tuple[str, ...]
    rows: Rows
    strange: dict[str, Floats] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def average(self, role: str = "both") -> Floats:
        """The predictive average over samples of a role."""
        chosen = [i for i, own in enumerate(self.roles) if role in ("both", own)]
        return unit(self.each[chosen].mean(axis=0, dtype=np.float64))

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
        chosen = [i for i, own in enumerate(self.roles) if role in ("both", own)]
        means, noise = self.means[chosen], self.variances[chosen]
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
        raise StateError(f"{run.folder} was made without test data, so nothing can be predicted")
    rows = test_rows(run, limit)
    values = run.posterior.sample_predictions(rows.inputs).cpu().numpy()
    roles = run.posterior.roles
    if run.problem.likelihood == "classification":
        images = rows.images is not None and hasattr(run.problem.test, "inputs")
        strange, notes = _strange(run, rows, limit) if images else ({}, ())
        return Classified(values.astype(np.float32), roles, rows, strange, notes)
    if values.ndim == 2:
        raise StateError(
            f"the network of {run.folder} returns a mean without a variance, so that it has no "
            "predictive distribution to show"
        )
    wide = values.astype(np.float64)
    return Regressed(wide[..., 0], wide[..., 1], roles, rows)


def test_rows(run: Run, limit: int) -> Rows:
    """The rows to look at; fewer where many samples and classes would not fit into memory."""
    test = run.problem.test
    most = max(100, NUMBERS // max(1, len(run.posterior)) // (_classes(run) or 1))
    limit = min(limit, most)
    if hasattr(test, "inputs") and hasattr(test, "targets"):
        places = chosen(len(test.targets), limit)
        raw, targets = test.inputs[places], test.targets[places]
        return Rows(prepare(run, raw.numpy()), targets.numpy(), raw, len(test.targets))
    return _rows_of_batches(run, test, limit)


def _rows_of_batches(run: Run, batches: Any, limit: int) -> Rows:
    inputs, targets, count = [], [], 0
    for batch in batches:
        if not isinstance(batch[0], Tensor):
            raise StateError(f"{run.folder}: the test inputs are no plain tensors")
        inputs.append(batch[0])
        targets.append(torch.as_tensor(batch[1]))
        count += len(batch[0])
        if count > limit:  # the rest may be millions of files
            break
    raw, total = torch.cat(inputs)[:limit], count if count <= limit else None
    # As `emcmc evaluate` does: what a stream gives is what the network sees.
    double = run.record.config.compute.precision == DOUBLE and raw.is_floating_point()
    seen = raw.double() if double else raw
    return Rows(seen, torch.cat(targets)[:limit].numpy(), raw, total)


def chosen(total: int, limit: int) -> Tensor:
    """Numbers of the rows that are looked at, in order; the same for every run.

    >>> chosen(3, 10).tolist()
    [0, 1, 2]
    """
    if total <= limit:
        return torch.arange(total)
    places = np.random.default_rng(SEED).permutation(total)[:limit]
    return torch.from_numpy(np.sort(places))


def _classes(run: Run) -> int | None:
    found = getattr(run.problem.train, "classes", None)
    return found if isinstance(found, int) else None


def _strange(run: Run, rows: Rows, limit: int) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """Predictions on the run's out-of-distribution sets; a set that is not there is a note."""
    wanted = run.record.config.data.ood
    found, notes = {}, []
    for name in [SHUFFLED] if wanted is None else wanted:
        try:
            raw = shuffled(rows.raw) if name == SHUFFLED else _other(run, name, limit)
            found[name] = unit(run.posterior.predict_proba(prepare(run, raw.numpy())).numpy())
        except EntropyMCMCError as error:
            notes.append(f"The set {name} is not shown: {error}.")
    return found, tuple(notes)


def _other(run: Run, name: str, limit: int) -> Tensor:
    inputs = other_inputs(name, run.record.config.data.folder, run.problem.test)
    return inputs[chosen(len(inputs), limit)]


def _to_bytes(images: Tensor) -> Tensor:
    """Normalised images, stretched to 0 … 255 each by itself."""
    flat = images.flatten(1).float()
    low, high = flat.min(1).values, flat.max(1).values
    shape = (-1, 1, 1, 1)
    scaled = (images - low.view(shape)) / (high - low).clamp_min(1e-9).view(shape)
    return (255 * scaled).round().to(torch.uint8)
