"""What a table model uses: permutation importance and partial dependence with posterior bands.

Both come from scikit-learn's own tools. The estimator as a whole gives the lines; each kept
network, as an estimator of its own, gives one draw of them, and their quantiles are the bands: what
the data leave open about an effect, not the noise of a row.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import load_diabetes
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import train_test_split

from entropy_mcmc.sklearn import EntropyMCMCRegressor

MEAN, DRAWS = "#1b3f73", "#3b6fb6"
LEVELS = (0.05, 0.95)


class OneNetwork(RegressorMixin, BaseEstimator):
    """One kept network of a fitted estimator, which scikit-learn's tools take as fitted."""

    def __init__(self, model: EntropyMCMCRegressor, number: int) -> None:
        self.model = model
        self.number = number

    def fit(self, X: Any, y: Any) -> OneNetwork:
        """Nothing to fit: the networks were sampled together."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: Any) -> np.ndarray:
        """Output of this network."""
        return self.model.sample_predictions(X)[self.number]


def importances(model: EntropyMCMCRegressor, x: Any, y: Any, every: int) -> np.ndarray:
    """Loss of R² when a column is shuffled, for each network: (networks, columns)."""
    drops = []
    for number in range(0, len(model.weights_), every):
        found = permutation_importance(OneNetwork(model, number), x, y, n_repeats=3, random_state=0)
        drops.append(found.importances_mean)
    return np.array(drops)


def dependence(model: EntropyMCMCRegressor, x: Any, column: str, every: int) -> tuple[Any, Any]:
    """Grid of a column, and the partial dependence of each network on it: (networks, grid)."""
    curves = []
    for number in range(0, len(model.weights_), every):
        found = partial_dependence(OneNetwork(model, number), x, [column], grid_resolution=25)
        curves.append(found["average"][0])
    return found["grid_values"][0], np.array(curves)


def draw(names: Any, drops: np.ndarray, curves: dict[str, tuple[Any, Any]], path: Path) -> None:
    """Importances with bands on the left, the effects of the first columns on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    first, *others = figure.subplots(1, 1 + len(curves), width_ratios=[1.3, *[1] * len(curves)])
    order = np.argsort(drops.mean(axis=0))
    mean = drops.mean(axis=0)[order]
    low, high = np.quantile(drops, LEVELS, axis=0)[:, order]
    first.hlines(range(len(order)), low, high, color=DRAWS, lw=4, alpha=0.5)
    first.plot(mean, range(len(order)), "o", color=MEAN)
    first.set_yticks(range(len(order)), [names[i] for i in order])
    first.set_xlabel("loss of R² when the column is shuffled")
    first.set_title("importance, with 90 % of the networks", fontsize=10)
    for axes, (name, (grid, lines)) in zip(others, curves.items(), strict=True):
        axes.fill_between(grid, *np.quantile(lines, LEVELS, axis=0), color=DRAWS, alpha=0.35)
        axes.plot(grid, lines.mean(axis=0), color=MEAN)
        axes.set_xlabel(name)
        axes.set_title("partial dependence", fontsize=10)
    others[0].set_ylabel("disease progression")
    low = min(axes.get_ylim()[0] for axes in others)
    high = max(axes.get_ylim()[1] for axes in others)
    for axes in others:
        axes.set_ylim(low, high)
    figure.savefig(path, dpi=110)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Fit the diabetes table, and draw what its columns do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=None, help="by default, as the rows demand")
    parser.add_argument("--every", type=int, default=1, help="networks between two that are used")
    parser.add_argument("--picture", type=Path, default=Path("table-effects.png"))
    options = parser.parse_args(argv)
    x, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    x, x_test, y, y_test = train_test_split(x, y, random_state=0)
    model = EntropyMCMCRegressor(n_steps=options.steps or "auto", random_state=0).fit(x, y)
    drops = importances(model, x_test, y_test, options.every)
    best = [x.columns[i] for i in np.argsort(-drops.mean(axis=0))[:3]]
    curves = {name: dependence(model, x_test, name, options.every) for name in best}
    draw(list(x.columns), drops, curves, options.picture)
    whole = permutation_importance(model, x_test, y_test, n_repeats=3, random_state=0)
    line = curves[best[0]][1].mean(axis=0)
    result = {
        "R2": float(model.score(x_test, y_test)),
        "importance of the first column": float(whole.importances_mean.max()),
        "rise of its effect": float(line[-1] - line[0]),
    }
    print({name: round(value, 3) for name, value in result.items()}, f"picture: {options.picture}")
    return result


if __name__ == "__main__":
    main()
