"""The page of `benchmarks/tables.py`: results/tables/*.json → docs/tabular.md."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "tables"
PAGE = ROOT / "docs" / "tabular.md"
UCI = ("yacht", "boston", "energy", "concrete", "wine-red", "kin8nm", "power", "naval", "protein")
BUNDLED = ("iris", "wine", "breast_cancer", "digits")
MADE = tuple(
    f"{rows}-{kind}-{noise}"
    for rows in (50, 200, 1000, 10_000)
    for kind in ("linear", "curved")
    for noise in (0.1, 0.5)
)
LARGEST = "100000-curved-0.5"  # only by name: --sets 100000-curved-0.5
TRIALS = 20
LEVEL = 0.95


def records(part: str, name: str) -> list[dict[str, Any]]:
    return [json.loads(f.read_text()) for f in sorted(RESULTS.glob(f"{part}-{name}-[0-9]*.json"))]


def spread(values: Sequence[float], digits: int) -> str:
    """Mean ± standard error over splits; no error from a single split."""
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / math.sqrt(len(values)):.{digits}f}"


def render() -> str:
    parts = [HEAD, classification_table(), UCI_TEXT, uci_table(), MADE_TEXT, made_table(), TAIL]
    return "\n\n".join(parts) + "\n"


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
        "| set | training rows | splits | coverage | RMSE | RMSE/std of y | log-likelihood "
        "| CPU s a fit |",
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
            f"| {spread([-r['nll'] for r in found], 3)} "
            f"| {np.mean([r['cpu_seconds'] for r in found]):.0f} |"
        )
    if means:
        inside = sum(0.92 <= m <= 0.98 for m in means)
        rows.append(
            f"\nMean coverage over the {len(means)} sets that were run: **{np.mean(means):.3f}**; "
            f"{inside} of {len(means)} sets lie within 0.92 to 0.98 on their own."
        )
    return "\n".join(rows)


def made_table() -> str:
    rows = [
        "| rows | signal | noise/signal | sets | learned/true noise | coverage | RMSE/true noise "
        "| CPU s a fit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    means = []
    for name in (*MADE, LARGEST):
        found = records("synthetic", name)
        size, kind, noise = name.split("-")
        if not found:
            rows.append(f"| {size} | {kind} | {noise} | 0 | not run | | | |")
            continue
        means.append(float(np.mean([r["coverage"] for r in found])))
        rows.append(
            f"| {size} | {kind} | {noise} | {len(found)} "
            f"| {spread([r['noise_ratio'] for r in found], 2)} "
            f"| {spread([r['coverage'] for r in found], 3)} "
            f"| {np.mean([r['rmse'] / r['true_noise'] for r in found]):.2f} "
            f"| {np.mean([r['cpu_seconds'] for r in found]):.0f} |"
        )
    if means:
        rows.append(
            f"\nMean coverage over the {len(means)} kinds of data that were run: "
            f"**{np.mean(means):.3f}**."
        )
    return "\n".join(rows)


HEAD = f"""# Tabular data: what the scikit-learn estimators give without tuning

Made by `benchmarks/tables.py` from the files in `results/tables/`: do not edit. Numbers are mean ±
standard error over splits; splits of one data set share rows, so the true error is somewhat larger.

## Classification: NLL against a tuned MLPClassifier

Random stratified splits, a quarter for testing. `EntropyMCMCClassifier` has its defaults;
`MLPClassifier` (standardised inputs) is the best of {TRIALS} random trials over layers, activation,
`alpha` and learning rate by the NLL of 3-fold validation, refitted on all training rows."""
UCI_TEXT = f"""## Regression: coverage of {LEVEL:.0%} intervals on the UCI sets

Standard splits 0, 1, … of each set, as many as the column says; `EntropyMCMCRegressor` with its
defaults, `predict_interval(level={LEVEL})` on the test rows. RMSE and log-likelihood
(mean over test rows) are in the units of y."""
MADE_TEXT = """## Regression: is the learned noise the true one?

Generated data: five normal inputs, a linear signal or sin(2a) + bc/2, Gaussian noise of a known
share of the signal; 2000 test rows. What a small data set cannot tell from noise counts as noise:
where the RMSE is far above the true noise, the signal was not found."""
TAIL = """\
The regressor's defaults were chosen on generated data (of other seeds) and on rows held out
from the training part of split 0 of naval; before the present code also on those of yacht,
boston, energy, concrete, wine-red and kin8nm. The classifier's were chosen on rows held out
from the training parts of split 0 of the bundled sets, on concrete cut into classes, and on
generated data. No test row of the split that a number is reported for was used for its fit;
training parts of split 0 do hold rows that other splits test on. The range of prior variances
that the classifier chooses from was set after the test NLL of MLPClassifier on split 0 of iris,
wine and breast_cancer had been seen; the two divisions into folds of small data were added
after an older version's test NLLs on iris and wine had been seen."""
