"""Tables: NLL against a tuned MLPClassifier, coverage of 95 % intervals on UCI and made tables.

    python benchmarks/tables.py uci --splits 5            # needs EMCMC_DATA, the folder of data
    python benchmarks/tables.py classification --splits 5
    python benchmarks/tables.py mlp --splits 5            # the tuned MLPClassifier: slow
    python benchmarks/tables.py synthetic --splits 2      # tables with known noise
    python benchmarks/tables.py render                    # results/tables/*.json → docs/tabular.md

Each fit is one JSON file; a file that exists is not made again, so a stopped run goes on.
The estimators run with their defaults; only `random_state` is given.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tables_page import BUNDLED, LEVEL, MADE, PAGE, RESULTS, ROOT, TRIALS, UCI, render

MADE_TEST_ROWS = 2000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=(*PARTS, "render"))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=None)
    options = parser.parse_args(arguments)
    if options.part != "render":
        measure, sets = PARTS[options.part]
        for split in range(options.splits):
            for name in options.sets or sets:
                once(options.part, measure, name, split)
    PAGE.write_text(render())


def once(part: str, measure: Callable[[str, int], dict[str, Any]], name: str, split: int) -> None:
    """Measure and write its JSON file, unless it is there."""
    key = f"{part}-{name}-{split}"
    file = RESULTS / f"{key}.json"
    if file.exists():
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    record = {
        "set": name,
        "split": split,
        **measure(name, split),
        "command": f"python benchmarks/tables.py {part} --sets {name} --splits {split + 1}",
        "versions": versions(),
    }
    unfinished = file.with_suffix(".part")
    unfinished.write_text(json.dumps(record, indent=1) + "\n")
    unfinished.replace(file)
    shown = {k: v for k, v in record.items() if isinstance(v, float)}
    print(key, {k: round(v, 4) for k, v in shown.items()}, flush=True)


def uci(name: str, split: int) -> dict[str, Any]:
    """Fit on the training rows of a standard split, judge on its test rows."""
    from entropy_mcmc import data

    folder = os.environ["EMCMC_DATA"]
    parts = [
        data.load(f"uci-{name}", folder=folder, split=s, index=split) for s in ("train", "test")
    ]
    train, test = ((p.inputs.double().numpy(), p.targets.numpy()) for p in parts)
    return judged_regression(train, test, split)


def synthetic(name: str, split: int) -> dict[str, Any]:
    """A table with known noise: five normal inputs, three of which matter."""
    rows, kind, noise = name.split("-")
    draws = np.random.default_rng(1000 + split)
    x = draws.standard_normal((int(rows) + MADE_TEST_ROWS, 5))
    straight = x[:, 0] - 0.5 * x[:, 1] + 0.3 * x[:, 2]
    curved = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    signal = straight if kind == "linear" else curved
    true_noise = float(noise) * float(signal.std())
    y = signal + true_noise * draws.standard_normal(len(x))
    train, test = (x[: int(rows)], y[: int(rows)]), (x[int(rows) :], y[int(rows) :])
    found = judged_regression(train, test, split)
    return found | {"noise_ratio": found["noise_std"] / true_noise, "true_noise": true_noise}


def judged_regression(train: Any, test: Any, seed: int) -> dict[str, Any]:
    """Fit with defaults; coverage, width, RMSE and NLL on the test rows."""
    from scipy.stats import norm

    from entropy_mcmc.sklearn import EntropyMCMCRegressor

    (x, y), (x_test, y_test) = train, test
    start = time.process_time()
    model = EntropyMCMCRegressor(random_state=seed).fit(x, y)
    seconds = time.process_time() - start
    low, high = model.predict_interval(x_test, level=LEVEL).T
    means, noise = model.sample_predictions(x_test), model.noise_std_[:, None]
    logs = np.logaddexp.reduce(norm.logpdf(y_test, means, noise), axis=0) - math.log(len(means))
    return {
        "train_rows": len(x),
        "test_rows": len(x_test),
        "features": x.shape[1],
        "coverage": float(np.mean((low <= y_test) & (y_test <= high))),
        "width": float(np.mean(high - low)),
        "rmse": float(np.sqrt(np.mean((means.mean(axis=0) - y_test) ** 2))),
        "target_std": float(y.std()),
        "nll": float(-logs.mean()),
        "noise_std": float(np.sqrt(np.mean(noise**2))),
        "prior_variance": model.prior_variance_,
        "lr": model.lr_,
        "steps": model.n_steps_,
        "cpu_seconds": seconds,
        "config": described(model),
    }


def classification(name: str, split: int) -> dict[str, Any]:
    """Test NLL of the estimator, as it comes."""
    from entropy_mcmc.sklearn import EntropyMCMCClassifier

    return judged(EntropyMCMCClassifier(random_state=split), name, split)


def mlp(name: str, split: int) -> dict[str, Any]:
    """Test NLL of MLPClassifier after a search, on the same rows."""
    search = tuned_mlp(split)
    measured = judged(search, name, split)
    return measured | {"best": {k: str(v) for k, v in search.best_params_.items()}}


def judged(model: Any, name: str, split: int) -> dict[str, Any]:
    """Fit on three quarters of a bundled set, drawn by `split`, and judge on the last quarter."""
    from sklearn import datasets
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    parts = train_test_split(x, y, test_size=0.25, stratify=y, random_state=split)
    x, x_test, y, y_test = parts
    start = time.process_time()
    model.fit(x, y)
    seconds = time.process_time() - start
    probabilities = model.predict_proba(x_test)
    right = model.classes_[probabilities.argmax(axis=1)] == y_test
    return {
        "train_rows": len(x),
        "test_rows": len(x_test),
        "nll": float(log_loss(y_test, probabilities, labels=model.classes_)),
        "accuracy": float(np.mean(right)),
        "cpu_seconds": seconds,
        "config": described(model),
    }


def tuned_mlp(seed: int) -> Any:
    """MLPClassifier on standardised inputs: 20 random trials by the NLL of 3-fold validation."""
    from scipy.stats import loguniform
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import RandomizedSearchCV
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    warnings.simplefilter("ignore", ConvergenceWarning)
    space = {
        "mlpclassifier__hidden_layer_sizes": [(50,), (100,), (50, 50), (100, 100)],
        "mlpclassifier__alpha": loguniform(1e-5, 10),
        "mlpclassifier__learning_rate_init": loguniform(3e-4, 3e-2),
        "mlpclassifier__activation": ["relu", "tanh"],
    }
    network = make_pipeline(StandardScaler(), MLPClassifier(max_iter=300, random_state=seed))
    return RandomizedSearchCV(
        network, space, n_iter=TRIALS, cv=3, scoring="neg_log_loss", random_state=seed
    )


def described(model: Any) -> dict[str, str]:
    """Every parameter of an estimator, as text."""
    found = model.get_params(deep=False)
    spaces = found.get("param_distributions", {})
    drawn = {k: v if isinstance(v, list) else f"loguniform{v.args}" for k, v in spaces.items()}
    return {k: str(drawn if k == "param_distributions" else v) for k, v in found.items()}


def versions() -> dict[str, str]:
    import sklearn
    import torch

    import entropy_mcmc

    return {
        "entropy_mcmc": entropy_mcmc.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": str(torch.__version__),
        "scikit-learn": sklearn.__version__,
        "threads": str(torch.get_num_threads()),
    }


def commit() -> str:
    """The last commit, marked when the sources differ from it."""
    git = ["git", "-C", str(ROOT)]
    last = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src/entropy_mcmc/sklearn"])
    return last.stdout.strip() + (" and changes" if changed.returncode else "")


PARTS: dict[str, tuple[Callable[[str, int], dict[str, Any]], Sequence[str]]] = {
    "uci": (uci, UCI),
    "synthetic": (synthetic, MADE),
    "classification": (classification, BUNDLED),
    "mlp": (mlp, BUNDLED),
}

if __name__ == "__main__":
    main()
