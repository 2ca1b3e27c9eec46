"""Predictions of the samples of a posterior on data sets, as a stream, each made once.

Of a whole set the averages over samples are kept (of θ, of the guide, of both); what each sample
predicts is kept for a bounded number of rows, for diagnoses and figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from entropy_mcmc.errors import StateError
from entropy_mcmc.evaluation.sets import EvaluationSet
from entropy_mcmc.posterior import Posterior, RegressionPrediction
from entropy_mcmc.posterior.forward import Piece
from entropy_mcmc.posterior.manifest import ROLES, Sample
from entropy_mcmc.posterior.predictive import Mean, Mixture

BOTH = "both"
CPU = torch.device("cpu")
# Probabilities (rows, classes), the mixture of a regression, or means (rows,) without a variance.
Average = Tensor | RegressionPrediction


@dataclass(frozen=True)
class SetPredictions:
    """Predictions on one data set.

    Attributes:
        samples: The samples in order: their role, chain and cycle are those of `each`.
        averages: By role ("both", and "theta" and "guide" where there are both).
        rows: Numbers of the rows of the set whose single predictions are kept, ascending.
        each: What each sample predicts for them: (samples, rows, …); None if it was not kept.
        complete: Whether the averages are of the whole set; else they are of `rows` only.
    """

    samples: tuple[Sample, ...]
    averages: dict[str, Average]
    rows: Tensor
    each: Tensor | None
    complete: bool

    def count(self, role: str = BOTH) -> int:
        """How many samples an average is of."""
        return sum(role in (BOTH, sample.role) for sample in self.samples)

    def at(self, rows: Tensor) -> Tensor:
        """What each sample predicts for these rows of the set: (samples, rows, …)."""
        places = torch.searchsorted(self.rows, rows).clamp_max(max(0, len(self.rows) - 1))
        if self.each is None or not torch.equal(self.rows[places], rows):
            raise StateError("the predictions of these rows were not kept; predict them again")
        return self.each[:, places]

    def probabilities(self, role: str = BOTH) -> Tensor:
        """The averaged class probabilities: (rows, classes)."""
        average = self.averages[role]
        if not isinstance(average, Tensor):
            raise StateError("a regression has no class probabilities; use averages")
        return average

    def probabilities_at_rows(self, role: str = BOTH) -> Tensor:
        """The same for the kept rows only."""
        probs = self.probabilities(role)
        return probs[self.rows] if self.complete else probs


class Predictions:
    """Predictions of a posterior's samples on named sets; each is made when first asked for.

    Args:
        posterior: The samples.
        sets: How to get each set.
    """

    def __init__(
        self, posterior: Posterior, sets: Mapping[str, Callable[[], EvaluationSet]]
    ) -> None:
        self.posterior = posterior
        self._sets = dict(sets)
        self._found: dict[str, EvaluationSet] = {}
        self._made: dict[str, SetPredictions] = {}
        self._targets: dict[str, Tensor] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The sets that can be predicted."""
        return tuple(self._sets)

    def targets(self, name: str) -> Tensor:
        """Targets of the complete set."""
        if name not in self._targets:
            self._targets[name] = self._set(name).targets()
        return self._targets[name]

    def _set(self, name: str) -> EvaluationSet:
        if name not in self._found:
            self._found[name] = self._sets[name]()
        return self._found[name]

    def whole(self, name: str) -> SetPredictions:
        """Predictions on the complete set."""
        if name not in self._made or not self._made[name].complete:
            self._made[name] = predict_set(self.posterior, self._set(name))
        return self._made[name]

    def some(self, name: str) -> SetPredictions:
        """Predictions on the kept rows: of the complete set where it has been predicted."""
        if name not in self._made:
            self._made[name] = predict_set(self.posterior, self._set(name), complete=False)
        return self._made[name]


def predict_set(
    posterior: Posterior, data: EvaluationSet, *, complete: bool = True
) -> SetPredictions:
    """One pass of every sample over a set, or over the rows of it that are kept.

    Args:
        posterior: The samples.
        data: The set.
        complete: Whether all rows shall be predicted, or only those that are kept.
    """
    inputs = data.inputs() if complete else data.kept_inputs()
    kept = _Kept(data.rows if complete else torch.arange(len(data.rows))) if data.single else None
    averages = _Averages(posterior)
    samples: list[Sample] = []
    for piece in posterior.stream_predictions(inputs):
        samples += piece.samples if piece.index == 0 else ()
        averages.add(piece)
        if kept is not None:
            kept.add(piece)
    each = None if kept is None else kept.result()
    rows = data.rows if each is None else data.rows[: each.shape[1]]  # a stream may be shorter
    return SetPredictions(tuple(samples), averages.result(), rows, each, complete)


def average_over_samples(posterior: Posterior, inputs: Any) -> Average:
    """The predictive average for inputs of which nothing else is kept."""
    none = torch.empty(0, dtype=torch.int64)
    data = EvaluationSet(lambda: inputs, none, lambda: inputs, lambda: none, single=False)
    return predict_set(posterior, data).averages[BOTH]


class _Averages:
    """Running averages over all samples, and over those of each role where there are two."""

    def __init__(self, posterior: Posterior) -> None:
        self._regression = posterior.likelihood == "regression"
        self._roles = (BOTH, *ROLES) if set(posterior.roles) == set(ROLES) else (BOTH,)
        self._totals: dict[str, Mean | Mixture] = {}

    def add(self, piece: Piece) -> None:
        for role in self._roles:
            own = [i for i, s in enumerate(piece.samples) if role in (BOTH, s.role)]
            if own:
                total = self._totals.setdefault(role, self._total(piece.values))
                whole = len(own) == len(piece.samples)
                total.add(piece.index, piece.values if whole else piece.values[own])

    def _total(self, values: Tensor) -> Mean | Mixture:
        """A network that returns a mean only has no variance to mix."""
        return Mixture(CPU) if self._regression and values.ndim == 3 else Mean(CPU)

    def result(self) -> dict[str, Average]:
        return {role: total.result() for role, total in self._totals.items()}


class _Kept:
    """What each sample predicts for some rows."""

    def __init__(self, rows: Tensor) -> None:
        self._rows = rows
        self._starts = [0]
        self._groups: list[list[Tensor]] = []

    def add(self, piece: Piece) -> None:
        if piece.index == 0:
            self._groups.append([])
        start = self._starts[piece.index]
        end = start + piece.values.shape[1]
        if piece.index + 1 == len(self._starts):
            self._starts.append(end)
        inside = self._rows[(self._rows >= start) & (self._rows < end)] - start
        self._groups[-1].append(piece.values[:, inside.to(piece.values.device)].cpu())

    def result(self) -> Tensor:
        return torch.cat([torch.cat(group, dim=1) for group in self._groups])


class KeptSamples:
    """A posterior whose predictions for some rows of a set are there already.

    It takes the place of a `Posterior` in `diagnostics.diagnose`: inputs are then numbers of rows.
    """

    def __init__(self, posterior: Posterior, made: SetPredictions) -> None:
        self._posterior = posterior
        self._made = made

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples that were predicted with."""
        return self._made.samples

    def sample_predictions(self, x: Tensor, *, roles: str = BOTH, **_: Any) -> Tensor:
        """What each sample predicts for the rows with the numbers `x`."""
        own = [i for i, s in enumerate(self._made.samples) if roles in (BOTH, s.role)]
        return self._made.at(x)[own]

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self._posterior[index]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._posterior, name)
