"""`EntropyMCMCClassifier`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from entropy_mcmc.errors import ConfigError
from entropy_mcmc.sklearn.base import (
    Doubles,
    LikelihoodMaker,
    TabularEstimator,
    run_until_finite,
)
from entropy_mcmc.sklearn.classifier_selection import CANDIDATES, choose
from entropy_mcmc.sklearn.likelihood import Categorical
from entropy_mcmc.sklearn.plan import Network, Plan


class EntropyMCMCClassifier(ClassifierMixin, TabularEstimator):  # type: ignore[misc]
    """Classifier of tabular data: the average of sampled networks.

    Inputs are standardised inside. Rows have equal weight: there is no `sample_weight`.

    Args:
        hidden_layer_sizes: widths of the hidden layers; "auto" is (50, 50).
        activation: "relu", "silu" or "tanh"; "auto" is "relu". Up to 500 rows "auto" also tries
            one hidden layer of tanh, and takes it where held-out rows are better predicted
            (`hidden_layer_sizes_`, `activation_`).
        n_chains: independent chains, each from its own start.
        n_samples: networks kept of each chain and role.
        n_steps: steps of each chain; "auto" follows the number of rows.
        batch_size: rows in a step; all rows if there are no more.
        lr: first learning rate for the mean loss; it falls by a cosine. A run that diverges
            starts again at a third of it (`lr_` says which was used).
        momentum: of the sampler.
        guide_horizon: steps over which the guide averages; η = guide_horizon·lr/N.
        temperature: of the posterior; 1 is Bayes, less is a sharper posterior: at T = 1 the broad
            prior made probabilities too timid on validation rows.
        prior_variance: of every weight, where layers divide by √fan_in; λ = 1/(N·prior_variance).
            "auto" picks it by 3-fold validation in one run of stacked chains (`prior_variance_`),
            up to 500 rows by two divisions into folds: the narrowest prior within one standard
            error of the best.
        burn_in: share of the steps before the first network is kept; "auto" is 0.5, and 0.8 above
            5000 rows, where mini-batches heat the chains until the lr is small.
        roles: networks to keep: "theta", "guide" or "both".
        random_state: seed, generator or None, as everywhere in scikit-learn.

    >>> import numpy as np
    >>> x = np.array([[0.0], [0.1], [0.9], [1.0]] * 5)
    >>> model = EntropyMCMCClassifier(random_state=0).fit(x, ["no", "no", "yes", "yes"] * 5)
    >>> model.predict([[0.0], [1.0]]).tolist()
    ['no', 'yes']
    """

    networks: ClassVar[tuple[Network, ...]] = (((50, 50), "relu"), ((50,), "tanh"))

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | str = "auto",
        *,
        activation: str = "auto",
        n_chains: int = 4,
        n_samples: int = 16,
        n_steps: int | str = "auto",
        batch_size: int = 200,
        lr: float = 3.0,
        momentum: float = 0.97,
        guide_horizon: float = 10.0,
        temperature: float = 0.02,
        prior_variance: float | str = "auto",
        burn_in: float | str = "auto",
        roles: str = "theta",
        random_state: Any = None,
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
        )

    def fit(self, X: Any, y: Any) -> EntropyMCMCClassifier:
        """Sample networks for the rows of X and their classes y."""
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ConfigError(
                f"y must hold at least 2 classes, got 1 class: {self.classes_[0]!r}; "
                f"pass rows of another class too"
            )
        self._sample(X, torch.from_numpy(labels), len(self.classes_))
        return self

    def _choose(self, plan: Plan, x: Tensor, targets: Tensor) -> tuple[Plan, LikelihoodMaker]:
        priors = CANDIDATES if self.prior_variance == "auto" else (plan.prior_variance,)
        pick = partial(choose, x=x, labels=targets, networks=self._networks(), priors=priors)
        network, variance = run_until_finite(plan, pick)[0]
        return replace(plan.using(network), prior_variance=variance), Categorical

    def sample_predictions(self, X: Any) -> Doubles:
        """Class probabilities of every kept network: (networks, rows, classes)."""
        parts = [out.softmax(dim=-1) for out in self._outputs(X)]
        probabilities: Doubles = torch.cat(parts, dim=1).numpy()
        return probabilities

    def predict_proba(self, X: Any) -> Doubles:
        """Class probabilities, averaged over the kept networks: (rows, classes)."""
        parts = [out.softmax(dim=-1).mean(dim=0) for out in self._outputs(X)]
        probabilities: Doubles = torch.cat(parts).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> Doubles:
        """Logarithm of `predict_proba`, finite where a probability would round to zero."""
        parts = [out.log_softmax(dim=-1).logsumexp(dim=0) for out in self._outputs(X)]
        logarithms: Doubles = torch.cat(parts).numpy() - np.log(len(self.heats_))
        return logarithms

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        classes: npt.NDArray[Any] = self.classes_[best]
        return classes
