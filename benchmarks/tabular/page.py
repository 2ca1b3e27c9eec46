"""The page of the benchmark: results/tables/*.json → docs/tabular.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "tables"
PAGE = ROOT / "docs" / "tabular.md"
OURS = "entropy-mcmc"
LOWER = ("nll", "brier", "ece", "rmse", "crps")  # scores of which less is better
Record = dict[str, Any]


def records(task: str, half: str) -> list[Record]:
    """Files of one task and half in which ours was run."""
    every = [json.loads(file.read_text()) for file in sorted(RESULTS.glob("*.json"))]
    return [r for r in every if (r["task"], r["half"]) == (task, half) and "fits" in r]


def methods(tables: Sequence[Record]) -> list[str]:
    """Methods that were run on every table, ours first."""
    each = [{key.split("/")[0] for key in r["fits"]} for r in tables]
    common = set.intersection(*each) if each else set()
    return sorted(common, key=lambda name: (name != OURS, name))


def splits(record: Record, names: Sequence[str]) -> list[str]:
    """Splits that all of these methods were run on."""
    every = sorted({key.split("/")[1] for key in record["fits"]}, key=int)
    return [s for s in every if all(f"{name}/{s}" in record["fits"] for name in names)]


def means(tables: Sequence[Record], names: Sequence[str], score: str) -> np.ndarray:
    """Mean over splits, (tables, methods)."""
    rows = []
    for r in tables:
        own = splits(r, names)
        rows.append([np.mean([r["fits"][f"{n}/{s}"][score] for s in own]) for n in names])
    return np.array(rows)


def ranks(values: np.ndarray) -> np.ndarray:
    """Mean rank of each method over tables; less is better, ties share."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=1).mean(axis=0))


def holm(values: np.ndarray) -> list[float]:
    """Holm-adjusted p-values of Wilcoxon's test of each method against the first."""
    from scipy.stats import wilcoxon

    raw = [float(wilcoxon(values[:, 0], values[:, i]).pvalue) for i in range(1, values.shape[1])]
    order, adjusted, last = np.argsort(raw), [0.0] * len(raw), 0.0
    for place, i in enumerate(order):
        last = max(last, min(1.0, (len(raw) - place) * raw[i]))
        adjusted[i] = last
    return adjusted


def summary(tables: Sequence[Record], shown: Sequence[str], ranked: Sequence[str]) -> str:
    """One row for each method: mean ranks, means and times over tables."""
    names = methods(tables)
    if len(tables) < 2 or OURS not in names:
        return "Not run yet."
    p = ["", *(f"{value:.3f}" for value in holm(means(tables, names, "nll")))]
    rank = {score: ranks(means(tables, names, score)) for score in ranked}
    values = {s: means(tables, names, s) for s in (*shown, "fit_seconds")}
    head = [*(f"rank by {s}" for s in ranked), "p (NLL, Holm)", *(f"median {s}" for s in shown)]
    lines = [f"| method | {' | '.join(head)} | median fit, CPU s |"]
    lines.append("|" + "---|" * (len(head) + 2))
    for i, name in enumerate(names):
        cells = [f"{rank[s][i]:.2f}" for s in ranked] + [p[i]]
        cells += [f"{np.median(values[s][:, i]):.3f}" for s in shown]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {np.median(values['fit_seconds'][:, i]):.2f} |"
        )
    return "\n".join(lines)


def worse_than_nothing(tables: Sequence[Record]) -> str:
    """Tables on which ours lies above the class frequencies, or the training mean."""
    worse = []
    for r in tables:
        fits = [r["fits"][f"{OURS}/{s}"] for s in splits(r, [OURS])]
        gaps = np.array([f["nll"] - f["plain_nll"] for f in fits])
        error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
        limit = 0.01 * abs(float(np.mean([f["plain_nll"] for f in fits]))) + 2 * error
        if gaps.mean() > limit:
            worse.append(f"{r['table']} ({gaps.mean():+.3f})")
    return ", ".join(worse) or "none"


def each_table(tables: Sequence[Record], score: str) -> str:
    """One row for each table: the score of each method, the best in bold."""
    names = methods(tables)
    if not tables or OURS not in names:
        return ""
    values = means(tables, names, score)
    lines = [f"| table | rows | splits | {' | '.join(names)} |", "|" + "---|" * (len(names) + 3)]
    for r, row in zip(tables, values, strict=True):
        best = row.argmin()
        cells = [f"**{v:.3f}**" if i == best else f"{v:.3f}" for i, v in enumerate(row)]
        count = len(splits(r, names))
        lines.append(f"| {r['table']} | {r['rows']} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def coverage(tables: Sequence[Record]) -> str:
    """Coverage of 95 % intervals of ours, pooled over test rows, and by thirds of the mean."""
    fits = [r["fits"][f"{OURS}/{s}"] for r in tables for s in splits(r, [OURS])]
    if not fits:
        return ""
    rows = np.array([f["test_rows"] for f in fits], dtype=float)

    def pooled(name: str) -> float:
        return float(np.average([f[name] for f in fits], weights=rows))

    thirds = ", ".join(f"{pooled(f'coverage_{part}'):.3f}" for part in "abc")
    return (
        f"Coverage of the 95 % intervals of `EntropyMCMCRegressor`, pooled over {int(rows.sum())} "
        f"test rows: **{pooled('coverage'):.3f}**; by thirds of the predicted mean {thirds}."
    )


def against_nothing(tables: Sequence[Record], what: str) -> str:
    """One sentence on the tables that are worse than no model at all."""
    limit = "by more than 1 % and two standard errors"
    return f"Worse than {what} {limit}: {worse_than_nothing(tables)}." if tables else ""


def section(half: str, classify: Sequence[Record], regress: Sequence[Record]) -> str:
    """What one half of the tables says."""
    parts = [
        f"## The {half} half",
        f"### Classification: {len(classify)} tables",
        summary(classify, ("nll", "ece", "accuracy"), ("nll", "ece", "brier")),
        against_nothing(classify, "the class frequencies"),
        each_table(classify, "nll"),
        f"### Regression: {len(regress)} tables",
        summary(regress, ("nll", "rmse", "coverage"), ("nll", "crps", "rmse")),
        against_nothing(regress, "the training mean"),
        coverage(regress),
        each_table(regress, "nll"),
    ]
    return "\n\n".join(part for part in parts if part)


def render(read: Callable[[str, str], list[Record]] = records) -> str:
    """The page."""
    halves = [
        section(half, read("classification", half), read("regression", half))
        for half in ("confirmation", "development")
    ]
    return "\n\n".join([HEAD, *halves]) + "\n"


HEAD = """# Tabular data: the estimators against others, without tuning

Made by `benchmarks/tables_page.py` from the files in `results/tables/`: do not edit. How the
estimators treat a table is on [another page](tables.md).

Public tables that come with PyPI packages (`benchmarks/tabular/catalogue.py` has the list and the
licences). A hash of the name divides them into a development half, on which settings were chosen,
and a confirmation half, which is to be run once: only it is evidence. Every method has its
defaults, on random splits with a quarter for testing; others than ours get one-hot categories,
imputed and scaled columns. Methods that were not run on every table (a Gaussian process above 500
rows) are left out. Scores are means over splits; NLL and RMSE of regressions are in units of the
standard deviation of y. The p-values are those of Wilcoxon's test over tables against ours, after
Holm."""
