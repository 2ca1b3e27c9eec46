"""The best rivals tuned: 20 random trials each, judged by held-out training rows.

The rivals are those with the best mean ranks in NLL on the development half. Up to `FEW_ROWS` rows
trials are judged on three folds, above on one third of the rows. Classifiers are judged by NLL,
regressors by the squared error, from which their Gaussian noise is then taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import loguniform, randint, uniform

TRIALS = 20
FEW_ROWS = 500
LEAST = 1e-15  # probability of a class that no training row of a fold had
FAILED = -1e9  # score of a trial that cannot be fitted

LEAVES = {"min_samples_leaf": randint(1, 20), "max_features": ["sqrt", 0.3, 0.6, 1.0]}
SPACES: dict[str, dict[str, Any]] = {
    "logistic": {"C": loguniform(1e-3, 1e3)},
    "mlp": {
        "hidden_layer_sizes": [(50,), (100,), (50, 50), (100, 100)],
        "alpha": loguniform(1e-5, 10),
        "learning_rate_init": loguniform(3e-4, 1e-2),
        "max_iter": [50, 100, 200],
    },
    "forest": {**LEAVES, "max_depth": [None, 4, 8, 16]},
    "lightgbm": {
        "n_estimators": randint(20, 400),
        "learning_rate": loguniform(0.01, 0.3),
        "num_leaves": randint(4, 64),
        "min_child_samples": randint(3, 50),
        "reg_lambda": loguniform(1e-3, 10),
        "colsample_bytree": uniform(0.5, 0.5),
    },
    "hist-boosting": {
        "max_iter": randint(20, 400),
        "learning_rate": loguniform(0.01, 0.3),
        "max_leaf_nodes": randint(4, 64),
        "min_samples_leaf": randint(3, 50),
        "l2_regularization": loguniform(1e-3, 10),
    },
}
RIVALS = {
    "classification": ("logistic", "mlp", "lightgbm"),
    "regression": ("forest", "mlp", "hist-boosting"),
}


class Searched:
    """`make(seed)` with the best of `TRIALS` settings, fitted again to all rows."""

    def __init__(self, rival: str, task: str, make: Callable[[int], Any], seed: int) -> None:
        self.rival, self.task, self._make, self._seed = rival, task, make, seed

    def fit(self, x: Any, y: Any) -> Any:
        """Search, and return the fitted model."""
        from sklearn.model_selection import KFold, RandomizedSearchCV, ShuffleSplit, StratifiedKFold

        classify = self.task == "classification"
        folds = (StratifiedKFold if classify else KFold)(3, shuffle=True, random_state=self._seed)
        once = ShuffleSplit(1, test_size=1 / 3, random_state=self._seed)
        model = self._make(self._seed)
        search = RandomizedSearchCV(
            model,
            {prefix(model) + name: values for name, values in SPACES[self.rival].items()},
            n_iter=TRIALS,
            scoring=minus_nll if classify else "neg_mean_squared_error",
            cv=folds if len(y) <= FEW_ROWS else once,
            random_state=self._seed,
            error_score=FAILED,
        )
        return search.fit(x, y).best_estimator_


def prefix(model: Any) -> str:
    """What stands before a parameter of the last step of a pipeline, or of a scaled target's."""
    if hasattr(model, "regressor"):
        return f"regressor__{prefix(model.regressor)}"
    return f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""


def minus_nll(model: Any, x: Any, y: Any) -> float:
    """Mean log-probability of the classes; a class that the model has not seen is improbable."""
    probs = np.clip(model.predict_proba(x), LEAST, 1)
    place = {name: i for i, name in enumerate(model.classes_)}
    own = [probs[row, place[name]] if name in place else LEAST for row, name in enumerate(y)]
    return float(np.mean(np.log(own)))
