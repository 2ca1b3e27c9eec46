"""Runs that differ in their seed alone: one row for each setting, with errors over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from entropy_mcmc.report.html import Table
from entropy_mcmc.report.labels import SHARES, arrow, method_name
from entropy_mcmc.report.run_data import RunData
from entropy_mcmc.report.score_difference import NLL, NLL_MARGIN, Difference, paired
from entropy_mcmc.report.settings import HIDDEN
from entropy_mcmc.run.config import flatten, to_dict

Scores = dict[str, float]


def settings_groups(runs: Sequence[RunData]) -> list[list[int]]:
    """Places of runs with the same settings but for the seed, in the order of the page."""
    groups: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        flat = flatten(to_dict(run.record.config))
        own = {k: v for k, v in flat.items() if k != "seed" and not k.startswith(HIDDEN)}
        groups.setdefault(repr(sorted(own.items(), key=lambda item: item[0])), []).append(i)
    return list(groups.values())


def seed_of(run: RunData) -> int:
    """The run's seed."""
    return int(run.record.config.seed)


def over_seeds(
    runs: Sequence[RunData], scores: Sequence[Scores], columns: Sequence[str]
) -> Table | None:
    """Means with standard errors over seeds; None where no setting was run with several."""
    groups = settings_groups(runs)
    if all(len(group) < 2 for group in groups):
        return None
    rows = []
    for group in groups:
        names = ", ".join(runs[i].name for i in group)
        cells = [_mean(name, [scores[i][name] for i in group if name in scores[i]])
                 for name in columns]  # fmt: skip
        rows.append([method_name(runs[group[0]].method), names, len(group), *cells])
    head = ["method", "runs", "seeds", *map(arrow, columns)]
    return Table("The same over seeds (mean ± standard error)", head, rows)


def _mean(name: str, values: Sequence[float]) -> str:
    if not values:
        return "–"
    scale, digits, unit = (100, 1, " %") if name in SHARES else (1, 4, "")
    mean = scale * float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.{digits}f}{unit}"
    error = scale * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return f"{mean:.{digits}f} ± {error:.{digits}f}{unit}"


def nll_over_seeds(
    runs: Sequence[RunData], scores: Sequence[Scores]
) -> tuple[str, str, Difference] | None:
    """The two settings of lowest mean NLL and their difference, paired over common seeds.

    None unless all settings have the same seeds, two or more. The interval is Student's.
    """
    from scipy.stats import t

    groups = [sorted(group, key=lambda i: seed_of(runs[i])) for group in settings_groups(runs)]
    seeds = [[seed_of(runs[i]) for i in group] for group in groups]
    if len(groups) < 2 or len(seeds[0]) < 2 or any(own != seeds[0] for own in seeds):
        return None
    if not all("nll" in scores[i] for group in groups for i in group):
        return None
    values = [np.array([scores[i]["nll"] for i in group]) for group in groups]
    order = sorted(range(len(groups)), key=lambda k: float(values[k].mean()))
    first, second = order[:2]
    errors = float(t.ppf(0.975, len(seeds[0]) - 1))
    difference = Difference(NLL, *paired(values[first], values[second]), NLL_MARGIN, errors=errors)
    names = [", ".join(runs[i].name for i in groups[k]) for k in (first, second)]
    return names[0], names[1], difference
