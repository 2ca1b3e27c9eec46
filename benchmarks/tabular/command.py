"""The command of the benchmark: fits that are not in the files of results/tables yet."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from sklearn.model_selection import train_test_split

from tabular import loaders, scores
from tabular.catalogue import TABLES, Table
from tabular.methods import METHODS, runs_on

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "tables"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="estimators against others on public tables")
    parser.add_argument("half", choices=("development", "confirmation"))
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="split to begin with")
    parser.add_argument("--tables", nargs="+", default=None, help="by default, all of the half")
    parser.add_argument("--methods", nargs="+", default=None, help="by default, all")
    parser.add_argument("--most-rows", type=int, default=10**9, help="leave larger tables out")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    for split in range(options.first, options.splits):
        for table in TABLES.values():
            if table.half == options.half and table.name in (options.tables or TABLES):
                measure(table, split, options.methods, options.most_rows)


def measure(table: Table, split: int, only: Sequence[str] | None, most_rows: int) -> None:
    """Fit every method that is not in the table's file yet."""
    file = RESULTS / f"{table.name}.json"
    record = json.loads(file.read_text()) if file.exists() else {}
    methods = METHODS[table.task]
    asked = [name for name in methods if name in (only or methods)]
    wanted = [name for name in asked if f"{name}/{split}" not in record.get("fits", {})]
    if record and (record["rows"] > most_rows or not wanted):
        return
    try:
        x, y = loaders.load(table.name)
    except ModuleNotFoundError as error:
        print(f"{table.name}: {error}", file=sys.stderr)
        return
    if len(x) > most_rows:
        return
    train, test = divided(table, x, y, split)
    about = {"table": table.name, "task": table.task, "half": table.half}
    about |= {"rows": len(x), "columns": x.shape[1]}
    judge = getattr(scores, table.task)
    plain = scores.class_frequencies if table.task == "classification" else scores.training_mean
    for method in wanted:
        if not runs_on(method, len(train[1])):
            continue
        found = judge(lambda m=method: methods[m](split), train, test)
        found |= {"test_rows": len(test[1]), "plain_nll": plain(train, test), **versions()}
        add(file, about, f"{method}/{split}", found)
        print(f"{table.name} {split} {method}: NLL {found['nll']:.4f}", flush=True)


def divided(table: Table, x: Any, y: Any, split: int) -> tuple[Any, Any]:
    """Training and test rows; test rows of a class that no training row has are left out."""
    classes = table.task == "classification"
    by_class = y if classes and y.value_counts().min() > 1 else None
    parts = train_test_split(x, y, test_size=0.25, stratify=by_class, random_state=split)
    a, b, c, d = parts
    if classes:
        known = d.isin(c.unique())
        b, d = b[known], d[known]
    return (a, c.to_numpy()), (b, d.to_numpy())


def add(file: Path, about: dict[str, Any], key: str, fit: dict[str, Any]) -> None:
    """Add a fit to the table's file, whole or not at all; other processes may add theirs."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(file.with_suffix(".lock")):
        record = json.loads(file.read_text()) if file.exists() else {}
        record |= about
        record.setdefault("fits", {})[key] = fit
        unfinished = file.with_suffix(f".{os.getpid()}.part")
        unfinished.write_text(json.dumps(record, indent=1) + "\n")
        unfinished.replace(file)


def versions() -> dict[str, str]:
    """What the numbers depend on."""
    import sklearn
    import torch

    git = ["git", "-C", str(ROOT)]
    last = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src/entropy_mcmc/sklearn"])
    return {
        "commit": last.stdout.strip() + (" and changes" if changed.returncode else ""),
        "versions": f"python {platform.python_version()}, numpy {np.__version__}, "
        f"torch {torch.__version__}, scikit-learn {sklearn.__version__}",
        "threads": str(torch.get_num_threads()),
    }
