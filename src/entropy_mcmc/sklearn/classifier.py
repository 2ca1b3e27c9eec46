"""`EntropyMCMCClassifier`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d
from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.sklearn.base import Doubles, TabularEstimator, run_until_finite
from entropy_mcmc.sklearn.chain_plan import Network, Plan
from entropy_mcmc.sklearn.classifier_selection import Open, choose, losses_of
from entropy_mcmc.sklearn.conformal import conformal_bound
from entropy_mcmc.sklearn.estimator_chains import Table, run
from entropy_mcmc.sklearn.fit_diagnostics import chain_error, warn_if_apart
from entropy_mcmc.sklearn.likelihood import Categorical
from entropy_mcmc.sklearn.selection import Candidate, Scores
from entropy_mcmc.sklearn.targets import label_numbers


class EntropyMCMCClassifier(ClassifierMixin, TabularEstimator):  # type: ignore[misc]
    """Classifier of tabular data: the average of sampled networks.

    X may be an array or a data frame. Numbers are standardised inside, heavy-tailed columns
    compressed first; strings and pandas categories become one-hot inputs; NaN is a missing value
    (see [tabular data](../tables.md)). `fit` takes `sample_weight`; N of the posterior is the sum
    of the weights.

    Args:
        hidden_layer_sizes: widths of the hidden layers, or the width of one; () is a linear model,
            "auto" lets held-out rows choose between (50,), (50, 50) and ().
        activation: "relu", "silu" or "tanh"; "auto" is "relu" for two hidden layers, else "tanh".
        n_chains: independent chains, each from its own start.
        n_samples: networks kept of each chain and role.
        n_steps: steps of each chain; "auto" follows the number of rows.
        batch_size: rows in a step; all rows if there are no more.
        lr: first learning rate for the mean loss; it falls by a cosine. A run that diverges
            starts again at a third of it (`lr_` says which was used).
        momentum: of the sampler.
        guide_horizon: steps over which a coupled guide would average; η = guide_horizon·lr/N.
        temperature: of the posterior; 1 is Bayes, less is a sharper posterior. "auto" lets
            held-out rows choose (`temperature_`).
        prior_variance: of every weight, where layers divide by √fan_in; λ = 1/(N·prior_variance).
            "auto" picks it by 3-fold validation in runs of stacked chains (`prior_variance_`). A
            network without weights predicts the class frequencies: so does a narrow prior.
        burn_in: share of the steps before the first network is kept; "auto" is 0.5, and 0.8 above
            5000 rows, where mini-batches heat the chains until the lr is small.
        roles: networks to keep: "theta", "guide" or "both"; guides are drawn around θ.
        class_weight: None, "balanced" or a dict, as everywhere in scikit-learn.
        random_state: seed, generator or None, as everywhere in scikit-learn.
        n_jobs: threads of torch; None leaves their number as it is, −1 takes all processors.
        verbose: print what is tried and chosen.
        warm_start: must be False.

    Attributes:
        scores_: held-out NLL of every candidate that was tried.
        diagnostics_: ESS and R-hat of predictions, what the choice of chains leaves to chance, what
            was chosen and tried; `print` it. A fit whose chains disagree warns.

    >>> import numpy as np
    >>> x = np.array([[0.0], [0.1], [0.9], [1.0]] * 5)
    >>> model = EntropyMCMCClassifier(random_state=0).fit(x, ["no", "no", "yes", "yes"] * 5)
    >>> model.predict([[0.0], [1.0]]).tolist()
    ['no', 'yes']
    """

    networks: ClassVar[tuple[Network, ...]] = (((50,), "tanh"), ((50, 50), "relu"), ((), "tanh"))
    chain_limit: ClassVar[float] = 0.1

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int | str = "auto",
        *,
        activation: str = "auto",
        n_chains: int = 4,
        n_samples: int = 8,
        n_steps: int | str = "auto",
        batch_size: int = 200,
        lr: float = 1.5,
        momentum: float = 0.97,
        guide_horizon: float = 10.0,
        temperature: float | str = "auto",
        prior_variance: float | str = "auto",
        burn_in: float | str = "auto",
        roles: str = "theta",
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        warm_start: bool = False,
    ) -> None:
        super().__init__(
            hidden_layer_sizes,
            activation=activation,
            n_chains=n_chains,
            n_samples=n_samples,
            n_steps=n_steps,
            batch_size=batch_size,
            lr=lr,
            momentum=momentum,
            guide_horizon=guide_horizon,
            temperature=temperature,
            prior_variance=prior_variance,
            burn_in=burn_in,
            roles=roles,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> EntropyMCMCClassifier:
        """Sample networks for the rows of X, their classes y and their weights."""
        columns, weights = self._read(X, sample_weight)
        self._require(y)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_consistent_length(columns[0], y)
        check_classification_targets(y)
        if self.class_weight is not None:
            own = compute_sample_weight(self.class_weight, y)
            weights = own if weights is None else weights * own
        used = y if weights is None else y[weights > 0]
        self.classes_ = np.unique(used)
        if len(self.classes_) < 2:
            raise ConfigError(
                f"y must hold at least 2 classes, got 1 class: {self.classes_.tolist()[0]!r}; "
                f"pass rows of another class too"
            )
        hot = (y[:, None] == self.classes_).astype(np.float64)
        with self._threads():
            self._sample(self._table(columns, hot, weights))
        return self

    def _sample(self, table: Table) -> None:
        plan = self._plan(table.x, len(self.classes_))
        offset = log_frequencies(table)
        self.offset_ = offset.double().numpy()
        fixed_prior = None if self.prior_variance == "auto" else plan.prior_variance
        fixed_temperature = None if self.temperature == "auto" else plan.temperature
        open_ = Open(self._networks(), fixed_prior, fixed_temperature)

        def pick(p: Plan) -> tuple[Candidate, Scores]:
            return choose(open_, len(table), losses_of(p, table, Categorical(offset)))

        best, scores = run_until_finite(plan, pick)[0]
        self.scores_ = {str(c): float(loss.mean()) for c, loss in scores.losses.items()}
        for name, score in self.scores_.items():
            self._say(f"{name}: held-out NLL {score:.4f}")
        self._say(f"chosen: {best}")
        plan = replace(
            plan.using(best.network),
            prior_variance=best.prior_variance,
            temperature=best.temperature,
        )
        draws, lr = run_until_finite(plan, lambda p: run(p, table, Categorical(offset)))
        self._keep(plan, draws, lr, table)
        warn_if_apart(type(self).__name__, len(table), self._agreement()[1], self.chain_limit)

    def _agreement(self) -> tuple[Doubles, float | None]:
        predictions = probabilities_of(self._logits_of(self._probe))
        return predictions, chain_error(predictions, self._chains)

    @staticmethod
    def _automatic_steps(rows: int) -> int:
        return automatic_steps(rows)

    def _logits(self, X: Any) -> Iterator[Tensor]:
        """Logits (networks, classes, rows), some rows at a time."""
        return self._logits_of(self._inputs(X))

    def _logits_of(self, inputs: Tensor) -> Iterator[Tensor]:
        for outputs in self._outputs_of(inputs):
            yield outputs + torch.from_numpy(self.offset_)[:, None]

    def sample_predictions(self, X: Any) -> Doubles:
        """Class probabilities of every kept network: (networks, rows, classes).

        Networks are in the order (chain, sample, role): reshape the first axis to (n_chains, −1)
        to compare chains.
        """
        return probabilities_of(self._logits(X))

    def predict_proba(self, X: Any) -> Doubles:
        """Class probabilities, averaged over the kept networks: (rows, classes)."""
        parts = [out.softmax(dim=1).mean(dim=0).T for out in self._logits(X)]
        probabilities: Doubles = torch.cat(parts).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> Doubles:
        """Logarithm of `predict_proba`, finite where a probability would round to zero."""
        parts = [out.log_softmax(dim=1).logsumexp(dim=0).T for out in self._logits(X)]
        logarithms: Doubles = torch.cat(parts).numpy() - np.log(len(self.heats_))
        return logarithms

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class of each row."""
        probabilities = self.predict_proba(X)
        classes: npt.NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return classes

    def calibrate(self, X: Any, y: Any) -> EntropyMCMCClassifier:
        """Keep the scores of rows that were not in `fit`, for `predict_set`."""
        probabilities = self.predict_proba(X)
        labels = label_numbers(y, self.classes_)
        check_consistent_length(probabilities, labels)
        self.calibration_scores_ = 1 - probabilities[np.arange(len(labels)), labels]
        return self

    def predict_set(self, X: Any, level: float = 0.9) -> npt.NDArray[np.bool_]:
        """Which classes are in the conformal set of each row, (rows, classes).

        After `calibrate`, the set of a new row holds its class with probability at least `level`,
        on average over rows like those of the calibration; it may be empty.
        """
        if not hasattr(self, "calibration_scores_"):
            raise NotFittedError("predict_set needs calibrate(X, y) first, with rows not in fit")
        bound = conformal_bound(self.calibration_scores_, level)
        inside: npt.NDArray[np.bool_] = self.predict_proba(X) >= 1 - bound
        return inside


def probabilities_of(logits: Iterator[Tensor]) -> Doubles:
    """Probabilities (networks, rows, classes) of logits (networks, classes, rows)."""
    parts = [part.softmax(dim=1).mT for part in logits]
    probabilities: Doubles = torch.cat(parts, dim=1).numpy()
    return probabilities


def automatic_steps(rows: int) -> int:
    """Steps for this many rows: enough to settle on small data, few passes over large.

    >>> [automatic_steps(n) for n in (10, 100, 1000, 10_000, 100_000)]
    [602, 620, 800, 2600, 6000]
    """
    return int(min(600 + rows // 5, 6000))


def log_frequencies(table: Table) -> Tensor:
    """Logarithms of the class frequencies, each class with half a row more than it has."""
    counts = table.y if table.weights is None else table.y * table.weights[:, None]
    totals = counts.sum(dim=0) + 0.5
    return (totals / totals.sum()).log()
