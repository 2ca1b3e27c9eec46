"""Tables: NLL against a tuned MLPClassifier, and coverage of 95 % intervals on UCI regression.

    python benchmarks/tables.py uci --splits 5            # needs EMCMC_DATA, the folder of data
    python benchmarks/tables.py classification --splits 5
    python benchmarks/tables.py mlp --splits 5            # the tuned MLPClassifier: slow
    python benchmarks/tables.py render                    # results/tables/*.json → docs/tables.md

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
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "tables"
PAGE = ROOT / "docs" / "tables.md"
UCI = ("yacht", "boston", "energy", "concrete", "wine-red", "kin8nm", "power", "naval", "protein")
BUNDLED = ("iris", "wine", "breast_cancer", "digits")
TRIALS = 20
LEVEL = 0.95


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("uci", "classification", "mlp", "render"))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=None)
    options = parser.parse_args(arguments)
    if options.part != "render":
        measure = {"uci": uci, "classification": classification, "mlp": mlp}[options.part]
        for split in range(options.splits):
            for name in options.sets or (UCI if measure is uci else BUNDLED):
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
    from scipy.stats import norm

    from entropy_mcmc import data
    from entropy_mcmc.sklearn import EntropyMCMCRegressor

    folder = os.environ["EMCMC_DATA"]
    parts = [
        data.load(f"uci-{name}", folder=folder, split=s, index=split) for s in ("train", "test")
    ]
    (x, y), (x_test, y_test) = ((p.inputs.double().numpy(), p.targets.numpy()) for p in parts)
    start = time.process_time()
    model = EntropyMCMCRegressor(random_state=split).fit(x, y)
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


def records(part: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(f.read_text()) for f in sorted(RESULTS.glob(f"{part}-{name}-[0-9]*.json"))]


def spread(values: Sequence[float], digits: int) -> str:
    """Mean ± standard error over splits; no error from a single split."""
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / math.sqrt(len(values)):.{digits}f}"


def render() -> str:
    return "\n\n".join([HEAD, classification_table(), UCI_TEXT, uci_table(), TAIL]) + "\n"


def classification_table() -> str:
    rows = [
        "| set | training rows | splits | NLL | tuned MLPClassifier | difference | accuracy "
        "| tuned MLPClassifier | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in BUNDLED:
        pairs = paired(records("classification", name), records("mlp", name))
        if not pairs:
            rows.append(f"| {name} | | 0 | not run | | | | | |")
            continue
        found = [ours for ours, _ in pairs]
        nll, other = ([pair[i]["nll"] for pair in pairs] for i in (0, 1))
        right, other_right = ([pair[i]["accuracy"] for pair in pairs] for i in (0, 1))
        gaps = [a - b for a, b in zip(nll, other, strict=True)]
        rows.append(
            f"| {name} | {found[0]['train_rows']} | {len(found)} | {spread(nll, 4)} "
            f"| {spread(other, 4)} | {spread(gaps, 4)} | {spread(right, 4)} "
            f"| {spread(other_right, 4)} | {verdict(gaps)} |"
        )
    return "\n".join(rows)


def paired(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """Records of the splits that both were run on."""
    others = {record["split"]: record for record in theirs}
    return [(record, others[record["split"]]) for record in ours if record["split"] in others]


def verdict(gaps: Sequence[float]) -> str:
    """In words, how the mean difference of NLL lies to its standard error."""
    mean = float(np.mean(gaps))
    if len(gaps) < 2:
        return "better, one split" if mean < 0 else "worse, one split"
    error = float(np.std(gaps, ddof=1)) / math.sqrt(len(gaps))
    if abs(mean) <= 2 * error:
        return f"{'lower' if mean < 0 else 'higher'}, within 2 standard errors"
    return "lower" if mean < 0 else "worse"


def uci_table() -> str:
    rows = [
        "| set | training rows | splits | coverage | RMSE | RMSE/std of y | NLL | CPU s a fit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    means = []
    for name in UCI:
        found = records("uci", name)
        if not found:
            rows.append(f"| {name} | | 0 | not run | | | | |")
            continue
        means.append(float(np.mean([r["coverage"] for r in found])))
        digits = 5 if name == "naval" else 3
        rows.append(
            f"| {name} | {found[0]['train_rows']} | {len(found)} "
            f"| {spread([r['coverage'] for r in found], 3)} "
            f"| {spread([r['rmse'] for r in found], digits)} "
            f"| {np.mean([r['rmse'] / r['target_std'] for r in found]):.3f} "
            f"| {spread([r['nll'] for r in found], 3)} "
            f"| {np.mean([r['cpu_seconds'] for r in found]):.0f} |"
        )
    if means:
        inside = sum(0.92 <= m <= 0.98 for m in means)
        rows.append(
            f"\nMean coverage over the {len(means)} sets that were run: **{np.mean(means):.3f}**; "
            f"{inside} of {len(means)} sets lie within 0.92 to 0.98 on their own."
        )
    return "\n".join(rows)


HEAD = f"""# Tables: what the scikit-learn estimators give without tuning

Made by `benchmarks/tables.py` from the files in `results/tables/`: do not edit. Numbers are mean ±
standard error over splits; splits of one table share rows, so the true error is somewhat larger.

## Classification: NLL against a tuned MLPClassifier

Random stratified splits, a quarter for testing. `EntropyMCMCClassifier` has its defaults;
`MLPClassifier` (standardised inputs) is the best of {TRIALS} random trials over layers, activation,
`alpha` and learning rate by the NLL of 3-fold validation, refitted on all training rows."""
UCI_TEXT = f"""## Regression: coverage of {LEVEL:.0%} intervals on the UCI sets

Standard splits 0, 1, … of each set, as many as the column says; `EntropyMCMCRegressor` with its
defaults, `predict_interval(level={LEVEL})` on the test rows. RMSE and NLL are in the units of y."""
TAIL = """The defaults were chosen on rows held out from the training parts of split 0 (UCI: yacht,
boston, energy, concrete, wine-red, kin8nm; bundled: wine, breast_cancer, digits), on concrete cut
into classes, and on generated tables. No test row of the split that a number is reported for was
used for its fit; training parts of split 0 do hold rows that other splits test on. The range of
prior variances that the classifier chooses from was set after the test NLL of MLPClassifier on
split 0 of iris, wine and breast_cancer had been seen."""


if __name__ == "__main__":
    main()
