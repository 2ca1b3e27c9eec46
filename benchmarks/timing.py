"""Timing shared by the benchmarks: interleaved repeats, medians, spread, ratios."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch

Row = dict[str, Any]


def interleaved(
    actions: dict[str, Callable[[], object]], repeats: int, *, cpu_time: bool = False
) -> dict[str, list[float]]:
    """Seconds of each action, all of them once per repeat, so that load hits them alike.

    `cpu_time` counts the processor time of this process instead of the wall clock: on a machine
    shared with others, with one thread, it is the number that repeats.
    """
    clock = time.process_time if cpu_time else time.perf_counter
    for action in actions.values():
        action()
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repeats):
        for name, action in actions.items():
            start = clock()
            action()
            times[name].append(clock() - start)
    return times


def ratio(what: str, top: list[float], bottom: list[float], target: str) -> Row:
    """Ratio of medians, with the quartiles of the ratios of single repeats."""
    single = [a / b for a, b in zip(top, bottom, strict=True)]
    value = statistics.median(top) / statistics.median(bottom)
    return {"what": what, "ratio": value, "quartiles": quartiles(single), "target": target}


def milliseconds(times: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Median, least and quartiles of each action."""
    return {
        name: {
            "median_ms": 1e3 * statistics.median(t),
            "least_ms": 1e3 * min(t),
            "quartiles_ms": [1e3 * value for value in quartiles(t)],
        }
        for name, t in times.items()
    }


def quartiles(values: list[float]) -> list[float]:
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return [low, high]


def table(rows: list[Row]) -> str:
    """Rows of ratios as a Markdown table."""
    lines = ["| what | target | ratio | quartiles |", "|---|---|---|---|"]
    for row in rows:
        spread = "–" if row["quartiles"] is None else "{:.3g} to {:.3g}".format(*row["quartiles"])
        numbers = f"{row['ratio']:.3g} | {spread}"
        lines.append(f"| {row['what']} | {row['target']} | {numbers} |")
    return "\n".join(lines)


def use_threads(number: int | None, cpu_time: bool) -> None:
    """Threads of torch and XLA; CPU time means one: threads that wait for each other burn it.

    Call it before jax is imported.
    """
    number = 1 if cpu_time else number
    if number is not None:
        torch.set_num_threads(number)
    if number == 1:
        os.environ["XLA_FLAGS"] = (
            "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        )


def profile(
    run: Callable[[], object], places: dict[str, tuple[Any, str]], repeats: int
) -> dict[str, float]:
    """Median microseconds of a call, whole and by what it is spent on.

    Args:
        run: The call.
        places: (object, attribute) of functions inside it that do not call each other, by name.
        repeats: Calls; one before them is not counted.
    """
    spent = dict.fromkeys(places, 0.0)

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*given, **named)
            finally:
                spent[name] += time.perf_counter() - start

        return call

    rows: list[dict[str, float]] = []
    with ExitStack() as stack:
        for name, (owner, attribute) in places.items():
            changed = timed(name, getattr(owner, attribute))
            stack.enter_context(patch.object(owner, attribute, changed))
        for _ in range(repeats + 1):
            spent.update(dict.fromkeys(places, 0.0))
            start = time.perf_counter()
            run()
            whole = time.perf_counter() - start
            rows.append({"whole": whole, **spent, "rest": whole - sum(spent.values())})
    return {n: round(1e6 * statistics.median(r[n] for r in rows[1:]), 1) for n in rows[0]}


def profile_table(profiles: dict[str, dict[str, float]], what: str) -> str:
    """Profiles as a Markdown table, one row each, in microseconds; a part may be missing."""
    names = list(dict.fromkeys(name for parts in profiles.values() for name in parts))
    lines = [f"| {what}, µs | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for label, parts in profiles.items():
        cells = [f"{parts[name]:,.0f}" if name in parts else "–" for name in names]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)
