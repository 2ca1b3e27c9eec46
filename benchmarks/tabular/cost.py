"""Cost of the estimators: fits beside a scaled MLPClassifier, a large table, a prediction.

`python benchmarks/tables_known.py times predict size`, on an idle machine.
"""

from __future__ import annotations

import functools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Numbers = dict[str, Any]
ROWS = (200, 5000)
REPEATS = 3


def times() -> Numbers:
    """CPU-seconds of one fit of ours and of the MLP, for each public table of so many rows.

    Each is the median of `REPEATS` fits, taken in turns.
    """
    from tabular import loaders
    from tabular.catalogue import CLASSIFICATION
    from tabular.command import divided
    from tabular.methods import METHODS
    from tabular.scores import timed

    found = {}
    for table in CLASSIFICATION:
        x, y = loaders.load(table.name)
        if not ROWS[0] <= len(x) <= ROWS[1]:
            continue
        train, _ = divided(table, x, y, 0)
        makers = [METHODS["classification"][name] for name in ("entropy-mcmc", "mlp")]
        turns = [
            [timed(functools.partial(make(0).fit, *train))[1] for make in makers]
            for _ in range(REPEATS)
        ]
        found[table.name] = [round(float(seconds), 3) for seconds in np.median(turns, axis=0)]
        print(table.name, len(x), found[table.name], file=sys.stderr, flush=True)
    return found


def predict() -> Numbers:
    """CPU-milliseconds for 1,000 rows of 10 columns, the median of 31 calls."""
    from entropy_mcmc.sklearn import EntropyMCMCClassifier, EntropyMCMCRegressor

    draws = np.random.default_rng(0)
    x = draws.standard_normal((1000, 10))
    y = x[:, 0] + np.sin(2 * x[:, 1]) + 0.3 * draws.standard_normal(1000)
    short: Numbers = {"n_steps": 60, "random_state": 0}
    found = {}
    for hidden, activation in (((), "tanh"), ((50,), "tanh"), ((50, 50), "relu")):
        model = EntropyMCMCClassifier(hidden, activation=activation, **short).fit(x, y > 0)
        found[f"classifier {hidden}"] = median_ms(model.predict_proba, x, 31)
    model = EntropyMCMCRegressor((50, 50), **short).fit(x, y)
    found["regressor (50, 50)"] = median_ms(model.predict, x, 31)
    return found


def size() -> Numbers:
    """Seconds, and the peak of the process, of 50,000 × 100, each in a process of its own."""
    found = {}
    for task in ("classification", "regression"):
        command = [sys.executable, sys.argv[0], "size", task]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[task] = json.loads(done.stdout.splitlines()[-1])
    return found


def size_of(task: str) -> Numbers:
    """One large fit in this process."""
    import torch

    from entropy_mcmc.sklearn import EntropyMCMCClassifier, EntropyMCMCRegressor

    torch.set_num_threads(1)
    draws = np.random.default_rng(0)
    x = draws.standard_normal((50_000, 100))
    signal = x[:, 0] + np.sin(2 * x[:, 1]) + x[:, 2] * x[:, 3] + draws.standard_normal(50_000)
    classify = task == "classification"
    kind = EntropyMCMCClassifier if classify else EntropyMCMCRegressor
    before = peak()
    start = time.perf_counter()
    model = kind(random_state=0).fit(x, signal > 0 if classify else signal)
    found: Numbers = {"fit seconds": time.perf_counter() - start, "before fit, MB": before}
    found["peak MB"] = peak()
    call: Callable[[Any], Any] = model.predict_proba if classify else model.predict
    found["1,000 rows, ms"] = median_ms(call, x[:1000], 7)
    found["50,000 rows, ms"] = median_ms(call, x, 1)
    return found | {"peak MB, after predictions": peak()}


def median_ms(call: Callable[[Any], Any], x: Any, repeats: int) -> float:
    """CPU-milliseconds of a call, after one that does not count."""
    call(x[:2])
    each = []
    for _ in range(repeats):
        start = time.process_time()
        call(x)
        each.append(1e3 * (time.process_time() - start))
    return float(np.median(each))


def peak() -> float:
    """Largest memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
