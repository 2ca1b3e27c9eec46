r"""Selective prediction: answer where the model is sure, so that few answers are wrong.

A row is answered when its confidence (the largest probability) is above a threshold c. Of
validation rows, the m that lie above the k-th largest confidence are, given its value, independent
draws of answered rows: their e errors are binomial with the error rate R(c) of all rows that would
be answered. So with J thresholds that are set by the number of rows above them, never by labels,

.. math:: P\big(R(c_j) \le u_j \text{ for all } j\big) \ge 1-\delta,
   \qquad u_j: \; P(\mathrm{Bin}(m_j, u_j) \le e_j) = \delta/J

(Clopper–Pearson bounds, Bonferroni over the thresholds). The rule takes the threshold that answers
most rows among those whose bound is at most the risk that was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from entropy_mcmc._metric_inputs import Array, probabilities, probabilities_and_labels
from entropy_mcmc.decisions.json_file import JsonFile
from entropy_mcmc.errors import ConfigError, check_count, check_number

LEVELS = 20


@dataclass(frozen=True)
class Abstention(JsonFile):
    """A rule that says which rows to answer, and what is known of its error rate.

    Attributes:
        threshold: Rows whose largest probability is above it are answered.
        risk: The error rate among answered rows that was asked for.
        delta: Probability, over validation sets, that the true error rate is above the bound.
        bound: Upper bound on the error rate among answered rows, at most `risk`.
        coverage: Share of the validation rows that is answered.
        rows: Validation rows.
        answered: Validation rows that are answered.
        errors: Wrong ones among them.
    """

    kind: ClassVar[str] = "abstention"

    threshold: float
    risk: float
    delta: float
    bound: float
    coverage: float
    rows: int
    answered: int
    errors: int

    @classmethod
    def fit(
        cls,
        probs: Array,
        targets: Array,
        *,
        risk: float,
        delta: float = 0.05,
        levels: int = LEVELS,
    ) -> Self:
        """The rule that answers most rows with an error rate of at most `risk`.

        With probability 1 − `delta` over the validation rows, the error rate of the answered rows
        among all future ones is at most `risk`. This holds if validation and future rows are
        drawn alike and independently, and if nothing (samples, hyper-parameters, temperature) was
        chosen on these validation rows. It says nothing of rows of another kind.

        Args:
            probs: (rows, classes) of validation rows.
            targets: The true class of each row, from 0.
            risk: Error rate to stay below, such as 0.01.
            delta: Probability with which the promise may fail.
            levels: Thresholds that are tried: those that answer 1/levels, 2/levels, … of the rows.

        Raises:
            ConfigError: No threshold can be certified; the message says how many rows it takes.
        """
        checked, labels = probabilities_and_labels(probs, targets)
        for name, value in (("risk", risk), ("delta", delta)):
            if not 0 < check_number(name, value) < 1:
                raise ConfigError(f"{name} must be greater than 0 and less than 1, got {value}")
        levels = check_count("levels", levels)
        wrong = checked.argmax(axis=1) != labels
        tried = [
            cls._at(threshold, checked.max(axis=1), wrong, risk, delta, levels)
            for threshold in _thresholds(checked.max(axis=1), levels)
        ]
        certified = [rule for rule in tried if rule.bound <= risk]
        if not certified:
            best = min(tried, key=lambda rule: rule.bound)
            needed = int(np.ceil(np.log(delta / levels) / np.log1p(-risk)))
            raise ConfigError(
                f"no part of the {len(labels)} validation rows can be answered with an error rate "
                f"of at most risk={risk}: the lowest upper bound is {best.bound:.3g} (for "
                f"{best.answered} rows with {best.errors} errors). Even without an error it takes "
                f"{needed} answered rows; use more rows, a larger risk, or a larger delta"
            )
        return max(certified, key=lambda rule: rule.answered)

    @classmethod
    def _at(
        cls,
        threshold: float,
        confidence: npt.NDArray[np.float64],
        wrong: npt.NDArray[np.bool_],
        risk: float,
        delta: float,
        levels: int,
    ) -> Self:
        """The rule with this threshold, and its bound at delta/levels."""
        answers = confidence > threshold
        answered, errors = int(answers.sum()), int(wrong[answers].sum())
        return cls(
            threshold=threshold,
            risk=risk,
            delta=delta,
            bound=upper_bound(errors, answered, delta / levels),
            coverage=answered / len(wrong),
            rows=len(wrong),
            answered=answered,
            errors=errors,
        )

    def answers(self, probs: Array) -> npt.NDArray[np.bool_]:
        """Which rows of (rows, classes) to answer; the others go to someone else."""
        confidence = probabilities("probs", probs, axes=("n", "classes")).max(axis=1)
        return np.asarray(confidence > self.threshold)

    def __str__(self) -> str:
        return (
            f"answer above {self.threshold:.4g}: {100 * self.coverage:.1f} % of {self.rows} rows, "
            f"{self.errors} of {self.answered} wrong; error rate at most {100 * self.bound:.2f} % "
            f"with confidence {100 * (1 - self.delta):g} %"
        )


def upper_bound(errors: int, answered: int, delta: float) -> float:
    """The error rate u with P(Bin(answered, u) ≤ errors) = delta; 1 where nothing is known.

    >>> round(upper_bound(0, 100, 0.05), 4)
    0.0295
    """
    from scipy.stats import beta

    return 1.0 if errors >= answered else float(beta.ppf(1 - delta, errors + 1, answered - errors))


def _thresholds(confidence: npt.NDArray[np.float64], levels: int) -> list[float]:
    """Confidences that rows lie above: of the j-th, about j/levels of them; the last is 0."""
    ranked = np.sort(confidence)[::-1]
    places = [len(ranked) * level // levels for level in range(1, levels)]
    return [*(float(ranked[place]) for place in places), 0.0]
