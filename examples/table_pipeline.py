"""scikit-learn: an estimator at the end of a Pipeline, on a table with missing values.

The table is breast cancer with a tenth of its cells removed. `SimpleImputer` fills them and adds a
column that says where; the estimator standardises its inputs by itself.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from entropy_mcmc import metrics
from entropy_mcmc.sklearn import EntropyMCMCClassifier


def load(seed: int = 0) -> list[np.ndarray]:
    """Training rows, test rows, and their classes; a tenth of the cells is NaN."""
    x, y = load_breast_cancer(return_X_y=True)
    holes = np.random.default_rng(seed).random(x.shape) < 0.1
    return train_test_split(np.where(holes, np.nan, x), y, random_state=seed, stratify=y)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Fit, judge the probabilities, and refuse the rows on which the networks disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--steps", type=int, default=None, help="by default, as the rows demand")
    options = parser.parse_args(argv)
    x, x_test, y, y_test = load()
    model = make_pipeline(
        SimpleImputer(add_indicator=True),
        EntropyMCMCClassifier(
            n_chains=options.chains, n_steps=options.steps or "auto", random_state=0
        ),
    )
    model.fit(x, y)
    probs = model.predict_proba(x_test)
    scores = metrics.summary(probs, y_test)
    print({name: round(value, 4) for name, value in scores.items()})

    networks = model[-1].sample_predictions(model[:-1].transform(x_test))
    doubt = metrics.mutual_information(networks)  # how much the networks disagree
    sure = doubt <= np.quantile(doubt, 0.8)
    kept = metrics.accuracy(probs[sure], y_test[sure])
    print(f"{len(networks)} networks; accuracy on the surest 80 % of the rows: {kept:.4f}")
    return {"surest": kept, **scores}


if __name__ == "__main__":
    main()
