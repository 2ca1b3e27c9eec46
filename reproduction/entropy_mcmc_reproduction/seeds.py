"""The one reader of results by seed: pairs are matched by their seed, never by their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Results = Mapping[str, dict[str, Any]]


def by_seed(results: Results, label: str) -> dict[int, dict[str, Any]]:
    """Results named `label-SEED`, by seed in ascending order.

    >>> by_seed({"a/x-10": {"n": 1}, "a/x-2": {"n": 2}, "a/x-y-2": {}}, "a/x")
    {2: {'n': 2}, 10: {'n': 1}}
    """
    start = len(label) + 1
    names = [n for n in results if n.startswith(f"{label}-") and n[start:].isdigit()]
    return {int(n[start:]): results[n] for n in sorted(names, key=lambda n: int(n[start:]))}


def value(result: Mapping[str, Any], *path: str) -> float:
    """One number of a result, by its keys."""
    found: Any = result
    for key in path:
        found = found[key]
    return float(found)


def values(results: Results, label: str, *path: str) -> dict[int, float]:
    """One number of each seed."""
    return {seed: value(result, *path) for seed, result in by_seed(results, label).items()}


def paired(
    results: Results, ours: str, theirs: str, *path: str
) -> tuple[list[float], list[float], int]:
    """The numbers of the seeds that both have, and how many seeds only one of them has.

    >>> paired({"a-1": {"n": 3}, "a-2": {"n": 4}, "b-2": {"n": 5}}, "a", "b", "n")
    ([4.0], [5.0], 1)
    """
    mine, others = values(results, ours, *path), values(results, theirs, *path)
    both = sorted(set(mine) & set(others))
    alone = len(set(mine) ^ set(others))
    return [mine[s] for s in both], [others[s] for s in both], alone
